//! The demo's stage: three namespaces in a line, a node in the middle, servers on the right.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use control::Config;
use control::api::Stats;
use control::config::{
    ChallengeConfig, DriverConfig, FirewallConfig, GuardConfig, NodeConfig, PortConfig,
};
use dataplane::Dataplane;
use lab::need::find_program;
use lab::{Line as Topology, LineOptions, NetnsError, Side};

use super::actors::Actor;
use super::programs::Line;
use crate::cli::DemoDriver;
use crate::exit::{Exit, Failure};
use crate::view;

/// Port of the HTTP server.
const HTTP_PORT: u16 = 80;
/// Port of the UDP sink (discard, RFC 863).
const UDP_PORT: u16 = 9;
/// Endpoints that an address may ask for in vain.
const SCAN_ENDPOINTS: u64 = 50;
/// New connections a second to a destination, above which SYNs must come twice.
const FLOOD_CONNECTIONS: u64 = 500;
/// How long the first packet may take.
const FIRST_PACKET_PATIENCE: Duration = Duration::from_secs(8);

/// Everything that runs. Dropping it ends all of it.
#[derive(Debug)]
pub(super) struct Stage {
    // dropped in this order: programs, node, namespaces
    _http: Actor,
    sink: Actor,
    dataplane: Dataplane,
    topology: Topology,
    /// The system's `ping`, where there is one that works here.
    ping_program: Option<PathBuf>,
    /// The kernel has IPv6.
    has_v6: bool,
}

impl Stage {
    /// Builds the namespaces, starts the node and the servers.
    pub(super) fn build(driver: DemoDriver) -> Result<Self, Failure> {
        let topology = Topology::new("tg", LineOptions::default()).map_err(refused)?;
        // so that "nobody sends" is true: no router solicitations
        for side in [&topology.left, &topology.right] {
            side.namespace
                .disable_ipv6()
                .context("cannot keep the kernel from sending IPv6 by itself")?;
        }
        let has_v6 = [&topology.left, &topology.right]
            .into_iter()
            .all(|side| quiet_ipv6(side).is_ok());
        let config = config(&topology, driver, has_v6);
        let dataplane = topology
            .node
            .run(|| crate::run::start(&config, None))
            .map_err(refused)??;
        let client = &topology.left;
        client
            .namespace
            .links()
            .and_then(|mut links| {
                links.add_route(Ipv4Addr::UNSPECIFIED.into(), 0, client.node_address())
            })
            .context("cannot give the client a default route")?;
        // the demo's own ping, where the system has none
        let _ = client
            .namespace
            .set_sysctl("net/ipv4/ping_group_range", "0 0");
        let server = &topology.right.namespace;
        let http = Actor::server(server, "http-server", socket(&topology.right, HTTP_PORT))?;
        let sink = Actor::server(server, "udp-sink", socket(&topology.right, UDP_PORT))?;
        Ok(Self {
            _http: http,
            sink,
            dataplane,
            topology,
            ping_program: find_program("ping"),
            has_v6,
        })
    }

    /// Waits until a packet has crossed the node and its answer has come back.
    pub(super) fn first_packet(&mut self) -> Result<(), Failure> {
        let start = Instant::now();
        while start.elapsed() < FIRST_PACKET_PATIENCE {
            let mut ping = self.ping(false, Duration::from_millis(200), 1)?;
            let lines = ping.finish(Duration::from_secs(2))?;
            if lines.iter().any(|line| matches!(line, Line::Echo { .. })) {
                return Ok(());
            }
            // a `ping` of another kind, or one that may not open its socket here
            self.ping_program = None;
        }
        anstream::eprint!("{}", view::totals(&self.stats()));
        Err(Failure::message(
            Exit::Failed,
            "no packet crossed the node; its counters stand above",
        )
        .remedy("see `tidegate doctor`; try `tidegate demo --driver af-packet`"))
    }

    /// Tells whether the demo shows IPv6, too.
    pub(super) const fn has_v6(&self) -> bool {
        self.has_v6
    }

    /// Starts a ping from client to server, by IPv4 or by IPv6.
    pub(super) fn ping(&self, v6: bool, interval: Duration, count: u16) -> anyhow::Result<Actor> {
        let server = &self.topology.right;
        Actor::ping(
            &self.topology.left.namespace,
            self.ping_program.as_deref(),
            if v6 {
                address6(server, 2)
            } else {
                server.address()
            },
            interval,
            count,
        )
    }

    /// Starts a download by the client from the server.
    pub(super) fn download(&self, time: Duration) -> anyhow::Result<Actor> {
        let from = socket(&self.topology.right, HTTP_PORT).to_string();
        let ms = time.as_millis().to_string();
        self.client_program(&["http-client", &from, "--ms", &ms])
    }

    /// Starts a UDP stream from client to server.
    pub(super) fn stream(&self, rate: u32, time: Duration) -> anyhow::Result<Actor> {
        let to = socket(&self.topology.right, UDP_PORT).to_string();
        let ms = time.as_millis().to_string();
        self.client_program(&["udp-source", &to, "--rate", &rate.to_string(), "--ms", &ms])
    }

    /// Starts a UDP stream from the client to a network that the node has no route to.
    pub(super) fn strays(&self, rate: u32, time: Duration) -> anyhow::Result<Actor> {
        // TEST-NET-3 (RFC 5737)
        let to = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(203, 0, 113, 7)), UDP_PORT).to_string();
        let ms = time.as_millis().to_string();
        self.client_program(&["udp-source", &to, "--rate", &rate.to_string(), "--ms", &ms])
    }

    /// Starts a UDP stream whose packets may take one hop only.
    pub(super) fn short_lived(&self, rate: u32, time: Duration) -> anyhow::Result<Actor> {
        let to = socket(&self.topology.right, UDP_PORT).to_string();
        let ms = time.as_millis().to_string();
        let rate = rate.to_string();
        self.client_program(&[
            "udp-source",
            &to,
            "--rate",
            &rate,
            "--ms",
            &ms,
            "--ttl",
            "1",
        ])
    }

    /// Starts a port scan of the client by an address outside that is nobody's.
    pub(super) fn scan(&self, rate: u32, time: Duration) -> anyhow::Result<Actor> {
        let from = Ipv4Addr::new(10, self.topology.right.net, 0, 66).to_string();
        let to = self.topology.left.address();
        self.syns(to, &["--from", &from], rate, time)
    }

    /// Starts a SYN flood against the node's outer address, from forged addresses.
    pub(super) fn flood(&self, rate: u32, time: Duration) -> anyhow::Result<Actor> {
        let port = HTTP_PORT.to_string();
        let to = self.topology.right.node_address();
        self.syns(to, &["--port", &port], rate, time)
    }

    fn syns(&self, to: IpAddr, how: &[&str], rate: u32, time: Duration) -> anyhow::Result<Actor> {
        let outside = &self.topology.right;
        let router: String = outside
            .node_mac
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let (to, rate, ms) = (
            to.to_string(),
            rate.to_string(),
            time.as_millis().to_string(),
        );
        let mut arguments = vec!["syn-source", &outside.device, &to, "--router", &router];
        arguments.extend(["--rate", &rate, "--ms", &ms]);
        arguments.extend(how);
        Actor::start(&outside.namespace, &arguments)
    }

    fn client_program(&self, arguments: &[&str]) -> anyhow::Result<Actor> {
        Actor::start(&self.topology.left.namespace, arguments)
    }

    /// Returns the UDP sink, for its reports.
    pub(super) fn sink(&mut self) -> &mut Actor {
        &mut self.sink
    }

    /// Reads the node's counters.
    pub(super) fn stats(&self) -> Stats {
        self.dataplane.stats()
    }

    /// Ends the programs, then the node, and returns its last counters.
    pub(super) fn end(self) -> anyhow::Result<Stats> {
        if !self.dataplane.is_healthy() {
            bail!("a worker of the node does not answer");
        }
        Ok(self.dataplane.stop())
    }
}

/// A namespace or device that could not be made.
fn refused(error: NetnsError) -> Failure {
    if error.source.kind() == std::io::ErrorKind::PermissionDenied {
        Failure::new(Exit::Refused, error).remedy("run the demo as root: `sudo tidegate demo`")
    } else {
        Failure::new(Exit::Failed, error)
            .remedy("use a kernel with network namespaces and veth devices (`modprobe veth`)")
    }
}

/// `fd00:NET::HOST`: 1 is the node, 2 the program's side.
fn address6(side: &Side, host: u16) -> IpAddr {
    Ipv6Addr::new(0xfd00, side.net.into(), 0, 0, 0, 0, 0, host).into()
}

/// Gives a side IPv6 without what a kernel says by itself: no addresses of its own making, no search for
/// duplicates or routers, and group reports at once instead of in the next seconds.
fn quiet_ipv6(side: &Side) -> Result<(), NetnsError> {
    for (name, value) in [
        ("addr_gen_mode", "1"),
        ("accept_dad", "0"),
        ("accept_ra", "0"),
        ("router_solicitations", "0"),
        ("mldv2_unsolicited_report_interval", "1"),
        ("disable_ipv6", "0"),
    ] {
        let sysctl = format!("net/ipv6/conf/{}/{name}", side.device);
        side.namespace.set_sysctl(&sysctl, value)?;
    }
    let mut links = side.namespace.links()?;
    links.add_address(&side.device, address6(side, 2), 64)?;
    links.add_route(Ipv6Addr::UNSPECIFIED.into(), 0, address6(side, 1))
}

fn socket(side: &Side, port: u16) -> SocketAddr {
    SocketAddr::new(side.address(), port)
}

fn config(topology: &Topology, driver: DemoDriver, v6: bool) -> Config {
    let addresses = |side: &Side| {
        let v4 = format!("{}/24", side.node_address());
        let v6 = v6.then(|| format!("{}/64", address6(side, 1)));
        [Some(v4), v6].into_iter().flatten().collect()
    };
    let port = |name: &str, side: &Side| PortConfig {
        name: name.to_owned(),
        driver: match driver {
            DemoDriver::Auto => DriverConfig::Auto,
            DemoDriver::AfXdp => DriverConfig::AfXdp,
            DemoDriver::AfPacket => DriverConfig::AfPacket,
        },
        interface: Some(side.node_device.clone()),
        addresses: addresses(side),
        mac: None,
        mtu: None,
        idle: None,
        file: None,
        device: None,
    };
    Config {
        node: NodeConfig {
            name: "demo".into(),
            ..NodeConfig::default()
        },
        port: vec![port("left", &topology.left), port("right", &topology.right)],
        firewall: Some(FirewallConfig {
            inside: Some("left".into()),
            guard: Some(GuardConfig {
                scan_endpoints: SCAN_ENDPOINTS,
                hold_off_s: 1,
                destination_connections_per_s: FLOOD_CONNECTIONS,
                // The flood goes to the node's own address, where there is nothing to open a connection to.
                challenge: ChallengeConfig::Retry,
                ..GuardConfig::default()
            }),
            ..FirewallConfig::default()
        }),
        ..Config::default()
    }
}
