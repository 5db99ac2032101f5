//! A node in the foreground, between two namespaces: signals, systemd, the control socket, restart.

mod common;

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use common::{finish, run, wait_until};
use control::api::{
    BridgeInfo, CheckStatus, DoctorReport, NeighbourInfo, PortInfo, Reply, RouteInfo, RouteKind,
    Stats,
};
use lab::{Line, LineOptions, need};
use rustix::process::{Pid, Signal, kill_process};
use serde::de::DeserializeOwned;

const PATIENCE: Duration = Duration::from_secs(20);

/// A node between two namespaces, and all that it says.
struct Node {
    // killed first
    child: Child,
    log: mpsc::Receiver<String>,
    notifications: UnixDatagram,
    /// Until somebody takes it over.
    lab: Option<Lab>,
}

/// What a node needs, and what outlives it.
struct Lab {
    line: Line,
    directory: tempfile::TempDir,
}

impl Lab {
    fn new() -> Self {
        let lab = Self {
            line: Line::new("tgc", LineOptions::default()).unwrap(),
            directory: tempfile::tempdir().unwrap(),
        };
        for side in [&lab.line.left, &lab.line.right] {
            // no frames but those that a test sends
            side.namespace.disable_ipv6().unwrap();
        }
        lab.configure("");
        lab
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("control.sock")
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("node.toml")
    }

    fn configure(&self, more: &str) {
        let text = format!(
            "[node]\nname = \"test\"\nframes_per_worker = 2048\ncontrol_socket = \"{}\"\n\
             [[port]]\nname = \"left\"\ninterface = \"{}\"\naddresses = [\"{}/24\"]\n\
             [[port]]\nname = \"right\"\ninterface = \"{}\"\naddresses = [\"{}/24\"]\n{more}",
            self.socket().display(),
            self.line.left.node_device,
            self.line.left.node_address(),
            self.line.right.node_device,
            self.line.right.node_address(),
        );
        std::fs::write(self.file(), text).unwrap();
    }

    /// Pings from left to right; returns the answers.
    fn ping(&self, count: u32) -> usize {
        let mut ping = self
            .line
            .left
            .namespace
            .command(env!("CARGO_BIN_EXE_tidegate"));
        self.line
            .left
            .namespace
            .set_sysctl("net/ipv4/ping_group_range", "0 0")
            .unwrap();
        ping.args([
            "demo-program",
            "ping",
            &self.line.right.address().to_string(),
        ]);
        ping.args(["--interval-ms", "50", "--count", &count.to_string()]);
        finish(&mut ping).stdout.matches("echo").count()
    }
}

impl Node {
    fn start(lab: Lab) -> Self {
        let notify = lab.directory.path().join("notify");
        let _ = std::fs::remove_file(&notify);
        let notifications = UnixDatagram::bind(&notify).unwrap();
        notifications.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut command = lab.line.node.command(env!("CARGO_BIN_EXE_tidegate"));
        command.arg("run").arg("-c").arg(lab.file());
        command
            .env("NOTIFY_SOCKET", &notify)
            .env("WATCHDOG_USEC", "1000000")
            .env_remove("TIDEGATE_LOG");
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let stderr = child.stderr.take().unwrap();
        let (sender, log) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let node = Self {
            child,
            log,
            notifications,
            lab: Some(lab),
        };
        node.wait_for_notification("READY=1");
        node
    }

    fn lab(&self) -> &Lab {
        self.lab.as_ref().expect("nobody has taken the lab")
    }

    /// Reads what systemd is told until a datagram contains `wanted`; returns that datagram.
    fn wait_for_notification(&self, wanted: &str) -> String {
        let mut buffer = [0; 4096];
        loop {
            let length = self
                .notifications
                .recv(&mut buffer)
                .unwrap_or_else(|error| {
                    let log: Vec<_> = self.log.try_iter().collect();
                    panic!("{wanted} did not come: {error}; the log: {log:#?}");
                });
            let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
            if text.contains(wanted) {
                return text;
            }
        }
    }

    fn wait_for_log(&self, wanted: &str) -> String {
        let end = Instant::now() + PATIENCE;
        let mut seen = Vec::new();
        while let Ok(line) = self
            .log
            .recv_timeout(end.saturating_duration_since(Instant::now()))
        {
            if line.contains(wanted) {
                return line;
            }
            seen.push(line);
        }
        panic!("`{wanted}` is not in the log: {seen:#?}");
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Asks the node by the command and reads the JSON answer.
    fn ask<T: DeserializeOwned>(&self, command: &[&str]) -> T {
        let socket = self.lab().socket();
        let arguments = [command, &["--json", "--socket", socket.to_str().unwrap()]].concat();
        let answer = run(&arguments);
        assert_eq!(answer.code, 0, "{command:?}: {}", answer.stderr);
        serde_json::from_str(&answer.stdout)
            .unwrap_or_else(|error| panic!("{command:?}: {error}: {}", answer.stdout))
    }

    /// Asks the node by the command and reads the text for people.
    fn read(&self, command: &[&str]) -> String {
        let socket = self.lab().socket();
        let answer = run(&[command, &["--socket", socket.to_str().unwrap()]].concat());
        assert_eq!(answer.code, 0, "{command:?}: {}", answer.stderr);
        answer.stdout
    }

    /// Ends the node by a signal and looks at what is left.
    fn stop(mut self, signal: Signal) -> Lab {
        self.signal(signal);
        self.wait_for_notification("STOPPING=1");
        let begun = Instant::now();
        let ended = wait_until(PATIENCE, || self.child.try_wait().unwrap().is_some());
        assert!(ended, "the node does not end");
        assert!(self.child.wait().unwrap().success());
        assert!(
            begun.elapsed() < Duration::from_secs(5),
            "stopping took {:?}",
            begun.elapsed()
        );
        assert!(!self.lab().socket().exists(), "the socket is left");
        self.assert_detached();
        self.lab.take().expect("nobody has taken the lab")
    }

    /// No XDP program is left on the node's interfaces.
    fn assert_detached(&self) {
        let line = &self.lab().line;
        for device in [&line.left.node_device, &line.right.node_device] {
            let index = line.node.links().unwrap().get(device).unwrap().index;
            let program = line
                .node
                .run(|| io::af_xdp::attached_xdp(index))
                .unwrap()
                .unwrap();
            assert_eq!(program, None, "{device}");
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn node_answers_every_command() {
    if !need::root("node_answers_every_command") {
        return;
    }
    let node = Node::start(Lab::new());
    assert!(node.lab().ping(3) >= 2, "the node forwards");

    let stats: Stats = node.ask(&["stats"]);
    assert_eq!(stats.node.name, "test");
    assert_eq!(stats.ports.len(), 2);
    assert!(
        stats.ports.iter().all(|port| port.counters.rx_pkts >= 2),
        "{:?}",
        stats.ports
    );
    assert!(!stats.workers.is_empty());
    let later: Stats = node.ask(&["stats"]);
    assert!(
        later.node.uptime_ns > stats.node.uptime_ns,
        "the clock of the counters runs"
    );

    let ports: Vec<PortInfo> = node.ask(&["port", "ls"]);
    assert_eq!(ports[0].addresses, ["10.1.0.1/24"]);
    let routes: Vec<RouteInfo> = node.ask(&["route", "ls"]);
    assert!(
        routes
            .iter()
            .any(|route| route.to == "10.2.0.0/24" && route.kind == RouteKind::Connected)
    );
    let neighbours: Vec<NeighbourInfo> = node.ask(&["neighbour", "ls"]);
    assert!(
        neighbours
            .iter()
            .any(|n| n.address == "10.2.0.2" && n.mac.is_some()),
        "{neighbours:?}"
    );
    let bridges: Vec<BridgeInfo> = node.ask(&["bridge", "ls"]);
    assert_eq!(bridges, []);

    assert!(node.read(&["stats"]).contains("left"));
    assert!(node.read(&["port", "ls"]).contains("10.1.0.1/24"));
    assert!(node.read(&["route", "ls"]).contains("connected"));
    assert!(node.read(&["neighbour", "ls"]).contains("10.2.0.2"));
    let top = node.read(&["top", "-i", "0.1", "-n", "2"]);
    assert!(top.contains("wake-ups/s") && !top.contains('\x1b'), "{top}");
    let socket = node.lab().socket();
    let watched = run(&[
        "top",
        "--json",
        "-i",
        "0.1",
        "-n",
        "3",
        "--socket",
        socket.to_str().unwrap(),
    ]);
    let readings: Vec<Stats> = watched
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(readings.len(), 3, "JSON lines");
    node.stop(Signal::TERM);
}

#[test]
fn signals_reload_dump_and_end() {
    if !need::root("signals_reload_dump_and_end") {
        return;
    }
    let node = Node::start(Lab::new());
    let line = node.wait_for_log("port open");
    assert!(
        line.contains("driver=af_xdp") || line.contains("driver=af_packet"),
        "{line}"
    );
    node.wait_for_notification("WATCHDOG=1");
    node.lab()
        .configure("[[route]]\nto = \"198.51.100.0/24\"\nvia = \"10.2.0.2\"\n");
    node.signal(Signal::HUP);
    let told = node.wait_for_notification("RELOADING=1");
    assert!(told.contains("MONOTONIC_USEC="), "{told}");
    node.wait_for_notification("READY=1");
    let has_route = |node: &Node| {
        let routes: Vec<RouteInfo> = node.ask(&["route", "ls"]);
        routes.iter().any(|route| route.to == "198.51.100.0/24")
    };
    assert!(has_route(&node), "the new route is in force");

    node.lab().configure("[[route]]\nto = \"nowhere\"\n");
    node.signal(Signal::HUP);
    node.wait_for_notification("READY=1");
    let line = node.wait_for_log("not reloaded");
    assert!(line.contains("nowhere"), "{line}");
    assert!(has_route(&node), "the old configuration stays in force");

    node.lab().configure("");
    let reply: Reply = node.ask(&["reload"]);
    assert!(matches!(reply, Reply::Reloaded { .. }), "{reply:?}");
    assert!(!has_route(&node), "the route is gone");

    node.signal(Signal::USR1);
    let line = node.wait_for_log("wakeups_packet=");
    assert!(line.contains("worker=0"), "logfmt: {line}");
    node.stop(Signal::INT);
}

#[test]
fn capture_is_pcapng_of_what_crosses() {
    let test = "capture_is_pcapng_of_what_crosses";
    if !need::root(test) {
        return;
    }
    let node = Node::start(Lab::new());
    assert!(node.lab().ping(2) >= 1);
    let path = node.lab().directory.path().join("trace.pcapng");
    let mut capture = common::tidegate()
        .args(["capture", "--at", "rx,tx", "-c", "8", "--socket"])
        .arg(node.lab().socket())
        .arg("-w")
        .arg(&path)
        // Neither ARP nor what IPv6 hosts say unasked.
        .args(["icmp and", "net", "10.0.0.0/8", "and not port 7"])
        .spawn()
        .unwrap();
    assert!(wait_until(PATIENCE, || path.exists()));
    let ended = wait_until(PATIENCE, || {
        node.lab().ping(2);
        capture.try_wait().unwrap().is_some()
    });
    assert!(ended, "the capture ends after its packets");
    assert!(capture.wait().unwrap().success());
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!(
        bytes[..4],
        [0x0a, 0x0d, 0x0d, 0x0a],
        "a section header block"
    );
    if need::program(test, "tcpdump") {
        let read = finish(Command::new("tcpdump").args(["-n", "-r"]).arg(&path));
        assert_eq!(
            read.stdout.matches("ICMP echo").count(),
            8,
            "{}{}",
            read.stdout,
            read.stderr
        );
    }
    node.stop(Signal::TERM);
}

#[test]
fn capture_of_drops_tells_the_reason() {
    if !need::root("capture_of_drops_tells_the_reason") {
        return;
    }
    let node = Node::start(Lab::new());
    assert!(node.lab().ping(2) >= 1);
    let path = node.lab().directory.path().join("drops.pcapng");
    let mut capture = common::tidegate()
        .args(["capture", "--at", "drop", "-c", "1", "--socket"])
        .arg(node.lab().socket())
        .arg("-w")
        .arg(&path)
        .spawn()
        .unwrap();
    assert!(wait_until(PATIENCE, || path.exists()));
    let left = &node.lab().line.left;
    let mut links = left.namespace.links().unwrap();
    links
        .add_route("203.0.113.0".parse().unwrap(), 24, left.node_address())
        .unwrap();
    let ended = wait_until(PATIENCE, || {
        let mut stray = left.namespace.command(env!("CARGO_BIN_EXE_tidegate"));
        stray.args([
            "demo-program",
            "udp-source",
            "203.0.113.7:9",
            "--rate",
            "50",
            "--ms",
            "100",
        ]);
        finish(&mut stray);
        capture.try_wait().unwrap().is_some()
    });
    assert!(ended, "the capture ends after its packet");
    let bytes = std::fs::read(&path).unwrap();
    let text = String::from_utf8_lossy(&bytes);
    assert!(
        text.contains("no_route"),
        "the reason is a comment of the packet"
    );

    let socket = node.lab().socket();
    let wrong = run(&[
        "capture",
        "--socket",
        node.lab().socket().to_str().unwrap(),
        "host nobody",
    ]);
    assert_eq!(wrong.code, 2, "{}", wrong.stderr);
    assert!(
        wrong.stderr.contains("`nobody` is not an address") && wrong.stderr.contains("column 6"),
        "{}",
        wrong.stderr
    );
    let absent = run(&[
        "capture",
        "--at",
        "absent-stage",
        "--socket",
        socket.to_str().unwrap(),
    ]);
    assert_eq!(absent.code, 5, "{}", absent.stderr);
    assert!(
        absent.stderr.contains("help: write one of: "),
        "{}",
        absent.stderr
    );
    node.stop(Signal::TERM);
}

#[test]
fn doctor_sees_who_holds_an_interface() {
    if !need::root("doctor_sees_who_holds_an_interface") {
        return;
    }
    let node = Node::start(Lab::new());
    let stats: Stats = node.ask(&["stats"]);
    let line = &node.lab().line;
    let doctor = |device: &str| -> (i32, DoctorReport) {
        let mut command = line.node.command(env!("CARGO_BIN_EXE_tidegate"));
        let doctor = finish(command.args(["doctor", "--json", device]));
        let report = serde_json::from_str(&doctor.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}{}", doctor.stdout, doctor.stderr));
        (doctor.code, report)
    };
    let status = |report: &DoctorReport, name: &str| {
        let checks = &report.interfaces[0].checks;
        checks
            .iter()
            .find(|check| check.name == name)
            .map(|check| check.status)
    };
    if need::need(
        "doctor_sees_who_holds_an_interface",
        "AF_XDP on veth",
        stats.ports[0].driver == "af_xdp",
    ) {
        let (code, report) = doctor(&line.left.node_device);
        assert_eq!(code, 1);
        assert_eq!(status(&report, "xdp_program"), Some(CheckStatus::Failed));
        let checks = &report.interfaces[0].checks;
        let held = checks.iter().find(|check| check.name == "xdp_program");
        let pid = format!("held by process {} (tidegate)", node.child.id());
        let text = format!("{held:?}");
        assert!(text.contains(&pid), "no {pid:?} in {text}");
        assert!(
            report.interfaces[0]
                .probes
                .iter()
                .any(|probe| !probe.accepted)
        );
    }
    let lab = node.stop(Signal::TERM);
    let device = &lab.line.left.node_device;
    let mut command = lab.line.node.command(env!("CARGO_BIN_EXE_tidegate"));
    let free = finish(command.args(["doctor", "--json", device]));
    let report: DoctorReport = serde_json::from_str(&free.stdout).unwrap();
    assert_eq!(status(&report, "xdp_program"), Some(CheckStatus::Ok));
    assert_eq!(
        report.interfaces[0].chosen.as_deref(),
        Some("af_xdp native copy")
    );
}

#[test]
fn killed_node_starts_again_at_once() {
    if !need::root("killed_node_starts_again_at_once") {
        return;
    }
    let mut lab = Lab::new();
    for _ in 0..3 {
        let mut node = Node::start(lab);
        assert!(node.lab().ping(2) >= 1, "the node forwards");
        node.child.kill().unwrap();
        node.child.wait().unwrap();
        assert!(
            node.lab().socket().exists(),
            "killed, it could not remove its socket"
        );
        node.assert_detached();
        let killed = Instant::now();
        let again = Node::start(node.lab.take().expect("nobody has taken the lab"));
        println!(
            "ready again {} ms after kill -9",
            killed.elapsed().as_millis()
        );
        assert!(again.lab().ping(2) >= 1, "the node forwards again");
        lab = again.stop(Signal::TERM);
    }
}

#[test]
fn second_node_on_one_socket_is_refused() {
    if !need::root("second_node_on_one_socket_is_refused") {
        return;
    }
    let node = Node::start(Lab::new());
    let other = Lab::new();
    let text = std::fs::read_to_string(other.file()).unwrap();
    let here = other.socket().display().to_string();
    let text = text.replace(&here, &node.lab().socket().display().to_string());
    std::fs::write(other.file(), text).unwrap();
    let mut second = other.line.node.command(env!("CARGO_BIN_EXE_tidegate"));
    let refused = finish(second.arg("run").arg("-c").arg(other.file()));
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.contains("answers on"), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("help: stop it"),
        "{}",
        refused.stderr
    );
    node.stop(Signal::TERM);
}
