//! A test rig: a tester, a device under test, and the wires between them.

use std::net::Ipv4Addr;
use std::sync::Arc;

use io::port::{self, DriverSpec, PortSpec};
use io::{HugePages, Pool, PortId};

use crate::dut::{NodeError, NodeOptions, NodeProcess, NodeRole};
use crate::netns::{Namespace, NetnsError};
use crate::peer::testpmd::{Testpmd, TestpmdError, TestpmdOptions};
use crate::peer::{self, libpcap};
use crate::topology::{Line, LineOptions};
use crate::traffic::{Endpoint, Profile, ProfileError, Tester, Trial, TrialPlan};

/// Frames of each of the tester's ports.
const TESTER_FRAMES: u32 = 8192;
/// Packet buffers of testpmd: net_af_xdp takes 2,048 for each fill ring.
const TESTPMD_MBUFS: u32 = 16_384;

/// The driver of the tester's own ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TesterDriver {
    /// AF_XDP, or AF_PACKET where it is refused.
    #[default]
    Auto,
    /// AF_PACKET.
    AfPacket,
}

/// What is tested.
#[derive(Clone, Debug)]
pub enum Dut {
    /// Our node, a process of its own.
    Node(NodeOptions),
    /// The kernel's IPv4 forwarding.
    KernelRouter,
    /// The kernel's bridge.
    KernelBridge,
    /// A forwarder on libpcap.
    Libpcap,
    /// DPDK's testpmd over net_af_xdp, which passes frames on untouched.
    Testpmd,
    /// Whatever is between two interfaces of the caller's network namespace.
    External(External),
}

/// Where an external device is, and how frames get through it.
#[derive(Clone, Debug)]
pub struct External {
    /// The interface to send on.
    pub tx: String,
    /// The interface to receive on.
    pub rx: String,
    /// Destination address of frames: the device's own for a router; `None` sends to the receiving
    /// interface's address, as through a bridge.
    pub destination_mac: Option<[u8; 6]>,
    /// Source and destination of the packets.
    pub ip: (Ipv4Addr, Ipv4Addr),
}

/// How to build a rig.
#[derive(Clone, Debug)]
pub struct RigOptions {
    /// What is tested.
    pub dut: Dut,
    /// The tester's driver.
    pub tester: TesterDriver,
    /// The core of a built-in device under test: it forwards there, and its ports receive there.
    pub dut_cpu: usize,
    /// Receive for the device under test on its own core (threaded NAPI) rather than on the tester's.
    pub receive_on_dut_cpu: bool,
    /// Flows of the test traffic.
    pub flows: u32,
    /// Seed of the flows.
    pub seed: u64,
    /// MTU of all wires, bytes.
    pub mtu: u32,
}

impl RigOptions {
    /// Tests `dut` on core 0 with 1024 flows.
    pub fn new(dut: Dut) -> Self {
        Self {
            dut,
            tester: TesterDriver::default(),
            dut_cpu: 0,
            receive_on_dut_cpu: true,
            flows: 1024,
            seed: 1,
            mtu: 1500,
        }
    }
}

/// Why there is no rig.
#[derive(Debug, thiserror::Error)]
pub enum RigError {
    /// A namespace or a device.
    #[error(transparent)]
    Netns(#[from] NetnsError),
    /// One of the tester's ports.
    #[error("the tester's port: {0}")]
    Port(#[from] port::OpenError),
    /// Memory for frames.
    #[error(transparent)]
    Memory(#[from] io::RegionError),
    /// The node.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// The libpcap forwarder.
    #[error(transparent)]
    Libpcap(#[from] libpcap::LibpcapError),
    /// testpmd.
    #[error(transparent)]
    Testpmd(#[from] TestpmdError),
    /// An interface of the machine.
    #[error("interface {0}: {1}")]
    Interface(String, std::io::Error),
    /// A frame size or number of flows.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// Nothing comes through.
    #[error("no test frame comes through the device under test{0}")]
    Dead(String),
}

/// A running device under test between the two ports of a tester.
#[derive(Debug)]
pub struct Rig {
    tester: Tester,
    mac: ([u8; 6], [u8; 6]),
    ip: (Ipv4Addr, Ipv4Addr),
    /// Frames from the receiving side, by which a bridge learns.
    back: ([u8; 6], [u8; 6]),
    flows: u32,
    seed: u64,
    driver: String,
    device: Device,
    line: Option<Line>,
    /// The kernel's threads that receive for the device under test.
    napi_threads: Vec<i32>,
}

/// What must be kept alive.
#[derive(Debug)]
enum Device {
    Node(NodeProcess),
    Libpcap(libpcap::Forwarder),
    Testpmd(#[expect(dead_code, reason = "its drop ends the process")] Testpmd),
    Passive,
}

impl Rig {
    /// Builds the rig and waits until frames come through.
    ///
    /// # Errors
    /// A part cannot be built, or nothing comes through.
    pub fn new(options: &RigOptions) -> Result<Self, RigError> {
        let mut rig = match &options.dut {
            Dut::External(external) => Self::external(external, options)?,
            _ => Self::built_in(options)?,
        };
        rig.wait_until_alive()?;
        Ok(rig)
    }

    /// Returns the drivers of the tester's ports, for the report.
    pub fn tester_driver(&self) -> &str {
        &self.driver
    }

    /// Returns the node, if it is the device under test.
    pub fn node(&self) -> Option<&NodeProcess> {
        match &self.device {
            Device::Node(node) => Some(node),
            _ => None,
        }
    }

    /// Returns how many frames the libpcap forwarder could not send; 0 for other devices.
    pub fn libpcap_lost_pkts(&self) -> u64 {
        match &self.device {
            Device::Libpcap(forwarder) => forwarder.lost_pkts(),
            _ => 0,
        }
    }

    /// Returns the namespaces, unless the device under test is an external one.
    pub fn line(&self) -> Option<&Line> {
        self.line.as_ref()
    }

    /// Runs one trial with frames of `size_bytes` (FCS included).
    ///
    /// # Errors
    /// An impossible size.
    pub fn trial(&mut self, size_bytes: u16, plan: &TrialPlan) -> Result<Trial, RigError> {
        let profile = Profile::new(size_bytes, self.mac, self.ip, self.flows, self.seed)?;
        Ok(self.tester.run(&profile, plan))
    }

    /// Returns a function from plan to trial for one frame size, as the searches want it.
    ///
    /// # Errors
    /// An impossible size.
    pub fn device(
        &mut self,
        size_bytes: u16,
    ) -> Result<impl FnMut(&TrialPlan) -> Trial + '_, RigError> {
        let profile = Profile::new(size_bytes, self.mac, self.ip, self.flows, self.seed)?;
        let tester = &mut self.tester;
        Ok(move |plan: &TrialPlan| tester.run(&profile, plan))
    }

    /// Lets the kernel's receiving go before the forwarding on the same core, as it does where interrupts do
    /// it; its threads are else given turns with a forwarder that polls. All other threads stay normal ones:
    /// a real-time thread that does not pause starves what the kernel does in threads, and is stopped for
    /// 50 ms of every second. Does nothing where the receiving has no threads of its own.
    ///
    /// # Errors
    /// The kernel does not allow it.
    pub fn receive_before_forwarding(&self) -> std::io::Result<()> {
        for &thread in &self.napi_threads {
            io::cpu::set_real_time(thread, 1)?;
        }
        Ok(())
    }

    /// Replaces the node, e.g. after a kill.
    pub fn replace_node(&mut self, node: NodeProcess) {
        self.device = Device::Node(node);
    }

    /// Takes the node out of the rig, e.g. to kill it.
    pub fn take_node(&mut self) -> Option<NodeProcess> {
        match std::mem::replace(&mut self.device, Device::Passive) {
            Device::Node(node) => Some(node),
            other => {
                self.device = other;
                None
            }
        }
    }

    fn built_in(options: &RigOptions) -> Result<Self, RigError> {
        let line = Line::new(
            "tgrig",
            LineOptions {
                mtu: options.mtu,
                queues: 1,
                addresses: false,
            },
        )?;
        let devices = [&*line.left.node_device, &*line.right.node_device];
        let mut routed = true;
        let device = match &options.dut {
            Dut::Node(node) => {
                routed = node.role == NodeRole::Router;
                Device::Node(NodeProcess::start(&line, node)?)
            }
            Dut::KernelBridge => {
                routed = false;
                peer::bridge_by_kernel(&line)?;
                Device::Passive
            }
            Dut::Libpcap => {
                routed = false;
                let cpu = Some(options.dut_cpu);
                Device::Libpcap(libpcap::Forwarder::start(&line.node, devices, cpu)?)
            }
            Dut::Testpmd => {
                routed = false;
                let vdev = |(n, device)| format!("net_af_xdp{n},iface={device}");
                let mut testpmd = Testpmd::start(
                    Some(&line.node),
                    &TestpmdOptions {
                        vdevs: devices.iter().enumerate().map(vdev).collect(),
                        forward_cpu: options.dut_cpu,
                        // It sleeps; the tester's core is any other.
                        main_cpu: usize::from(options.dut_cpu == 0),
                        mbufs: TESTPMD_MBUFS,
                        ..TestpmdOptions::default()
                    },
                )?;
                testpmd.wait_until_forwarding()?;
                Device::Testpmd(testpmd)
            }
            Dut::KernelRouter | Dut::External(_) => {
                peer::route_by_kernel(&line)?;
                Device::Passive
            }
        };
        let (tx, tx_driver) = endpoint(&line.left.namespace, &line.left.device, options.tester)?;
        let (rx, rx_driver) = endpoint(&line.right.namespace, &line.right.device, options.tester)?;
        let mut napi_threads = Vec::new();
        if options.receive_on_dut_cpu {
            // After the device has started: attaching a program to a veth makes its threads anew.
            for device in devices {
                napi_threads.extend(line.node.receive_on_cpu(device, options.dut_cpu)?);
            }
        }
        let (left, right) = (&line.left, &line.right);
        let (mac, back) = if routed {
            ((left.mac, left.node_mac), (right.mac, right.node_mac))
        } else {
            ((left.mac, right.mac), (right.mac, left.mac))
        };
        Ok(Self {
            tester: Tester::new(tx, rx),
            mac,
            back,
            ip: ([10, left.net, 0, 2].into(), [10, right.net, 0, 2].into()),
            flows: options.flows,
            seed: options.seed,
            driver: format!("{tx_driver} / {rx_driver}"),
            device,
            line: Some(line),
            napi_threads,
        })
    }

    fn external(external: &External, options: &RigOptions) -> Result<Self, RigError> {
        let here = Namespace::current()?;
        let mac_of = |name: &str| {
            io::interface::Interface::get(name)
                .map(|interface| interface.mac)
                .map_err(|error| RigError::Interface(name.to_owned(), error))
        };
        let (tx_mac, rx_mac) = (mac_of(&external.tx)?, mac_of(&external.rx)?);
        let (tx, tx_driver) = endpoint(&here, &external.tx, options.tester)?;
        let (rx, rx_driver) = endpoint(&here, &external.rx, options.tester)?;
        Ok(Self {
            tester: Tester::new(tx, rx),
            mac: (tx_mac, external.destination_mac.unwrap_or(rx_mac)),
            back: (rx_mac, external.destination_mac.unwrap_or(tx_mac)),
            ip: external.ip,
            flows: options.flows,
            seed: options.seed,
            driver: format!("{tx_driver} / {rx_driver}"),
            device: Device::Passive,
            line: None,
            napi_threads: Vec::new(),
        })
    }

    /// Lets the device learn both stations, and sends until frames come through.
    fn wait_until_alive(&mut self) -> Result<(), RigError> {
        let back_ip = (self.ip.1, self.ip.0);
        let back = Profile::new(64, self.back, back_ip, 1, self.seed)?;
        for _ in 0..100 {
            self.tester.teach(&back, 2);
            let trial = self.trial(64, &TrialPlan::burst(4))?;
            if trial.received_pkts == trial.sent_pkts && trial.sent_pkts > 0 {
                return Ok(());
            }
        }
        let log = self.node().map(NodeProcess::log).unwrap_or_default();
        Err(RigError::Dead(if log.is_empty() {
            String::new()
        } else {
            format!("; the node says: {log}")
        }))
    }
}

/// Opens a port of the tester.
fn endpoint(
    namespace: &Namespace,
    device: &str,
    driver: TesterDriver,
) -> Result<(Endpoint, String), RigError> {
    let pool = Pool::new(TESTER_FRAMES, 2048, HugePages::Never)?;
    let driver = match driver {
        TesterDriver::Auto => DriverSpec::Auto(io::af_xdp::AfXdpSpec::new(device)),
        TesterDriver::AfPacket => DriverSpec::AfPacket(io::af_packet::AfPacketSpec::new(device)),
    };
    let spec = PortSpec::new(PortId(0), device, driver);
    let region = Arc::clone(pool.region());
    let mut port = namespace.run(move || port::open(&spec, &region, 1))??;
    let name = format!("{} ({})", port.driver, port.mode);
    let queue = port.queues.remove(0);
    Ok((Endpoint { queue, pool }, name))
}
