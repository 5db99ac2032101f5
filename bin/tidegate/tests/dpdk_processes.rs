//! Nodes that share DPDK: one is the primary process, another its guest; either is killed, and the other goes on.
#![cfg(feature = "dpdk")]

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use common::{Run, finish, tidegate, wait_until};
use control::api::Stats;
use lab::vdev::{SharedMemory, Vdev, Vdevs};
use lab::{Line, LineOptions, Side};
use rustix::process::{Pid, Signal, kill_process};

const PATIENCE: Duration = Duration::from_secs(30);

/// What one device makes up, another sends around.
const CIRCLE: &str = r#"
[[port]]
name = "source"
driver = "dpdk"
device = "net_null_source,size=64"
[[port]]
name = "circle"
driver = "dpdk"
device = "net_ring_circle"
[[link]]
name = "wire"
ports = ["source", "circle"]
rate_bps = 10000000
"#;

/// Nodes of one group.
struct Group {
    name: String,
    directory: tempfile::TempDir,
    /// Their ports and what joins these.
    text: String,
    /// The namespaces, if they are between two kernels.
    line: Option<Line>,
}

impl Group {
    fn new(text: String, line: Option<Line>) -> Self {
        let kind = if line.is_some() { "line" } else { "circle" };
        Self {
            name: format!("tidegate-{kind}-{}", std::process::id()),
            directory: tempfile::tempdir().unwrap(),
            text,
            line,
        }
    }

    fn path(&self, node: &str, extension: &str) -> PathBuf {
        self.directory.path().join(format!("{node}.{extension}"))
    }

    /// Writes the configuration of a node; `place` is its line in the table `[dpdk]`.
    fn configure(&self, node: &str, place: &str) -> PathBuf {
        let text = format!(
            "[node]\nname = \"{node}\"\nframes_per_worker = 4096\nframe_bytes = 4096\ncontrol_socket = \"{}\"\n\
             [dpdk]\ngroup = \"{}\"\n{place}\n{}",
            self.path(node, "sock").display(),
            self.name,
            self.text,
        );
        let file = self.path(node, "toml");
        std::fs::write(&file, text).unwrap();
        file
    }

    /// Starts a node; the answer is what it wrote if it ended.
    fn start(&self, node: &str, place: &str) -> Result<Node, String> {
        let file = self.configure(node, place);
        let log = self.path(node, "log");
        let socket = self.path(node, "sock");
        let _ = std::fs::remove_file(&socket);
        let mut command = match &self.line {
            Some(line) => line.node.command(env!("CARGO_BIN_EXE_tidegate")),
            None => tidegate(),
        };
        let child = command
            .args(["run", "-c"])
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut node = Node { child, socket };
        let mut ended = false;
        let answers = || {
            ended = node.child.try_wait().unwrap().is_some();
            ended || ask(&node.socket, &["stats"]).code == 0
        };
        assert!(wait_until(PATIENCE, answers), "it neither starts nor ends");
        match ended {
            true => Err(std::fs::read_to_string(&log).unwrap()),
            false => Ok(node),
        }
    }

    fn primary(&self) -> Node {
        let started = self.start("primary", "guests = 1");
        started.unwrap_or_else(|log| panic!("{log}"))
    }

    /// Starts a guest; again if the primary's ports did not run yet.
    fn guest(&self) -> Node {
        let mut started = None;
        let mut log = String::new();
        let joined = || match self.start("guest", "guest = 0") {
            Ok(node) => {
                started = Some(node);
                true
            }
            Err(said) => {
                assert!(said.contains("start this one again"), "{said}");
                log = said;
                false
            }
        };
        assert!(wait_until(PATIENCE, joined), "{log}");
        started.unwrap()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(format!("/var/run/dpdk/{}", self.name));
    }
}

fn ask(socket: &Path, words: &[&str]) -> Run {
    let mut command = tidegate();
    finish(command.args(words).arg("--socket").arg(socket))
}

struct Node {
    child: Child,
    socket: PathBuf,
}

impl Node {
    fn stats(&self) -> Stats {
        let run = ask(&self.socket, &["stats", "--json"]);
        assert_eq!(run.code, 0, "{}", run.stderr);
        serde_json::from_str(&run.stdout).unwrap()
    }

    fn connections(&self) -> u64 {
        self.stats().firewall.unwrap().connections
    }

    /// Packets that the last port has received.
    fn rounds(&self) -> u64 {
        let stats = self.stats();
        stats.ports.last().unwrap().counters.rx_pkts
    }

    /// Waits until more packets have come around.
    fn forwards(&self) {
        let before = self.rounds();
        let more = || self.rounds() > before + 100;
        assert!(wait_until(PATIENCE, more), "it forwards no more");
    }

    fn end(mut self) {
        let pid = Pid::from_raw(self.child.id() as i32).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        let mut code = None;
        assert!(wait_until(PATIENCE, || {
            code = self.child.try_wait().unwrap().map(|status| status.code());
            code.is_some()
        }));
        assert_eq!(code, Some(Some(0)), "it drains and ends in order");
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn either_node_is_killed_and_the_other_goes_on() {
    let Some(_memory) = SharedMemory::get("either_node_is_killed_and_the_other_goes_on", 96) else {
        return;
    };
    let group = Group::new(CIRCLE.into(), None);
    let early = group.start("guest", "guest = 0").err().unwrap();
    assert!(early.contains("cannot share DPDK"), "{early}");
    let primary = group.primary();
    primary.forwards();

    // A guest joins, with queues of its own; there is one place.
    let guest = group.guest();
    guest.forwards();
    primary.forwards();
    let stats = guest.stats();
    assert!(
        stats
            .ports
            .iter()
            .all(|port| port.mode.contains("of another process"))
    );
    let second = group.start("second", "guest = 0").err().unwrap();
    assert!(second.contains("another process is guest 0"), "{second}");
    let third = group.start("third", "guest = 1").err().unwrap();
    assert!(third.contains("takes 1 guests"), "{third}");

    // The guest is killed, another takes its place, and that one ends in order.
    guest.kill();
    primary.forwards();
    let guest = group.guest();
    guest.forwards();
    guest.end();
    let log = std::fs::read_to_string(group.path("guest", "log")).unwrap();
    assert!(!log.contains("frames are missing"), "{log}");
    let guest = group.guest();
    guest.forwards();

    // The primary is killed: its guest goes on. A new primary waits until it has ended.
    primary.kill();
    guest.forwards();
    let refused = group.start("primary", "guests = 1").err().unwrap();
    assert!(refused.contains("end them first"), "{refused}");
    guest.end();
    let primary = group.primary();
    primary.forwards();
    primary.end();
}

const CONNECTIONS: usize = 24;

/// A gateway between the sides of a line over net_tap; the connections are common to all nodes of the group.
fn gateway(line: &Line, vdevs: &Vdevs) -> String {
    let port = |name: &str, side: &Side| {
        let mac = side.mac.map(|byte| format!("{byte:02x}")).join(":");
        format!(
            "[[port]]\nname = \"{name}\"\ndriver = \"dpdk\"\ndevice = \"{}\"\naddresses = [\"{}/24\"]\n\
             [[neighbour]]\naddress = \"{}\"\nmac = \"{mac}\"\nport = \"{name}\"\n",
            vdevs.device(side),
            side.node_address(),
            side.address(),
        )
    };
    format!(
        "{}{}[firewall]\ninside = \"left\"\nconnections = 4096\nstate = \"dpdk\"\n",
        port("left", &line.left),
        port("right", &line.right)
    )
}

/// Sends back what comes, on every connection.
fn echo(listener: TcpListener) {
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let mut buffer = [0; 64];
                while let Ok(len @ 1..) = stream.read(&mut buffer) {
                    if stream.write_all(&buffer[..len]).is_err() {
                        return;
                    }
                }
            });
        }
    });
}

/// Lets a line of text go to and fro; tells whether it came back in time.
fn answers(number: usize, client: &mut TcpStream) -> bool {
    let text = format!("line {number:02}");
    client.write_all(text.as_bytes()).unwrap();
    let mut answer = [0; 7];
    client.read_exact(&mut answer).is_ok() && answer == text.as_bytes()
}

fn all_answer(when: &str, clients: &mut [TcpStream]) {
    for (number, client) in clients.iter_mut().enumerate() {
        assert!(answers(number, client), "{when}, connection {number}");
    }
}

#[test]
fn connections_are_common_and_outlive_either_node() {
    let test = "connections_are_common_and_outlive_either_node";
    let Some(_memory) = SharedMemory::get(test, 128) else {
        return;
    };
    let line = Line::new("tgdp", LineOptions::default()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let mut vdevs = Vdevs::new(Vdev::Tap, directory.path());
    let text = gateway(&line, &vdevs);
    let group = Group::new(text, Some(line));
    let line = group.line.as_ref().unwrap();
    let primary = group.primary();
    vdevs.connect(line, |_, _| {}).unwrap();
    let guest = group.guest();
    let listener = line
        .right
        .namespace
        .run(|| TcpListener::bind("0.0.0.0:4000"));
    echo(listener.unwrap().unwrap());

    // The kernel spreads connections over the queues of both nodes, and each knows all of them.
    let address = SocketAddr::new(line.right.address(), 4000);
    let connect = || TcpStream::connect_timeout(&address, PATIENCE);
    let mut clients: Vec<TcpStream> = (0..CONNECTIONS)
        .map(|_| line.left.namespace.run(connect).unwrap().unwrap())
        .collect();
    for client in &clients {
        client.set_read_timeout(Some(PATIENCE)).unwrap();
    }
    all_answer("with both", &mut clients);
    let opened = |node: &Node| node.stats().firewall.unwrap().opened;
    let (here, there) = (opened(&primary), opened(&guest));
    assert!(
        here > 0 && there > 0,
        "the primary opened {here}, the guest {there}"
    );
    assert_eq!(here + there, CONNECTIONS as u64);
    for node in [&primary, &guest] {
        assert_eq!(node.connections(), CONNECTIONS as u64);
    }

    // The guest is killed: the next one goes on with what passed through it.
    guest.kill();
    let guest = group.guest();
    assert_eq!(opened(&guest), 0);
    assert_eq!(guest.connections(), CONNECTIONS as u64);
    all_answer("with the next guest", &mut clients);

    // The primary is killed: nobody empties its queues, which the guest keeps open, but what comes by the guest's
    // own goes on.
    primary.kill();
    for client in &clients {
        let brief = Some(Duration::from_millis(300));
        client.set_read_timeout(brief).unwrap();
    }
    let go_on = |(number, client): (usize, &mut TcpStream)| answers(number, client);
    assert!(clients.iter_mut().enumerate().any(go_on));
    assert_eq!(guest.connections(), CONNECTIONS as u64);
    assert_eq!(opened(&guest), 0, "no connection was opened anew");
    guest.end();
}
