//! What each interface allows: packet drivers, offloads, foreign programs.

use std::fmt;
use std::fs;

use control::api::{CheckStatus, DoctorCheck, InterfaceModes, ModeProbe};
use io::af_packet::AfPacketSpec;
use io::af_xdp::{AfXdpSpec, Copying, Filter, PacketMatch, Place, XdpAttachment, attached_xdp};
use io::ethtool::{Ethtool, Offload};
use io::interface::{Interface, Link};
use io::port::{self, DriverSpec, OpenError, PortSpec};
use io::{HugePages, Pool, PortId};

use super::system::{not_ok, ok};
use crate::exit::{Exit, Failure};

/// Frames of a probe: enough for its rings, few enough for an ordinary user's memory limit.
const PROBE_FRAMES: u32 = 512;
const FRAME_BYTES: u32 = 2048;
/// For experiments on a private network (IEEE 802 9.2.3): the only packets that a probe would take.
const UNUSED_ETHER_TYPE: u16 = 0x88b5;

/// Looks at the interfaces named, or at all Ethernet interfaces.
pub(super) fn examine(named: &[String]) -> Result<Vec<InterfaceModes>, Failure> {
    if named.is_empty() {
        return Ok(ethernet_interfaces()
            .iter()
            .map(|name| interface(name, false))
            .collect());
    }
    named
        .iter()
        .map(|name| match Interface::get(name) {
            Ok(_) => Ok(interface(name, true)),
            Err(_) => Err(Failure::message(
                Exit::NotFound,
                format!("there is no interface `{name}`"),
            )
            .remedy("name one that `ip link` lists in this network namespace")),
        })
        .collect()
}

/// Names the Ethernet interfaces of this network namespace, the loopback interface aside.
fn ethernet_interfaces() -> Vec<String> {
    let Ok(entries) = fs::read_dir("/sys/class/net") else {
        return Vec::new();
    };
    let mut names: Vec<_> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| Interface::get(name).is_ok_and(|found| found.ethernet && !found.loopback))
        .collect();
    names.sort_unstable();
    names
}

fn interface(name: &str, named: bool) -> InterfaceModes {
    let kernel_driver = Ethtool::open(name)
        .and_then(|ethtool| ethtool.driver())
        .ok();
    let found = Interface::get(name);
    // opening a port would switch the interface on, and a doctor changes nothing
    let up = found.is_ok_and(|found| found.link != Link::Down);
    let probes = if up { probe(name, named) } else { Vec::new() };
    let chosen = probes
        .iter()
        .find(|probe| probe.accepted)
        .map(|probe| probe.mode.clone());
    InterfaceModes {
        interface: name.to_owned(),
        kernel_driver,
        chosen,
        checks: checks(name),
        probes,
    }
}

fn checks(name: &str) -> Vec<DoctorCheck> {
    let Ok(found) = Interface::get(name) else {
        return Vec::new();
    };
    let link = match found.link {
        Link::Down => not_ok(
            "link",
            CheckStatus::Warning,
            "down, or without a carrier: no driver was tried",
            format!("`ip link set {name} up`, see to the other end, then ask again"),
        ),
        Link::Up | Link::Unknown => ok("link", "up"),
    };
    let most = FRAME_BYTES - 256;
    let mtu = if found.mtu <= most {
        ok(
            "mtu",
            format!("{} bytes fit a frame of {FRAME_BYTES}", found.mtu),
        )
    } else {
        not_ok(
            "mtu",
            CheckStatus::Warning,
            format!("{} bytes do not fit a frame of {FRAME_BYTES}", found.mtu),
            match (found.mtu + 256).next_power_of_two() {
                fits @ ..=32_768 => format!("`frame_bytes = {fits}` under `[node]`"),
                _ => format!("`ip link set dev {name} mtu 1500`"),
            },
        )
    };
    let mut checks = vec![link, mtu, queues(name), foreign_program(name, found.index)];
    checks.extend(offloads(name));
    checks
}

fn queues(name: &str) -> DoctorCheck {
    let queues = fs::read_dir(format!("/sys/class/net/{name}/queues")).map_or(1, |entries| {
        entries
            .filter_map(Result::ok)
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("rx-"))
            .count()
    });
    ok(
        "queues",
        format!("{queues} to receive from: as many workers get packets without a handoff"),
    )
}

/// An interface has room for one program: who holds it keeps the node out.
fn foreign_program(name: &str, index: u32) -> DoctorCheck {
    let check = "xdp_program";
    match attached_xdp(index) {
        Ok(None) => ok(check, "none attached"),
        Ok(Some(program)) => {
            let place = match program.place {
                XdpAttachment::Native => "in the driver",
                XdpAttachment::Generic => "on skbs",
                XdpAttachment::Offloaded => "on the device",
                XdpAttachment::Several => "in several places",
            };
            let id = program.program_id;
            let (owner, remedy) = match &holders(id)[..] {
                [] => (
                    "which no process that we may look into holds".to_owned(),
                    format!(
                        "`ip link set dev {name} xdp off`, or run this as root to see who holds it"
                    ),
                ),
                [first, ..] => (
                    format!("held by {first}"),
                    format!("stop it (`kill {}`)", first.pid),
                ),
            };
            not_ok(
                check,
                CheckStatus::Failed,
                format!("program {id}, {owner}, is attached {place}"),
                remedy,
            )
        }
        Err(error) => not_ok(
            check,
            CheckStatus::Warning,
            format!("the kernel does not tell: {error}"),
            "ask `ip link show`",
        ),
    }
}

/// A process that keeps a program, or the link that attaches it, open.
struct Holder {
    pid: u32,
    name: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({})", self.pid, self.name)
    }
}

/// Finds the processes that hold a BPF program: the kernel names its id in what it tells of their
/// descriptors. Those that we may not look into are left out.
fn holders(program_id: u32) -> Vec<Holder> {
    let line = format!("prog_id:\t{program_id}");
    let holds = |pid: u32| {
        let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fdinfo")) else {
            return false;
        };
        descriptors.filter_map(Result::ok).any(|descriptor| {
            fs::read_to_string(descriptor.path())
                .is_ok_and(|text| text.lines().any(|found| found == line))
        })
    };
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let mut pids: Vec<u32> = processes
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    pids.sort_unstable();
    pids.into_iter()
        .filter(|&pid| holds(pid))
        .map(|pid| Holder {
            pid,
            name: fs::read_to_string(format!("/proc/{pid}/comm"))
                .map_or_else(|_| "?".to_owned(), |name| name.trim().to_owned()),
        })
        .collect()
}

/// What the kernel merges or leaves unfinished; the drivers undo it, at a cost.
fn offloads(name: &str) -> Option<DoctorCheck> {
    let ethtool = Ethtool::open(name).ok()?;
    let on: Vec<_> = [
        ("tso", Offload::TcpSegmentation),
        ("gso", Offload::GenericSegmentation),
        ("gro", Offload::GenericReceive),
        ("tx checksums", Offload::TxChecksum),
    ]
    .into_iter()
    .filter(|(_, offload)| ethtool.offload(*offload).unwrap_or(false))
    .map(|(name, _)| name)
    .collect();
    Some(ok(
        "offloads",
        if on.is_empty() {
            "off".to_owned()
        } else {
            format!("on: {}; the drivers undo them", on.join(", "))
        },
    ))
}

/// Tries the drivers, best first. The programs tried give no packet to the probe: the kernel goes on
/// as before. Attaching to a physical interface may pause its link, so that needs it to be `named`.
fn probe(name: &str, named: bool) -> Vec<ModeProbe> {
    let physical = fs::metadata(format!("/sys/class/net/{name}/device")).is_ok();
    let xdp = |place, copying| AfXdpSpec {
        place,
        copying,
        filter: Filter::Only(vec![PacketMatch::EtherType(UNUSED_ETHER_TYPE)]),
        promiscuous: false,
        ring_entries: PROBE_FRAMES / 4,
        ..AfXdpSpec::new(name)
    };
    let modes = [
        (
            "af_xdp native zero-copy",
            xdp(Place::Native, Copying::ZeroCopy),
        ),
        ("af_xdp native copy", xdp(Place::Native, Copying::Copy)),
        ("af_xdp generic copy", xdp(Place::Generic, Copying::Copy)),
    ];
    let mut probes: Vec<_> = modes
        .into_iter()
        .map(|(mode, spec)| {
            if physical && !named {
                ModeProbe {
                    mode: mode.to_owned(),
                    accepted: false,
                    reason: Some(format!(
                        "not tried: it may pause the link for a moment; `tidegate doctor {name}` tries it"
                    )),
                }
            } else {
                try_mode(mode, DriverSpec::AfXdp(spec))
            }
        })
        .collect();
    let packet = AfPacketSpec {
        promiscuous: false,
        ..AfPacketSpec::new(name)
    };
    probes.push(try_mode("af_packet", DriverSpec::AfPacket(packet)));
    probes
}

fn try_mode(mode: &str, driver: DriverSpec) -> ModeProbe {
    let refused = |reason: String| ModeProbe {
        mode: mode.to_owned(),
        accepted: false,
        reason: Some(reason),
    };
    let mut pool = match Pool::new(PROBE_FRAMES, FRAME_BYTES, HugePages::Never) {
        Ok(pool) => pool,
        Err(error) => return refused(error.to_string()),
    };
    let spec = PortSpec::new(PortId(0), "probe", driver);
    match port::open(&spec, pool.region(), 1) {
        Ok(mut open) => {
            for queue in &mut open.queues {
                queue.close(&mut pool);
            }
            ModeProbe {
                mode: mode.to_owned(),
                accepted: true,
                reason: (!open.refused.is_empty()).then(|| open.refused.join("; ")),
            }
        }
        // the interface and the mode stand above it already
        Err(OpenError::EveryModeRefused { reasons, .. }) => refused(reasons.join("; ")),
        Err(error) => refused(format!("{:#}", anyhow::Error::from(error))),
    }
}
