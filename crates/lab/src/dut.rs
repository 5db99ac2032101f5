//! Our own node as a device under test: a process of the real command, with a configuration of its own.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::netns::Namespace;
use crate::sys;
use crate::topology::Line;

/// How the node takes packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeDriver {
    /// AF_XDP.
    #[default]
    AfXdp,
    /// AF_PACKET.
    AfPacket,
}

impl NodeDriver {
    /// Returns the name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AfXdp => "af_xdp",
            Self::AfPacket => "af_packet",
        }
    }
}

/// What the node does with frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeRole {
    /// Routes IPv4 between the two networks of the line.
    #[default]
    Router,
    /// Bridges the two ports.
    Bridge,
}

/// How to run the node.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// The `tidegate` program.
    pub program: PathBuf,
    /// How it takes packets.
    pub driver: NodeDriver,
    /// What it does with them.
    pub role: NodeRole,
    /// CPUs of its workers.
    pub cpus: Vec<usize>,
    /// Idle mode as in the configuration: `hybrid`, `poll`, `interrupt`, `paper`.
    pub idle_mode: String,
    /// More configuration, behind what the line gives: neighbours, a firewall.
    pub more: String,
}

/// Why the node does not run.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// A file or the process could not be made.
    #[error("cannot {what} {path}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// With what.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// It ended or did not open its control socket in time; what it wrote.
    #[error("the node did not start: {0}")]
    NotStarted(String),
}

/// A running node; it is ended in order when it is dropped.
#[derive(Debug)]
pub struct NodeProcess {
    child: Child,
    directory: PathBuf,
}

impl NodeProcess {
    /// Starts the node between the two sides of a line and waits until it is ready.
    ///
    /// # Errors
    /// The program is missing, refuses its configuration, or is not ready in ten seconds.
    pub fn start(line: &Line, options: &NodeOptions) -> Result<Self, NodeError> {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("tidegate-lab-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory)
            .map_err(|source| failed("make the directory", &directory, source))?;
        let config = directory.join("node.toml");
        std::fs::write(&config, configuration(line, options, &socket(&directory)))
            .map_err(|source| failed("write", &config, source))?;
        Self::spawn(&line.node, options, directory)
    }

    /// Starts the node again with the configuration of an earlier one that was killed.
    ///
    /// # Errors
    /// As [`NodeProcess::start`].
    pub fn restart(
        namespace: &Namespace,
        options: &NodeOptions,
        mut killed: KilledNode,
    ) -> Result<Self, NodeError> {
        Self::spawn(namespace, options, std::mem::take(&mut killed.0))
    }

    fn spawn(
        namespace: &Namespace,
        options: &NodeOptions,
        directory: PathBuf,
    ) -> Result<Self, NodeError> {
        let log_path = directory.join("log");
        let log = std::fs::File::create(&log_path)
            .map_err(|source| failed("write", &log_path, source))?;
        let child = namespace
            .command(&options.program)
            .arg("run")
            .arg("-c")
            .arg(directory.join("node.toml"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(|source| failed("start", &options.program, source))?;
        let mut node = Self { child, directory };
        let end = Instant::now() + Duration::from_secs(10);
        while !node.ready() {
            let ended = node.child.try_wait().is_ok_and(|status| status.is_some());
            if ended || Instant::now() > end {
                return Err(NodeError::NotStarted(node.log()));
            }
            std::thread::sleep(Duration::from_micros(500));
        }
        Ok(node)
    }

    /// Tells whether the control socket answers: the ports are open by then.
    fn ready(&self) -> bool {
        std::os::unix::net::UnixStream::connect(socket(&self.directory)).is_ok()
    }

    /// Returns the path of the node's control socket.
    pub fn control_socket(&self) -> PathBuf {
        socket(&self.directory)
    }

    /// Returns the process's id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns what the node wrote to its log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    /// Kills the node without warning (`SIGKILL`); its files stay as they are.
    ///
    /// # Errors
    /// It had ended before.
    pub fn kill(mut self) -> std::io::Result<KilledNode> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(KilledNode(std::mem::take(&mut self.directory)))
    }
}

/// What a killed node left: the directory with its configuration, for a restart; removed when dropped.
#[derive(Debug)]
pub struct KilledNode(PathBuf);

impl Drop for KilledNode {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        if let Ok(Some(_)) = self.child.try_wait() {
            // Its id may be another process's by now.
            remove(&self.directory);
            return;
        }
        let _ = sys::terminate(self.child.id());
        let end = Instant::now() + Duration::from_secs(3);
        while Instant::now() < end {
            if let Ok(Some(_)) = self.child.try_wait() {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        remove(&self.directory);
    }
}

/// Removes a node's directory, unless another owner has taken it.
fn remove(directory: &Path) {
    if !directory.as_os_str().is_empty() {
        let _ = std::fs::remove_dir_all(directory);
    }
}

fn failed(what: &'static str, path: &Path, source: std::io::Error) -> NodeError {
    NodeError::Io {
        what,
        path: path.to_owned(),
        source,
    }
}

fn socket(directory: &Path) -> PathBuf {
    directory.join("control.sock")
}

/// Writes the node's configuration.
fn configuration(line: &Line, options: &NodeOptions, socket: &Path) -> String {
    let cpus: Vec<String> = options.cpus.iter().map(usize::to_string).collect();
    let mut text = format!(
        "[node]\nname = \"dut\"\ncpus = [{}]\ncontrol_socket = \"{}\"\n\n[idle]\nmode = \"{}\"\n",
        cpus.join(", "),
        socket.display(),
        options.idle_mode
    );
    for (name, side) in [("left", &line.left), ("right", &line.right)] {
        let _ = write!(
            text,
            "\n[[port]]\nname = \"{name}\"\ndriver = \"{}\"\ninterface = \"{}\"\n",
            options.driver.name(),
            side.node_device
        );
        if options.role == NodeRole::Router {
            let _ = writeln!(text, "addresses = [\"{}/24\"]", side.node_address());
        }
    }
    match options.role {
        NodeRole::Router => {
            for (name, side) in [("left", &line.left), ("right", &line.right)] {
                let mac = side.mac.map(|byte| format!("{byte:02x}")).join(":");
                let _ = write!(
                    text,
                    "\n[[neighbour]]\naddress = \"{}\"\nmac = \"{mac}\"\nport = \"{name}\"\n",
                    side.address()
                );
            }
        }
        NodeRole::Bridge => {
            text.push_str("\n[[bridge]]\nname = \"bridge\"\nports = [\"left\", \"right\"]\n");
        }
    }
    text.push('\n');
    text.push_str(&options.more);
    text
}
