//! The SYN proxy between two kernels: a flood leaves no state, and what clients download through the proxy is exact.

mod common;
#[path = "common/gateway.rs"]
#[expect(dead_code, reason = "each test program uses a part of it")]
mod gateway;

use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::{tidegate, wait_until};
use control::api::FirewallInfo;
use gateway::{Gateway, PATIENCE, listen};
use lab::need;

/// What the server has; no multiple of anything.
const FILE_BYTES: usize = 700_007;
/// SYNs a second of the flood, and downloads beside it.
const FLOOD: u32 = 2000;
const DOWNLOADS: u64 = 5;

/// A program that ends with the test.
struct Program(Child);

impl Program {
    fn start(command: &mut Command) -> Self {
        let command = command.stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn is_possible(test: &str) -> bool {
    need::root(test)
        && ["ip", "curl", "python3"]
            .iter()
            .all(|program| need::program(test, program))
}

/// Python's web server on port 4000 of the right side, with one file.
fn serve(gateway: &Gateway, directory: &Path) -> (Program, Vec<u8>) {
    let mut word = 1_u32;
    let file: Vec<u8> = (0..FILE_BYTES)
        .map(|_| {
            word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (word >> 24) as u8
        })
        .collect();
    std::fs::write(directory.join("file"), &file).unwrap();
    let mut server = gateway.line.right.namespace.command("python3");
    server
        .args(["-m", "http.server", "4000"])
        .current_dir(directory);
    (Program::start(&mut server), file)
}

/// Downloads the file by curl; `None` if that failed.
fn download(gateway: &Gateway) -> Option<Vec<u8>> {
    let mut curl = gateway.line.left.namespace.command("curl");
    let url = format!("http://{}:4000/file", gateway.line.right.address());
    curl.args(["--silent", "--noproxy", "*", "--max-time", "20", &url]);
    let output = curl.output().unwrap();
    output.status.success().then_some(output.stdout)
}

fn firewall(gateway: &Gateway) -> FirewallInfo {
    gateway.stats().unwrap().firewall.unwrap()
}

fn answered(gateway: &Gateway) -> u64 {
    let drops = gateway.stats().unwrap().drops;
    let cookies = drops
        .iter()
        .filter(|drop| drop.reason == "guard_syn_cookie");
    cookies.map(|drop| drop.pkts).sum()
}

#[test]
fn a_flood_leaves_no_state_and_neither_downloads_nor_known_flows_notice() {
    let test = "a_flood_leaves_no_state_and_neither_downloads_nor_known_flows_notice";
    if !is_possible(test) {
        return;
    }
    let guard = "[firewall.guard]\ndestination_connections_per_s = 20\n";
    let gateway = Gateway::with_guard("4000, 4001", None, guard);
    let files = tempfile::tempdir().unwrap();
    let (_server, file) = serve(&gateway, files.path());
    let listener = listen(&gateway.line.right.namespace, 4001);
    let mut known = None;
    assert!(wait_until(PATIENCE, || {
        known = gateway.connect(4001, Duration::from_secs(3)).ok();
        known.is_some()
    }));
    let (mut known, (mut peer, _)) = (known.unwrap(), listener.accept().unwrap());
    assert!(wait_until(PATIENCE, || download(&gateway).is_some()));

    let left = &gateway.line.left;
    let Ok(victim) = gateway.line.right.address().to_string().parse::<Ipv4Addr>() else {
        panic!("the line has IPv4 addresses")
    };
    let router: String = left
        .node_mac
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let mut flood = left.namespace.command(env!("CARGO_BIN_EXE_tidegate"));
    flood.args([
        "demo-program",
        "syn-source",
        &left.device,
        &victim.to_string(),
    ]);
    flood.args(["--router", &router, "--port", "4000", "--ms", "200000"]);
    flood.args(["--rate", &FLOOD.to_string()]);
    let flood = Program::start(&mut flood);
    let seen = || {
        let attacks = firewall(&gateway).guard.unwrap().attacks;
        let name = "destination_connections_per_s";
        attacks.into_iter().find(|attack| attack.threshold == name)
    };
    assert!(
        wait_until(PATIENCE, || seen().is_some()),
        "{}",
        gateway.log()
    );
    // The first second is over when cookies go out.
    assert!(wait_until(PATIENCE, || answered(&gateway) > 100));

    let (before, cookies) = (firewall(&gateway).opened, answered(&gateway));
    let bytes: Vec<u8> = (0..1_000_000_u32).map(|i| (i % 241) as u8).collect();
    let mut received = vec![0; bytes.len()];
    std::thread::scope(|scope| {
        scope.spawn(|| known.write_all(&bytes).unwrap());
        peer.set_read_timeout(Some(PATIENCE)).unwrap();
        peer.read_exact(&mut received).unwrap();
    });
    assert!(received == bytes, "the known flow goes on");
    for n in 0..DOWNLOADS {
        let got = download(&gateway);
        assert!(
            got.as_ref() == Some(&file),
            "download {n}: {:?}",
            got.map(|got| got.len())
        );
    }
    // At least ten times as many SYNs of the flood were answered as downloads.
    assert!(wait_until(PATIENCE, || answered(&gateway) - cookies > 10 * DOWNLOADS));
    // The guard names one source a second.
    assert!(wait_until(PATIENCE, || seen().unwrap().sources.len() > 1));
    drop(flood);
    let opened = firewall(&gateway).opened - before;
    assert_eq!(opened, DOWNLOADS, "only who answers gets state");
    let attack = seen().unwrap();
    assert_eq!((attack.action.as_str(), attack.limit), ("cookie", 20));
    assert!(attack.measured > 20, "{attack:?}");
}

#[test]
fn the_kernels_synproxy_rules_work_as_they_stand() {
    let test = "the_kernels_synproxy_rules_work_as_they_stand";
    if !is_possible(test) {
        return;
    }
    let gateway = Gateway::start("4000", None);
    let files = tempfile::tempdir().unwrap();
    let (server, file) = serve(&gateway, files.path());
    // Another window scale than the server's: it is translated.
    let rules = "table inet filter {
        synproxy web { mss 1400; wscale 5; timestamp sack-perm; }
        chain prerouting {
            type filter hook prerouting priority raw; policy accept;
            tcp dport 4000 tcp flags syn notrack
        }
        chain forward {
            type filter hook forward priority filter; policy drop;
            ct state established,related accept
            iifname left tcp dport 4000 ct state invalid,untracked synproxy name web
            ct state invalid drop
        }
    }
    table ip nat {
        chain postrouting { type nat hook postrouting priority srcnat; oifname right masquerade; }
    }";
    std::fs::write(gateway::rules_file(gateway.directory()), rules).unwrap();
    gateway.hang_up();
    assert!(
        wait_until(PATIENCE, || {
            let socket = gateway.socket();
            let listed =
                common::finish(tidegate().arg("--socket").arg(socket).args(["rule", "ls"]));
            listed.stdout.contains("synproxy")
        }),
        "{}",
        gateway.log()
    );
    assert!(
        wait_until(PATIENCE, || download(&gateway).is_some()),
        "{}",
        gateway.log()
    );
    let (before, cookies) = (firewall(&gateway).opened, answered(&gateway));
    for _ in 0..3 {
        assert!(download(&gateway) == Some(file.clone()));
    }
    assert_eq!(firewall(&gateway).opened - before, 3);
    assert_eq!(
        answered(&gateway) - cookies,
        3,
        "each SYN was answered by the node"
    );
    // Who is refused by the server learns it.
    drop(server);
    // The reset may come before the client's program sees that it is connected.
    let told = gateway
        .connect(4000, Duration::from_secs(3))
        .and_then(|mut client| {
            client.set_read_timeout(Some(PATIENCE))?;
            client.read(&mut [0; 1])
        });
    let told = told.map_err(|error| error.kind());
    assert_eq!(told, Err(std::io::ErrorKind::ConnectionReset));
}
