//! A gateway with a file of nft rules between two kernels, whatever driver it has.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::common::{finish, wait_until};
use control::api::Stats;
use control::socket::Client;
use lab::netns::Namespace;
use lab::vdev::{Vdev, Vdevs};
use lab::{Line, LineOptions, Side, need};
use rustix::process::{Pid, Signal, kill_process};

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Gateway {
    child: Child,
    /// Devices of DPDK, if the ports are not kernel interfaces.
    vdevs: Option<Vdevs>,
    pub(crate) line: Line,
    directory: tempfile::TempDir,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Connections to these ports may be opened from the left side, and leave as the gateway's.
pub(crate) fn rules(ports: &str) -> String {
    format!(
        "table inet filter {{
            chain forward {{
                type filter hook forward priority filter; policy drop;
                ct state vmap {{ established : accept, related : accept, invalid : drop }}
                iifname left tcp dport {{ {ports} }} counter accept
                log prefix \"refused: \" level warn
            }}
        }}
        table ip nat {{
            chain postrouting {{
                type nat hook postrouting priority srcnat;
                oifname right masquerade
            }}
        }}"
    )
}

impl Gateway {
    /// Starts a gateway that lets connections to `ports` pass, over kernel interfaces or devices of DPDK.
    pub(crate) fn start(ports: &str, kind: Option<Vdev>) -> Self {
        Self::with_guard(ports, kind, "")
    }

    /// As [`Gateway::start`]; `guard` is what stands below `[firewall]`.
    pub(crate) fn with_guard(ports: &str, kind: Option<Vdev>, guard: &str) -> Self {
        Self::with_rules(&rules(ports), kind, guard)
    }

    /// Starts a gateway with a text of rules.
    pub(crate) fn with_rules(rules: &str, kind: Option<Vdev>, guard: &str) -> Self {
        Self::with_addresses(rules, kind, guard, [""; 2])
    }

    /// As [`Gateway::with_rules`]; `more` follows the addresses of the left and the right port.
    pub(crate) fn with_addresses(
        rules: &str,
        kind: Option<Vdev>,
        guard: &str,
        more: [&str; 2],
    ) -> Self {
        let line = Line::new("tgf", LineOptions::default()).unwrap();
        forget_route(&line);
        // In memory: there, connections outlive the node.
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let vdevs = kind.map(|kind| Vdevs::new(kind, directory.path()));
        let port = |name: &str, side: &Side, more: &str| {
            let address = side.node_address();
            let driver = match &vdevs {
                None => format!("interface = \"{}\"", side.node_device),
                Some(vdevs) => format!("driver = \"dpdk\"\ndevice = \"{}\"", vdevs.device(side)),
            };
            format!("[[port]]\nname = \"{name}\"\n{driver}\naddresses = [\"{address}/24\"{more}]\n")
        };
        let text = format!(
            "[node]\nframes_per_worker = 8192\nframe_bytes = 4096\ncontrol_socket = \"{}\"\n{}{}[firewall]\nrules = \"{}\"\n{guard}",
            directory.path().join("control.sock").display(),
            port("left", &line.left, more[0]),
            port("right", &line.right, more[1]),
            rules_file(directory.path()).display(),
        );
        std::fs::write(directory.path().join("node.toml"), text).unwrap();
        std::fs::write(rules_file(directory.path()), rules).unwrap();
        let child = run(&line, directory.path());
        let mut gateway = Self {
            child,
            vdevs,
            line,
            directory,
        };
        assert!(wait_until(PATIENCE, || gateway.socket().exists()));
        if let Some(vdevs) = &mut gateway.vdevs {
            vdevs.connect(&gateway.line, |_, _| {}).unwrap();
            // Only the gateway's own address is known on the right, there too.
            forget_route(&gateway.line);
        }
        gateway
    }

    /// Returns where its files are.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("control.sock")
    }

    /// Kills the node at whatever it does, and starts it again.
    pub(crate) fn kill_and_restart(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.child = run(&self.line, self.directory.path());
    }

    pub(crate) fn stats(&self) -> Option<Stats> {
        Client::connect(&self.socket()).ok()?.stats().ok()
    }

    fn change_rules(&self, ports: &str) {
        std::fs::write(rules_file(self.directory.path()), rules(ports)).unwrap();
        self.hang_up();
    }

    /// What the node has logged.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap()
    }

    /// Lets the node read its files again.
    pub(crate) fn hang_up(&self) {
        let pid = Pid::from_raw(self.child.id() as i32).unwrap();
        kill_process(pid, Signal::HUP).unwrap();
    }

    /// Opens a connection from the left to a port on the right.
    pub(crate) fn connect(&self, port: u16, patience: Duration) -> std::io::Result<TcpStream> {
        let address = SocketAddr::new(self.line.right.address(), port);
        let left = &self.line.left.namespace;
        left.run(|| TcpStream::connect_timeout(&address, patience))
            .unwrap()
    }
}

/// Lets the right side know only the gateway's own address: what is not masqueraded gets no answer.
fn forget_route(line: &Line) {
    let network = format!("{}/24", line.left.network());
    let mut command = line.right.namespace.command("ip");
    // A side whose interface is the old one has forgotten it before.
    finish(command.args(["route", "del", &network]));
    let mut command = line.right.namespace.command("ip");
    let left = finish(command.args(["route", "show", &network]));
    assert_eq!(left.stdout, "", "the route is gone");
}

/// Starts the node of a directory.
fn run(line: &Line, directory: &Path) -> Child {
    let mut command = line.node.command(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["run", "-c"]).arg(directory.join("node.toml"));
    let log = std::fs::File::options()
        .create(true)
        .append(true)
        .open(directory.join("log"));
    command.stdout(Stdio::null()).stderr(log.unwrap());
    command.spawn().unwrap()
}

pub(crate) fn rules_file(directory: &Path) -> PathBuf {
    directory.join("rules.nft")
}

pub(crate) fn listen(namespace: &Namespace, port: u16) -> TcpListener {
    namespace
        .run(|| TcpListener::bind(("0.0.0.0", port)).unwrap())
        .unwrap()
}

/// What passes, what does not, as whom it arrives, and that new rules do not disturb what is open.
pub(crate) fn guards(test: &str, kind: Option<Vdev>) {
    if !need::root(test) || !need::program(test, "ip") {
        return;
    }
    let gateway = Gateway::start("4000", kind);
    let allowed = listen(&gateway.line.right.namespace, 4000);
    let other = listen(&gateway.line.right.namespace, 4001);
    let mut client = None;
    assert!(wait_until(PATIENCE, || {
        client = gateway.connect(4000, Duration::from_secs(3)).ok();
        client.is_some()
    }));
    let mut client = client.unwrap();
    let (mut server, peer) = allowed.accept().unwrap();
    let outer: IpAddr = gateway.line.right.node_address();
    assert_eq!(peer.ip(), outer, "it arrives as the gateway's");
    let second = Duration::from_secs(1);
    assert!(
        gateway.connect(4001, second).is_err(),
        "no rule lets it pass"
    );

    let mut exchange = |bytes: &[u8]| {
        client.set_write_timeout(Some(PATIENCE)).unwrap();
        server.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut received = vec![0; bytes.len()];
        std::thread::scope(|scope| {
            scope.spawn(|| client.write_all(bytes).unwrap());
            server.read_exact(&mut received).unwrap();
        });
        assert!(received == bytes, "every byte arrives");
    };
    let bytes: Vec<u8> = (0..1_000_000_u32).map(|i| (i % 251) as u8).collect();
    exchange(&bytes);
    gateway.change_rules("4001");
    let opened = wait_until(PATIENCE, || gateway.connect(4001, second).is_ok());
    assert!(opened, "the new rules let it pass");
    assert!(other.accept().is_ok());
    assert!(gateway.connect(4000, second).is_err(), "and no longer this");
    exchange(&bytes);
}
