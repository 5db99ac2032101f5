//! A node between two network namespaces, and what the tests ask of it.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::process::Output;
use std::time::{Duration, Instant};

use control::Config;
use dataplane::Dataplane;
use io::af_packet::AfPacketSpec;
use io::af_xdp::AfXdpSpec;
use io::dpdk::DpdkSpec;
use io::port::DriverSpec;
use lab::netns::Namespace;
use lab::topology::{Line, LineOptions, Side};
use lab::vdev::{Vdev, Vdevs};

/// A line of namespaces with a running node in the middle.
pub(crate) struct Bench {
    // Dropped in this order: the node first.
    pub(crate) node: Dataplane,
    pub(crate) driver: Driver,
    pub(crate) line: Line,
}

/// How the node takes packets.
pub(crate) enum Driver {
    /// A driver of kernel interfaces, by its name.
    Kernel(&'static str),
    /// Driver `dpdk`, with these devices.
    Dpdk(Vdevs),
}

impl Driver {
    /// Returns the keys of `[node]` that the driver needs.
    pub(crate) fn node_keys(&self) -> &'static str {
        match self {
            Self::Kernel(_) => "",
            // net_af_xdp needs frames of a page.
            Self::Dpdk(_) => "frame_bytes = 4096\n",
        }
    }

    /// Returns the keys of the port to a side.
    pub(crate) fn port_keys(&self, side: &Side) -> String {
        match self {
            Self::Kernel(name) => {
                let interface = &side.node_device;
                format!("interface = \"{interface}\"\ndriver = \"{name}\"\n")
            }
            Self::Dpdk(vdevs) => {
                let device = vdevs.device(side);
                format!("driver = \"dpdk\"\ndevice = \"{device}\"\n")
            }
        }
    }

    /// Returns what a port to a side is opened with.
    pub(crate) fn spec(&self, side: &Side) -> DriverSpec {
        let interface = &side.node_device;
        match self {
            Self::Kernel("af_packet") => DriverSpec::AfPacket(AfPacketSpec::new(interface)),
            Self::Kernel("af_xdp") => DriverSpec::AfXdp(AfXdpSpec::new(interface)),
            Self::Kernel(other) => panic!("no driver {other}"),
            Self::Dpdk(vdevs) => DriverSpec::Dpdk(DpdkSpec::new(vdevs.device(side))),
        }
    }

    /// Connects devices to the sides of a line that [`line`] made; somebody receives from them by now.
    pub(crate) fn connect_to(&mut self, line: &Line) {
        self.connect(line, add_ipv6);
    }

    /// Connects the running node's devices to the sides.
    fn connect(&mut self, line: &Line, readdress: fn(&Side, &Side)) {
        if let Self::Dpdk(vdevs) = self {
            vdevs
                .connect(line, readdress)
                .expect("the devices are connected");
        }
    }

    /// Tells whether the kernel knows if the port has a link.
    pub(crate) fn has_kernel_link(&self) -> bool {
        match self {
            Self::Kernel(_) => true,
            Self::Dpdk(vdevs) => matches!(vdevs.kind(), Vdev::AfPacket | Vdev::AfXdp),
        }
    }

    /// Tells whether fragments reach the node as they are. net_af_packet has the kernel put them together, and
    /// loses what is longer than an entry of its ring then.
    pub(crate) fn keeps_fragments(&self) -> bool {
        !matches!(self, Self::Dpdk(vdevs) if vdevs.kind() == Vdev::AfPacket)
    }
}

/// Gives a side its address in the one network of a bridge.
pub(crate) fn add_bridged(side: &Side, _: &Side) {
    let mut links = side.namespace.links().expect("netlink");
    let address = std::net::Ipv4Addr::new(10, 5, 0, side.net + 1).into();
    links
        .add_address(&side.device, address, 24)
        .expect("an address");
}

/// Configuration of a router on the line, as TOML; `extra` goes to the right port, `more` after both.
pub(crate) fn router(line: &Line, driver: &Driver, right_extra: &str, more: &str) -> String {
    format!(
        "[idle]\nlatency_budget_us = 200\n\
         [[port]]\nname = \"left\"\n{}addresses = [\"10.1.0.1/24\", \"fd01::1/64\"]\n\
         [[port]]\nname = \"right\"\n{}addresses = [\"10.2.0.1/24\", \"fd02::1/64\"]\n{right_extra}\n{more}",
        driver.port_keys(&line.left),
        driver.port_keys(&line.right)
    )
}

/// Builds a line with IPv4 and IPv6 addresses and routes on both sides.
pub(crate) fn line(prefix: &str) -> Line {
    let line = Line::new(prefix, LineOptions::default()).expect("a line of namespaces");
    add_ipv6(&line.left, &line.right);
    add_ipv6(&line.right, &line.left);
    line
}

/// Gives a side an IPv6 address, and a route to the other by the node.
fn add_ipv6(side: &Side, other: &Side) {
    let v6 = |net: u8, host: u16| -> IpAddr {
        std::net::Ipv6Addr::new(0xfd00 | u16::from(net), 0, 0, 0, 0, 0, 0, host).into()
    };
    for device in ["all", &side.device] {
        let sysctl = format!("net/ipv6/conf/{device}/accept_dad");
        side.namespace.set_sysctl(&sysctl, "0").expect("no DAD");
    }
    let mut links = side.namespace.links().expect("netlink");
    links
        .add_address(&side.device, v6(side.net, 2), 64)
        .expect("an IPv6 address");
    links
        .add_route(v6(other.net, 0), 64, v6(side.net, 1))
        .expect("an IPv6 route");
}

impl Bench {
    /// Starts a node in the middle of a line.
    pub(crate) fn start(line: Line, config: &str) -> Self {
        Self::start_by(line, Driver::Kernel("auto"), config)
    }

    /// Starts a node in the middle of a line with the devices of a driver that `config` names.
    pub(crate) fn start_by(line: Line, mut driver: Driver, config: &str) -> Self {
        let config: Config = toml::from_str(config).expect("the configuration is TOML");
        let node = line
            .node
            .run(|| Dataplane::start(&config, None))
            .expect("the namespace can be entered")
            .expect("the node starts");
        let readdress = match config.bridge.is_empty() {
            true => add_ipv6,
            false => add_bridged,
        };
        driver.connect(&line, readdress);
        Self { node, driver, line }
    }

    /// Runs a program in the left namespace.
    pub(crate) fn left(&self, program: &str, arguments: &[&str]) -> Text {
        run(&self.line.left.namespace, program, arguments)
    }

    /// Asserts that an address answers each of `count` echo requests from the left; one at a time, since
    /// ping waits for its whole patience only where nothing has come back yet.
    #[track_caller]
    pub(crate) fn pings(&self, address: &str, count: usize, more: &[&str], answer: &str) {
        for _ in 0..count {
            let arguments = [&["-c", "1", "-W", "3"], more, &[address]].concat();
            self.left("ping", &arguments)
                .has(&[" 0% packet loss", answer]);
        }
    }

    /// Returns how many packets were dropped for a reason.
    pub(crate) fn drops(&self, reason: &str) -> u64 {
        let stats = self.node.stats();
        let found = stats.drops.iter().find(|drop| drop.reason == reason);
        found.map_or(0, |drop| drop.pkts)
    }

    /// Stops the node and checks that every frame is home.
    pub(crate) fn finish(&self) {
        self.node.stop();
        for report in self.node.ended().expect("it was stopped") {
            let report = report.expect("the worker ended");
            assert_eq!(
                report.home + report.kept_by_drivers,
                report.frames,
                "{report:?}"
            );
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let stats = self.node.stats();
            eprintln!("drops: {:#?}\nports: {:#?}", stats.drops, stats.ports);
            for stage in stats.stages {
                eprintln!("{} {} {:?}", stage.name, stage.pkts, stage.edges);
            }
            eprintln!("{:#?}\n{:#?}", stats.workers, self.node.neighbours());
        }
    }
}

/// What a program wrote.
pub(crate) struct Text {
    pub(crate) text: String,
}

impl Text {
    /// Asserts that the output holds each of `wanted`.
    #[track_caller]
    pub(crate) fn has(&self, wanted: &[&str]) {
        for wanted in wanted {
            assert!(
                self.text.contains(wanted),
                "no {wanted:?} in:\n{}",
                self.text
            );
        }
    }
}

/// Runs a program in a namespace.
pub(crate) fn run(namespace: &Namespace, program: &str, arguments: &[&str]) -> Text {
    let output: Output = namespace
        .command(program)
        .args(arguments)
        .output()
        .expect("the program runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    Text { text }
}

/// Sends `bytes` of a known pattern by TCP from one namespace to an address in another, and checks each
/// byte; returns how long it took.
pub(crate) fn tcp_transfer(
    from: &Namespace,
    to: &Namespace,
    address: IpAddr,
    bytes: usize,
) -> Duration {
    let listener = to
        .run(|| TcpListener::bind((address, 7000)).expect("a listener"))
        .expect("the namespace can be entered");
    let pattern = |i: usize| (i.wrapping_mul(2_654_435_761) >> 13) as u8;
    let start = Instant::now();
    std::thread::scope(|scope| {
        let receiver = scope.spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            stream
                .set_read_timeout(Some(Duration::from_secs(20)))
                .expect("a timeout");
            let mut received = Vec::with_capacity(bytes);
            stream.read_to_end(&mut received).expect("the data");
            received
        });
        let mut stream = from
            .run(|| {
                TcpStream::connect_timeout(&(address, 7000).into(), Duration::from_secs(5))
                    .expect("the connection is accepted")
            })
            .expect("the namespace can be entered");
        stream
            .set_write_timeout(Some(Duration::from_secs(20)))
            .expect("a timeout");
        let data: Vec<u8> = (0..bytes).map(pattern).collect();
        stream.write_all(&data).expect("the data is taken");
        drop(stream);
        let received = receiver.join().expect("the receiver ends");
        assert_eq!(received.len(), bytes);
        let wrong = received.iter().zip(&data).position(|(a, b)| a != b);
        assert_eq!(wrong, None, "first wrong byte");
    });
    start.elapsed()
}
