//! The demo: packets of real programs cross the node, and nothing is left behind.

mod common;

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{finish, processes_with, tidegate, wait_until};
use control::api::{DemoReport, DemoResult};
use lab::need;

const NOBODY: u32 = 65_534;

/// A value for the environment of one demo, by which its processes are found.
fn mark(test: &str) -> String {
    format!("TIDEGATE_TEST_MARK={test}-{}", std::process::id())
}

fn marked(mut command: Command, mark: &str) -> Command {
    let (name, value) = mark.split_once('=').unwrap();
    command.env(name, value);
    command
}

fn links() -> Vec<String> {
    let links = lab::Links::open().unwrap().list().unwrap();
    links.into_iter().map(|link| link.name).collect()
}

/// What every complete demo must have shown.
fn judge(report: &DemoReport) {
    assert!(
        report.first_packet_ms < 10_000,
        "first packet after {} ms",
        report.first_packet_ms
    );
    let names: Vec<_> = report
        .phases
        .iter()
        .map(|phase| phase.name.as_str())
        .collect();
    let mut wanted = vec![
        "quiet", "ping", "ping6", "download", "stream", "strays", "scan", "flood", "quiet",
    ];
    if !std::path::Path::new("/proc/sys/net/ipv6").exists() {
        wanted.remove(2);
    }
    assert_eq!(names, wanted);
    for phase in &report.phases {
        match phase.result {
            DemoResult::Quiet => {}
            DemoResult::Ping {
                answered,
                rtt_p50_ns,
                rtt_max_ns,
            } => {
                assert!(answered >= 4, "{answered} answers");
                assert!(0 < rtt_p50_ns && rtt_p50_ns <= rtt_max_ns);
                assert!(
                    phase.rx_pkts >= 2 * answered,
                    "requests and answers cross the node"
                );
            }
            DemoResult::Download { bytes } => {
                assert!(bytes > 1 << 20, "{bytes} bytes downloaded");
                assert!(
                    phase.tx_bytes >= bytes,
                    "the node carried what the client got"
                );
            }
            DemoResult::Stream {
                sent_pkts,
                received_pkts,
                ..
            } => {
                assert!(sent_pkts > 1000, "{sent_pkts} sent");
                assert!(received_pkts <= sent_pkts);
                assert!(
                    received_pkts * 2 > sent_pkts,
                    "{received_pkts} of {sent_pkts} arrived"
                );
            }
            DemoResult::Scan {
                sent_pkts,
                stopped_pkts,
            } => {
                assert!(sent_pkts > 100, "{sent_pkts} probes");
                assert!(
                    stopped_pkts * 10 >= sent_pkts * 9,
                    "{stopped_pkts} of {sent_pkts}"
                );
            }
            DemoResult::Flood {
                sent_pkts,
                stopped_pkts,
                bytes,
            } => {
                // A loaded machine's driver loses much of a flood before the node sees it.
                assert!(
                    sent_pkts > 500 && stopped_pkts > 250,
                    "{stopped_pkts} of {sent_pkts}"
                );
                assert!(bytes > 0, "nothing was downloaded under a flood");
            }
            DemoResult::Strays { sent_pkts } => {
                assert!(sent_pkts > 0);
                assert!(
                    phase.dropped_pkts * 10 >= sent_pkts * 9,
                    "{} of {sent_pkts} strays were dropped with a reason",
                    phase.dropped_pkts
                );
            }
        }
    }
    let reason = |name: &str| report.stats.drops.iter().any(|drop| drop.reason == name);
    assert!(
        reason("no_route") && reason("ttl_exceeded"),
        "{:?}",
        report.stats.drops
    );
    assert_eq!(report.stats.ports.len(), 2);
    let firewall = report.stats.firewall.as_ref().unwrap();
    assert!(
        firewall.mappings > 0,
        "the client's connections are masqueraded"
    );
    assert!(
        firewall.opened < 500,
        "a flood makes no state: {firewall:?}"
    );
    let attacks = &firewall.guard.as_ref().unwrap().attacks;
    let of = |name: &str| attacks.iter().find(|attack| attack.threshold == name);
    let scan = of("scan_endpoints").expect("the scan is seen");
    assert_eq!(scan.sources, [std::net::IpAddr::from([10, 2, 0, 66])]);
    let flood = of("destination_connections_per_s").expect("the flood is seen");
    assert!(flood.measured > flood.limit, "{flood:?}");
}

#[test]
fn demo_as_root_moves_packets_and_leaves_nothing() {
    if !need::root("demo_as_root_moves_packets_and_leaves_nothing") {
        return;
    }
    let mark = mark("root");
    let before = links();
    let mut command = marked(tidegate(), &mark);
    let demo = finish(command.args(["demo", "--json"]));
    assert_eq!(demo.code, 0, "{}", demo.stderr);
    let report: DemoReport = serde_json::from_str(&demo.stdout).unwrap();
    judge(&report);
    assert!(!report.user_namespace);
    assert_eq!(links(), before, "a link is left");
    assert!(
        wait_until(Duration::from_secs(2), || processes_with(&mark).is_empty()),
        "processes are left: {:?}",
        processes_with(&mark)
    );
}

#[test]
fn demo_tells_people_what_it_shows() {
    if !need::root("demo_tells_people_what_it_shows") {
        return;
    }
    let demo = finish(tidegate().args(["demo", "--driver", "af-packet"]));
    assert_eq!(demo.code, 0, "{}", demo.stderr);
    for text in [
        "client 10.1.0.2",
        "af_packet",
        "first packet crossed",
        "every byte compared",
        "UDP datagrams arrived",
        "masqueraded",
        "stopped scan_endpoints 50",
        "SYNs must come twice",
        "no_route",
        "nothing is left",
    ] {
        assert!(
            demo.stdout.contains(text),
            "`{text}` is missing:\n{}",
            demo.stdout
        );
    }
    assert!(
        !demo.stdout.contains('\x1b'),
        "a pipe gets no control sequences"
    );
}

/// A copy of the program that every user may start.
fn copy_for_everybody() -> (tempfile::TempDir, PathBuf) {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::Builder::new()
        .permissions(std::fs::Permissions::from_mode(0o755))
        .tempdir()
        .unwrap();
    let program = directory.path().join("tidegate");
    std::fs::copy(env!("CARGO_BIN_EXE_tidegate"), &program).unwrap();
    (directory, program)
}

#[test]
fn demo_as_nobody_runs_in_a_user_namespace() {
    let test = "demo_as_nobody_runs_in_a_user_namespace";
    if !need::root(test) {
        return;
    }
    let (_directory, program) = copy_for_everybody();
    let mark = mark("nobody");
    let mut command = marked(Command::new(program), &mark);
    command
        .args(["demo", "--json"])
        .uid(NOBODY)
        .gid(NOBODY)
        .current_dir("/");
    let demo = finish(&mut command);
    if demo.code == 4 {
        need::need(test, "user namespaces for ordinary users", false);
        return;
    }
    assert_eq!(demo.code, 0, "{}", demo.stderr);
    let report: DemoReport = serde_json::from_str(&demo.stdout).unwrap();
    judge(&report);
    assert!(report.user_namespace);
    for port in &report.stats.ports {
        assert_eq!(port.driver, "af_packet");
        assert!(!port.refused.is_empty(), "why not AF_XDP?");
    }
    assert!(wait_until(Duration::from_secs(2), || processes_with(&mark).is_empty()));
}

#[test]
fn demo_without_user_namespaces_is_refused_with_a_remedy() {
    let test = "demo_without_user_namespaces_is_refused_with_a_remedy";
    if !need::root(test) || !need::program(test, "setpriv") || !need::program(test, "unshare") {
        return;
    }
    // a user namespace that allows no further ones, and a root in it without capabilities
    let script = format!(
        "echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all \
         --inh-caps=-all --securebits=+noroot,+noroot_locked {} demo",
        env!("CARGO_BIN_EXE_tidegate")
    );
    let demo =
        finish(Command::new("unshare").args(["--user", "--map-root-user", "sh", "-c", &script]));
    assert_eq!(demo.code, 4, "{}", demo.stderr);
    assert!(
        demo.stderr.contains("max_user_namespaces is 0"),
        "{}",
        demo.stderr
    );
    assert!(
        demo.stderr.contains("help: run it as root"),
        "{}",
        demo.stderr
    );
}

#[test]
fn demo_needs_no_programs_of_the_machine() {
    use std::os::unix::fs::PermissionsExt;
    if !need::root("demo_needs_no_programs_of_the_machine") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let none = directory.path().join("none");
    let broken = directory.path().join("broken");
    std::fs::create_dir(&broken).unwrap();
    std::fs::write(broken.join("ping"), "#!/bin/sh\nexit 2\n").unwrap();
    let runnable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(broken.join("ping"), runnable).unwrap();
    for path in [none, broken] {
        let mut command = tidegate();
        let demo = finish(
            command
                .args(["demo", "--json", "--seconds", "4"])
                .env("PATH", path),
        );
        assert_eq!(demo.code, 0, "{}", demo.stderr);
        judge(&serde_json::from_str(&demo.stdout).unwrap());
    }
}

#[test]
fn driver_that_is_refused_ends_with_4_and_a_remedy() {
    if !need::root("driver_that_is_refused_ends_with_4_and_a_remedy") {
        return;
    }
    let (_directory, program) = copy_for_everybody();
    let mut command = Command::new(program);
    command
        .args(["demo", "--driver", "af-xdp"])
        .uid(NOBODY)
        .gid(NOBODY)
        .current_dir("/");
    let demo = finish(&mut command);
    assert_eq!(demo.code, 4, "{}", demo.stderr);
    assert!(demo.stderr.contains("help: run"), "{}", demo.stderr);
}

/// Starts a demo and waits until it has shown a text.
fn start(mark: &str, text: &str) -> Child {
    let mut command = marked(tidegate(), mark);
    let mut child = command
        .args(["demo", "--seconds", "20"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert!(
        lines.any(|line| line.unwrap().contains(text)),
        "the demo ended before it said `{text}`"
    );
    child
}

#[test]
fn killed_demo_leaves_nothing_and_starts_again_at_once() {
    if !need::root("killed_demo_leaves_nothing_and_starts_again_at_once") {
        return;
    }
    let before = links();
    for round in 0..3 {
        let mark = mark(&format!("kill{round}"));
        let mut demo = start(&mark, "first packet crossed");
        // a ping or a download may run beside the two servers
        assert!(processes_with(&mark).len() >= 3, "node and servers run");
        let killed = Instant::now();
        demo.kill().unwrap();
        demo.wait().unwrap();
        assert!(
            wait_until(Duration::from_secs(2), || processes_with(&mark).is_empty()),
            "processes are left: {:?}",
            processes_with(&mark)
        );
        assert!(killed.elapsed() < Duration::from_secs(2));
        assert_eq!(links(), before, "a link is left");
    }
}

#[test]
fn terminated_demo_ends_with_its_summary() {
    if !need::root("terminated_demo_ends_with_its_summary") {
        return;
    }
    let mark = mark("term");
    // the stream is cut short by it
    let demo = start(&mark, "every byte compared");
    let pid = rustix::process::Pid::from_child(&demo);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let output = demo.wait_with_output().unwrap();
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("nothing is left"));
    assert!(wait_until(Duration::from_secs(2), || processes_with(&mark).is_empty()));
}

/// On a terminal the demo reads single keys; killed without warning, it leaves the terminal as it was.
#[test]
fn killed_demo_gives_the_terminal_back() {
    let test = "killed_demo_gives_the_terminal_back";
    if !need::root(test) || !need::program(test, "script") || !need::program(test, "stty") {
        return;
    }
    let mark = mark("terminal");
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let exe = env!("CARGO_BIN_EXE_tidegate");
    // a shell without job control, which itself restores nothing
    let line = format!(
        "stty -g >{before}; {exe} demo; sleep 1; stty -g >{after}; echo >{done}",
        before = at("before").display(),
        after = at("after").display(),
        done = at("done").display(),
    );
    let mut command = marked(Command::new("script"), &mark);
    let mut session = command
        .args(["-qec", &line, "/dev/null"])
        .env("SHELL", "/bin/sh")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut screen = session.stdout.take().unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        let mut told_once = false;
        while let Ok(read @ 1..) = std::io::Read::read(&mut screen, &mut bytes) {
            let text = String::from_utf8_lossy(&bytes[..read]);
            if text.contains("press any key") && !told_once {
                told_once = true;
                let _ = tell.send(());
            }
        }
    });
    told.recv_timeout(Duration::from_secs(20))
        .expect("the demo shows a picture");
    let is_demo = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line == format!("{exe}\0demo\0").as_bytes()
    };
    let demos: Vec<u32> = processes_with(&mark).into_iter().filter(is_demo).collect();
    assert_eq!(demos.len(), 1, "{demos:?}");
    let killed = Command::new("kill")
        .args(["-9", &demos[0].to_string()])
        .status()
        .unwrap();
    assert!(killed.success());
    assert!(wait_until(Duration::from_secs(10), || at("done").exists()));
    let settings = |name: &str| std::fs::read_to_string(at(name)).unwrap();
    assert_eq!(settings("after"), settings("before"));
    session.wait().unwrap();
    assert!(
        wait_until(Duration::from_secs(2), || processes_with(&mark).is_empty()),
        "processes are left: {:?}",
        processes_with(&mark)
    );
}

#[test]
fn named_data_crosses_the_node() {
    let test = "named_data_crosses_the_node";
    if !need::root(test) {
        return;
    }
    let run = finish(tidegate().args(["--json", "demo", "--ndn", "--seconds", "4"]));
    assert_eq!(run.code, 0, "{}", run.stderr);
    let shown: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert!(
        shown["ndn"]["store"]["hits"].as_u64().unwrap() > 0,
        "{shown}"
    );
    assert!(shown["forwarded"]["data"].as_u64().unwrap() > 0, "{shown}");
    assert!(shown["cached"]["data"].as_u64().unwrap() > 0, "{shown}");
}
