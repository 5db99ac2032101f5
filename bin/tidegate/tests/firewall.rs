//! A gateway with a file of nft rules between two kernels: what passes, what does not, as whom it arrives,
//! that new rules do not disturb what is open, nor does the death of the node, and what is told of it.

mod common;
#[path = "common/gateway.rs"]
mod gateway;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{finish, tidegate, wait_until};
use control::api::{RuleInfo, SessionChange, SessionEvent, SessionInfo};
use gateway::{Gateway, PATIENCE, listen};
use lab::need;

#[test]
fn rules_masquerade_refuse_and_change_under_an_open_connection() {
    let test = "rules_masquerade_refuse_and_change_under_an_open_connection";
    gateway::guards(test, None);
}

/// Sends the same bytes that [`receive`] expects, slowly enough to be interrupted; ends with the connection.
fn send(mut stream: TcpStream, bytes: usize) {
    let mut sent = 0;
    while sent < bytes {
        let chunk: Vec<u8> = (sent..bytes.min(sent + 16_384)).map(byte_at).collect();
        stream.write_all(&chunk).unwrap();
        sent += chunk.len();
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn byte_at(at: usize) -> u8 {
    (at % 251) as u8 ^ (at >> 12) as u8
}

/// Receives to the end; calls `at` with what has come so far. Returns the longest pause and the number of bytes.
fn receive(stream: &mut TcpStream, mut at: impl FnMut(usize)) -> (Duration, usize) {
    let (mut received, mut pause, mut last) = (0, Duration::ZERO, Instant::now());
    let mut buffer = vec![0; 65_536];
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    loop {
        let len = stream.read(&mut buffer).unwrap();
        pause = pause.max(last.elapsed());
        last = Instant::now();
        if len == 0 {
            return (pause, received);
        }
        let right = buffer[..len].iter().zip(received..);
        assert!(
            right
                .map(|(byte, at)| (*byte, byte_at(at)))
                .all(|(a, b)| a == b)
        );
        received += len;
        at(received);
    }
}

#[test]
fn connections_survive_a_killed_node() {
    let test = "connections_survive_a_killed_node";
    if !need::root(test) || !need::program(test, "ip") {
        return;
    }
    const BYTES: usize = 6_000_000;
    let mut gateway = Gateway::start("4000", None);
    let listener = listen(&gateway.line.right.namespace, 4000);
    let mut clients = Vec::new();
    assert!(wait_until(PATIENCE, || {
        clients.extend(gateway.connect(4000, Duration::from_secs(3)));
        clients.len() == 2
    }));
    let [idle, mut download] = <[TcpStream; 2]>::try_from(clients).unwrap();
    let (mut idle_peer, _) = listener.accept().unwrap();
    let (download_peer, outer) = listener.accept().unwrap();
    let sender = std::thread::spawn(move || send(download_peer, BYTES));
    let mut kills = 0;
    let (pause, received) = receive(&mut download, |received| {
        if received > BYTES / 4 * (kills + 1) && kills < 2 {
            kills += 1;
            gateway.kill_and_restart();
        }
    });
    sender.join().unwrap();
    assert_eq!((received, kills), (BYTES, 2));
    println!("gap {} ms, the node was killed twice", pause.as_millis());
    // What was quiet all the time goes on as well, and its port is nobody else's.
    idle_peer.write_all(b"still there").unwrap();
    let mut buffer = [0; 11];
    let mut idle = idle;
    idle.set_read_timeout(Some(PATIENCE)).unwrap();
    idle.read_exact(&mut buffer).unwrap();
    assert_eq!(&buffer, b"still there");
    let mut stats = None;
    assert!(wait_until(PATIENCE, || {
        stats = gateway.stats();
        stats.is_some()
    }));
    let firewall = stats.unwrap().firewall.unwrap();
    let state = firewall.state.unwrap();
    assert_eq!(state.file, gateway.directory().join("control.state"));
    let found = state.taken_over.unwrap();
    assert!(found.connections >= 2 && found.mappings >= 2, "{found:?}");
    assert_eq!((found.torn, found.connections_ended), (0, 0));
    let third = gateway.connect(4000, Duration::from_secs(3)).unwrap();
    let (_, other) = listener.accept().unwrap();
    assert_ne!(other, outer, "no port is given out twice");
    drop(third);
}

#[test]
fn connections_are_listed_told_and_ended() {
    let test = "connections_are_listed_told_and_ended";
    if !need::root(test) || !need::program(test, "ip") {
        return;
    }
    let gateway = Gateway::start("4000", None);
    let session = |arguments: &[&str]| {
        let mut command = tidegate();
        command.arg("--socket").arg(gateway.socket());
        finish(command.arg("session").args(arguments))
    };
    let mut events = tidegate()
        .arg("--socket")
        .arg(gateway.socket())
        .args(["session", "events", "--json", "-p", "tcp"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = BufReader::new(events.stdout.take().unwrap()).lines();
    let listener = listen(&gateway.line.right.namespace, 4000);
    // The watcher may subscribe late: connections are made until it has seen one.
    let seen = std::thread::spawn(move || {
        let first = told.next().unwrap().unwrap();
        (serde_json::from_str::<SessionEvent>(&first).unwrap(), told)
    });
    let mut clients = Vec::new();
    assert!(wait_until(PATIENCE, || {
        clients.extend(gateway.connect(4000, Duration::from_secs(3)));
        seen.is_finished() && !clients.is_empty()
    }));
    let (event, told) = seen.join().unwrap();
    assert_eq!(event.change, SessionChange::New);
    let (client, node) = (
        gateway.line.left.address(),
        gateway.line.right.node_address(),
    );
    assert_eq!(event.session.original.source, client);
    assert_eq!(event.session.reply.destination, node);
    assert!(event.session.snat);
    let (_server, peer) = listener.accept().unwrap();

    let listed = session(&["ls", "--json"]);
    let listed: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap();
    assert_eq!(listed["matched"], listed["total"]);
    let sessions: Vec<SessionInfo> = serde_json::from_value(listed["sessions"].clone()).unwrap();
    let ours = sessions
        .iter()
        .find(|one| one.reply.destination_port == peer.port());
    assert_eq!(ours.unwrap().state.as_deref(), Some("ESTABLISHED"));
    let text = session(&["ls", "-s", "10.1.0.0/24", "--state", "established", "--nat"]);
    assert!(text.stdout.starts_with("tcp      6 "), "{}", text.stdout);
    assert!(text.stdout.contains("[ASSURED]"), "{}", text.stdout);
    let none = session(&["ls", "-d", "192.0.2.0/24"]);
    assert!(none.stdout.starts_with("0 of "), "{}", none.stdout);
    let counted = session(&["ls", "--count"]);
    assert!(counted.stdout.contains("ESTABLISHED"), "{}", counted.stdout);

    assert_eq!(session(&["rm"]).code, 2, "no filter, no --all");
    let ended = session(&["rm", "--dport", "4000", "--json"]);
    let ended: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert!(ended["ended"].as_u64().unwrap() >= clients.len() as u64);
    let told_of_end = told
        .map_while(Result::ok)
        .map(|line| serde_json::from_str::<SessionEvent>(&line).unwrap())
        .any(|event| event.change == SessionChange::Destroy);
    assert!(told_of_end);
    events.kill().unwrap();
    events.wait().unwrap();
    let left = session(&["ls", "--state", "established"]);
    assert!(left.stdout.starts_with("0 of "), "{}", left.stdout);
}

#[test]
fn a_scanner_is_held_off_and_logged_and_a_blocklist_is_swapped() {
    let test = "a_scanner_is_held_off_and_logged_and_a_blocklist_is_swapped";
    if !need::root(test) || !need::program(test, "ip") {
        return;
    }
    let guard =
        "[firewall.guard]\nblocklists = [\"drop.txt\"]\nscan_endpoints = 20\nhold_off_s = 1\n";
    // The list lies beside the configuration, which is written by then.
    let lists = tempfile::tempdir().unwrap();
    let list = lists.path().join("drop.txt");
    std::fs::write(&list, "192.0.2.0/24 # nobody\n").unwrap();
    let guard = guard.replace("drop.txt", list.to_str().unwrap());
    let gateway = Gateway::with_guard("4000", None, &guard);
    let _listener = listen(&gateway.line.right.namespace, 4000);
    let second = Duration::from_secs(1);
    assert!(wait_until(PATIENCE, || gateway
        .connect(4000, second)
        .is_ok()));

    let seen = |name: &str| {
        let stats = gateway.stats()?;
        let guard = stats.firewall?.guard?;
        let attack = guard.attacks.into_iter().find(|one| one.threshold == name);
        attack.map(|attack| (attack, guard.blocklist_prefixes))
    };
    let mut attack = None;
    let is_seen = wait_until(PATIENCE, || {
        let left = &gateway.line.left.namespace;
        let to = gateway.line.right.address();
        let probe = |port| TcpStream::connect_timeout(&(to, port).into(), Duration::from_millis(1));
        left.run(|| (5000..5040).for_each(|port| drop(probe(port))))
            .unwrap();
        attack = seen("scan_endpoints");
        attack.is_some()
    });
    assert!(is_seen, "{}", gateway.log());
    let (attack, prefixes) = attack.unwrap();
    assert_eq!(prefixes, 1);
    assert_eq!(attack.sources, [gateway.line.left.address()]);
    assert_eq!((attack.limit, attack.action.as_str()), (20, "hold_off"));
    assert!(attack.measured > 20);
    assert!(wait_until(PATIENCE, || gateway
        .log()
        .contains("the guard saw an attack")));
    let line = "refused: IN=left OUT=right SRC=10.1.0.2 DST=10.2.0.2";
    assert!(
        wait_until(PATIENCE, || gateway.log().contains(line)),
        "{}",
        gateway.log()
    );
    assert!(gateway.stats().unwrap().firewall.unwrap().log_lines > 0);
    // After its time, it may come in again.
    assert!(wait_until(PATIENCE, || gateway
        .connect(4000, second)
        .is_ok()));

    std::fs::write(&list, "10.2.0.0/24\n10.9.0.0/16\n").unwrap();
    gateway.hang_up();
    assert!(wait_until(PATIENCE, || gateway
        .connect(4000, second)
        .is_err()));
    // A wrong list changes nothing, and says where it is wrong.
    std::fs::write(&list, "10.9.0.0/16\nnonsense\n").unwrap();
    gateway.hang_up();
    assert!(wait_until(PATIENCE, || gateway
        .log()
        .contains("drop.txt:2: `nonsense`")));
    assert!(gateway.connect(4000, Duration::from_millis(300)).is_err());
    std::fs::write(&list, "").unwrap();
    gateway.hang_up();
    assert!(wait_until(PATIENCE, || gateway
        .connect(4000, second)
        .is_ok()));
}

/// Asks the gateway by a command.
fn ask(gateway: &Gateway, arguments: &[&str]) -> common::Run {
    let socket = gateway.socket();
    finish(tidegate().arg("--socket").arg(socket).args(arguments))
}

/// The ports that the rules in force let pass, and the packets counted there.
fn allowed(gateway: &Gateway) -> (String, u64) {
    let listed = ask(gateway, &["rule", "ls", "--json"]);
    assert_eq!(listed.code, 0, "{}", listed.stderr);
    let rules: Vec<RuleInfo> = serde_json::from_str(&listed.stdout).unwrap();
    let rule = rules.iter().find(|rule| rule.text.contains("dport"));
    let rule = rule.unwrap();
    let ports = rule.text.split(['{', '}']).nth(1).unwrap().trim();
    (ports.to_owned(), rule.pkts.unwrap())
}

#[test]
fn rules_are_applied_on_trial_and_come_back() {
    let test = "rules_are_applied_on_trial_and_come_back";
    if !need::root(test) || !need::program(test, "ip") {
        return;
    }
    let gateway = Gateway::start("4000", None);
    let old = listen(&gateway.line.right.namespace, 4000);
    let new = listen(&gateway.line.right.namespace, 4001);
    let mut client = None;
    assert!(wait_until(PATIENCE, || {
        client = gateway.connect(4000, Duration::from_secs(3)).ok();
        client.is_some()
    }));
    let mut client = client.unwrap();
    let (mut server, _) = old.accept().unwrap();
    let (ports, pkts) = allowed(&gateway);
    assert_eq!(ports, "4000");
    assert!(pkts >= 1, "the SYN was counted");
    let text = ask(&gateway, &["rule", "ls"]).stdout;
    assert!(
        text.contains("inet filter forward") && text.contains("rules.nft:5"),
        "{text}"
    );

    let other = gateway.directory().join("other.nft");
    std::fs::write(&other, gateway::rules("4001")).unwrap();
    let other = other.to_str().unwrap();
    let denied = ask(&gateway, &["rule", "rematch", other]);
    assert!(
        denied.stdout.contains(":4000") && denied.stdout.contains("by the policy"),
        "{denied:?}"
    );
    assert!(
        denied
            .stdout
            .ends_with("1 live connection would be denied\n"),
        "{denied:?}"
    );

    let applied = ask(
        &gateway,
        &["rule", "apply", other, "--confirm", "600s", "--rematch"],
    );
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    assert_eq!(allowed(&gateway), ("4001".to_owned(), 0));
    assert!(wait_until(PATIENCE, || gateway
        .connect(4001, Duration::from_secs(2))
        .is_ok()));
    assert!(new.accept().is_ok());
    client.write_all(b"still here").unwrap();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut bytes = [0; 10];
    server.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"still here", "connections go on");
    let second = ask(&gateway, &["rule", "apply", other]);
    assert_eq!(second.code, 1, "the first trial is not over: {second:?}");
    assert_eq!(ask(&gateway, &["rule", "rollback"]).code, 0);
    let (ports, back) = allowed(&gateway);
    assert_eq!(ports, "4000");
    assert!(
        back >= pkts,
        "the old rules are the same ones, with their counters"
    );

    // Nobody confirms: the old rules come back by themselves, though their file has changed.
    std::fs::write(gateway::rules_file(gateway.directory()), "nonsense").unwrap();
    assert_eq!(
        ask(&gateway, &["rule", "apply", other, "--confirm", "1"]).code,
        0
    );
    assert!(wait_until(PATIENCE, || allowed(&gateway).0 == "4000"));
    // Confirmed, they stay.
    assert_eq!(
        ask(&gateway, &["rule", "apply", other, "--confirm", "600"]).code,
        0
    );
    assert_eq!(ask(&gateway, &["rule", "confirm"]).code, 0);
    assert_eq!(ask(&gateway, &["rule", "rollback"]).code, 5);
    assert_eq!(allowed(&gateway).0, "4001");
    // The connection of port 4000 goes on, until it is ended on request.
    let ended = ask(&gateway, &["rule", "rematch", other, "--end"]);
    assert!(
        ended
            .stdout
            .ends_with("1 live connection is denied, and ended\n"),
        "{ended:?}"
    );
    let again = ask(&gateway, &["rule", "rematch", other]);
    assert_eq!(again.stdout, "no live connection would be denied\n");
    client.write_all(b"gone").unwrap();
    server
        .set_read_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    assert!(server.read(&mut bytes).is_err(), "nothing arrives any more");
    let wrong = ask(
        &gateway,
        &[
            "rule",
            "apply",
            gateway::rules_file(gateway.directory()).to_str().unwrap(),
        ],
    );
    assert_eq!(wrong.code, 1);
    assert!(wrong.stderr.contains("rules.nft"), "{}", wrong.stderr);
    assert_eq!(allowed(&gateway).0, "4001", "a wrong file changes nothing");
}
