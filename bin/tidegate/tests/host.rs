//! A node that forwards between two kernels and lets programs of other processes have TCP and UDP on its own
//! addresses, through the control socket and shared memory.

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Stdio};
use std::time::Duration;

use common::wait_until;
use lab::{Line, LineOptions, need};
use socket::Host;

const PATIENCE: Duration = Duration::from_secs(30);

struct Node {
    child: Child,
    line: Line,
    directory: tempfile::TempDir,
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Node {
    fn start(prefix: &str, workers: &str) -> Self {
        Self::start_with(prefix, workers, None)
    }

    fn start_with(prefix: &str, workers: &str, rules: Option<&str>) -> Self {
        let line = Line::new(prefix, LineOptions::default()).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let port = |name: &str, device: &str, address: &IpAddr| {
            format!(
                "[[port]]\nname = \"{name}\"\ninterface = \"{device}\"\ndriver = \"af_packet\"\naddresses = [\"{address}/24\"]\n"
            )
        };
        let mut text = format!(
            "[node]\n{workers}frames_per_worker = 4096\ncontrol_socket = \"{}\"\n{}{}[host]\nsockets = 64\n",
            directory.path().join("control.sock").display(),
            port("left", &line.left.node_device, &line.left.node_address()),
            port("right", &line.right.node_device, &line.right.node_address()),
        );
        if let Some(rules) = rules {
            std::fs::write(directory.path().join("rules.nft"), rules).unwrap();
            text.push_str("[firewall]\nrules = \"rules.nft\"\nconnections = 4096\n");
        }
        std::fs::write(directory.path().join("node.toml"), text).unwrap();
        let mut command = line.node.command(env!("CARGO_BIN_EXE_tidegate"));
        command
            .args(["run", "-c"])
            .arg(directory.path().join("node.toml"));
        let child = command.stderr(Stdio::null()).spawn().unwrap();
        let node = Self {
            child,
            line,
            directory,
        };
        assert!(wait_until(PATIENCE, || node.socket().exists()));
        node
    }

    fn socket(&self) -> std::path::PathBuf {
        self.directory.path().join("control.sock")
    }

    fn attach(&self) -> Host {
        Host::attach(self.socket()).unwrap()
    }

    /// Listens in the right kernel.
    fn listen_on_the_right(&self, port: u16) -> TcpListener {
        let right = &self.line.right;
        let listen = || TcpListener::bind((right.address(), port)).unwrap();
        right.namespace.run(listen).unwrap()
    }

    /// Connects from the left kernel.
    fn connect(&self, to: SocketAddr) -> std::io::Result<TcpStream> {
        let left = &self.line.left.namespace;
        let stream = left
            .run(|| TcpStream::connect_timeout(&to, PATIENCE))
            .unwrap()?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(stream)
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect()
}

/// Serves one connection: takes all, then sends it back.
fn serve_one(listener: &socket::TcpListener) {
    let (mut stream, _) = listener.accept().unwrap();
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    stream.write_all(&got).unwrap();
}

fn ask(mut stream: TcpStream, len: usize) {
    let data = pattern(len);
    stream.write_all(&data).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut back = Vec::new();
    stream.read_to_end(&mut back).unwrap();
    assert!(back == data, "{} of {len} bytes", back.len());
}

fn programs_use_the_nodes_addresses(node: &Node) {
    let own = node.line.left.node_address();
    let host = node.attach();
    // Kernels connect to a program of ours.
    let listener = socket::TcpListener::bind(&host, (own, 7)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| (0..8).for_each(|_| serve_one(&listener)));
        for n in 0..8 {
            ask(node.connect((own, 7).into()).unwrap(), 100_000 * n + 1);
        }
    });
    // Nobody listens there.
    let refused = node.connect((own, 8).into()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    // We connect to a kernel on the other side.
    let right = &node.line.right;
    let theirs = node.listen_on_the_right(9);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..8 {
                let (mut stream, _) = theirs.accept().unwrap();
                let mut got = Vec::new();
                stream.read_to_end(&mut got).unwrap();
                stream.write_all(&got).unwrap();
            }
        });
        for _ in 0..8 {
            let mut stream = socket::TcpStream::connect(&host, (right.address(), 9)).unwrap();
            let data = pattern(70_000);
            stream.write_all(&data).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let mut back = Vec::new();
            stream.read_to_end(&mut back).unwrap();
            assert!(back == data);
        }
    });
    // Meanwhile the node forwards.
    let through = right
        .namespace
        .run(|| TcpListener::bind((right.address(), 10)).unwrap())
        .unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = through.accept().unwrap();
            let mut got = Vec::new();
            stream.read_to_end(&mut got).unwrap();
            stream.write_all(&got).unwrap();
        });
        ask(node.connect((right.address(), 10).into()).unwrap(), 200_000);
    });
    // Datagrams.
    let service = socket::UdpSocket::bind(&host, (own, 53)).unwrap();
    service.set_read_timeout(Some(PATIENCE)).unwrap();
    let left = &node.line.left;
    let client = left
        .namespace
        .run(|| UdpSocket::bind((left.address(), 0)).unwrap())
        .unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let question = pattern(3000);
    client.send_to(&question, (own, 53)).unwrap();
    let mut bytes = [0; 4000];
    let (n, from) = service.recv_from(&mut bytes).unwrap();
    assert_eq!((&bytes[..n], from.ip()), (&question[..], left.address()));
    service.send_to(b"answer", from).unwrap();
    assert_eq!(client.recv(&mut bytes).unwrap(), 6);
    // Another program shares the ports.
    let other = node.attach();
    let taken = socket::TcpListener::bind(&other, (own, 7)).unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::AddrInUse);
    drop((listener, service, host));
    assert!(wait_until(PATIENCE, || socket::TcpListener::bind(
        &other,
        (own, 7)
    )
    .is_ok()));
}

#[test]
fn programs_have_sockets_beside_forwarding() {
    if !need::root("programs_have_sockets_beside_forwarding") {
        return;
    }
    let mut node = Node::start("tgh", "");
    programs_use_the_nodes_addresses(&node);
    // The node dies: whoever waits hears of it.
    let host = node.attach();
    let own = node.line.left.node_address();
    let listener = socket::TcpListener::bind(&host, (own, 7)).unwrap();
    node.child.kill().unwrap();
    node.child.wait().unwrap();
    assert_eq!(
        listener.accept().unwrap_err().kind(),
        ErrorKind::NotConnected
    );
}

#[test]
fn programs_have_sockets_on_every_worker() {
    let test = "programs_have_sockets_on_every_worker";
    let cpus = io::cpu::allowed().unwrap_or_default();
    if !need::root(test) || !need::need(test, "two CPUs", cpus.len() > 1) {
        return;
    }
    let workers = format!("cpus = [{}, {}]\n", cpus[0], cpus[1]);
    let node = Node::start("tgh2", &workers);
    programs_use_the_nodes_addresses(&node);
}

/// Host and firewall in one node: what the rules let in reaches the program, what they stop does not, and what answers a
/// connection of the program's own comes back.
#[test]
fn the_firewall_guards_the_hosts_ports() {
    if !need::root("the_firewall_guards_the_hosts_ports") {
        return;
    }
    let rules = "table inet filter {
        chain input {
            type filter hook input priority filter; policy drop;
            ct state established,related accept
            tcp dport 7 accept
        }
        chain output {
            type filter hook output priority filter;
            tcp dport 10 reject with tcp reset
            udp dport 10 drop
        }
    }
    table ip nat {
        chain postrouting {
            type nat hook postrouting priority srcnat;
            tcp dport 9 masquerade
        }
    }
";
    let node = Node::start_with("tghf", "", Some(rules));
    let own = node.line.left.node_address();
    let host = node.attach();
    let open = socket::TcpListener::bind(&host, (own, 7)).unwrap();
    let closed = socket::TcpListener::bind(&host, (own, 8)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| serve_one(&open));
        ask(node.connect((own, 7).into()).unwrap(), 300_000);
    });
    let left = &node.line.left.namespace;
    let stopped = left
        .run(|| TcpStream::connect_timeout(&(own, 8).into(), Duration::from_secs(2)))
        .unwrap();
    assert_eq!(stopped.unwrap_err().kind(), ErrorKind::TimedOut);
    closed.set_nonblocking(true).unwrap();
    assert_eq!(closed.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    let right = &node.line.right;
    let theirs = node.listen_on_the_right(9);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = theirs.accept().unwrap();
            stream.write_all(b"welcome").unwrap();
        });
        let mut stream = socket::TcpStream::connect(&host, (right.address(), 9)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert_eq!(text, "welcome");
    });
    // What the output chain stops: the program is told, or the datagram is gone.
    let refused = socket::TcpStream::connect(&host, (right.address(), 10)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    let theirs = |port| {
        let socket = right
            .namespace
            .run(|| UdpSocket::bind((right.address(), port)));
        let socket = socket.unwrap().unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    };
    let (stopped, server) = (theirs(10), theirs(11));
    let client = socket::UdpSocket::bind(&host, (own, 1000)).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut bytes = [0; 4000];
    client.send_to(b"never", (right.address(), 10)).unwrap();
    // In fragments, both ways.
    let question = pattern(3000);
    client.send_to(&question, (right.address(), 11)).unwrap();
    let (n, from) = server.recv_from(&mut bytes).unwrap();
    assert_eq!((&bytes[..n], from), (&question[..], (own, 1000).into()));
    server.send_to(&question, from).unwrap();
    assert_eq!(client.recv_from(&mut bytes).unwrap().0, 3000);
    stopped.set_nonblocking(true).unwrap();
    let nothing = stopped.recv(&mut bytes).unwrap_err();
    assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
}
