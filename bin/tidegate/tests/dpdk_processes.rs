//! Nodes that share DPDK: one is the primary process, another its guest; either is killed, and the other goes on.
#![cfg(feature = "dpdk")]

mod common;

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use common::{Run, finish, tidegate, wait_until};
use control::api::Stats;
use lab::vdev::SharedMemory;
use rustix::process::{Pid, Signal, kill_process};

const PATIENCE: Duration = Duration::from_secs(30);

/// Nodes of one group: what one device makes up, another sends around.
struct Group {
    name: String,
    directory: tempfile::TempDir,
}

impl Group {
    fn new() -> Self {
        Self {
            name: format!("tidegate-nodes-{}", std::process::id()),
            directory: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self, node: &str, extension: &str) -> PathBuf {
        self.directory.path().join(format!("{node}.{extension}"))
    }

    /// Writes the configuration of a node; `place` is its line in the table `[dpdk]`.
    fn configure(&self, node: &str, place: &str) -> PathBuf {
        let text = format!(
            "[node]\nname = \"{node}\"\nframes_per_worker = 4096\ncontrol_socket = \"{}\"\n\
             [dpdk]\ngroup = \"{}\"\n{place}\n\
             [[port]]\nname = \"source\"\ndriver = \"dpdk\"\ndevice = \"net_null_source,size=64\"\n\
             [[port]]\nname = \"circle\"\ndriver = \"dpdk\"\ndevice = \"net_ring_circle\"\n\
             [[link]]\nname = \"wire\"\nports = [\"source\", \"circle\"]\nrate_bps = 10000000\n",
            self.path(node, "sock").display(),
            self.name,
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
        let child = tidegate()
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

    /// Packets that have come around.
    fn rounds(&self) -> u64 {
        let stats = self.stats();
        let port = stats.ports.iter().find(|port| port.name == "circle");
        port.unwrap().counters.rx_pkts
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
    let group = Group::new();
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
