//! Virtual devices of DPDK between a node and the sides of a [`Line`], so that what is tested over kernel
//! interfaces can be tested over them.
//!
//! net_af_packet and net_af_xdp take the node's ends of the wires. net_tap makes interfaces that are moved to
//! the sides. net_memif and net_vhost end at a socket, behind which another process, testpmd, is the other end
//! (a memif client; virtio-user) and passes frames on to the wires.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::need;
use crate::netns::NetnsError;
use crate::peer::testpmd::{Testpmd, TestpmdError, TestpmdOptions};
use crate::topology::{Line, Side};

/// A kind of virtual device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vdev {
    /// net_af_packet.
    AfPacket,
    /// net_af_xdp.
    AfXdp,
    /// net_tap.
    Tap,
    /// net_memif, server of a client in another process.
    Memif,
    /// net_vhost, with virtio-user in another process.
    Vhost,
}

impl Vdev {
    /// Returns its driver's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AfPacket => "net_af_packet",
            Self::AfXdp => "net_af_xdp",
            Self::Tap => "net_tap",
            Self::Memif => "net_memif",
            Self::Vhost => "net_vhost",
        }
    }

    /// Tells whether another process is at the other end.
    pub const fn has_relay(self) -> bool {
        matches!(self, Self::Memif | Self::Vhost)
    }
}

/// Why the devices are not connected.
#[derive(Debug, thiserror::Error)]
pub enum VdevError {
    /// A namespace or link cannot be changed.
    #[error(transparent)]
    Netns(#[from] NetnsError),
    /// testpmd does not run.
    #[error(transparent)]
    Testpmd(#[from] TestpmdError),
    /// A file or a program is missing.
    #[error("cannot {what}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// The system's answer.
        source: std::io::Error,
    },
}

/// The devices of one node. What is made for them goes with it.
#[derive(Debug)]
pub struct Vdevs {
    kind: Vdev,
    /// Where sockets are.
    directory: PathBuf,
    // Dropped in this order: testpmd first.
    relay: Option<Testpmd>,
    pages: Option<HugePages>,
}

impl Vdevs {
    /// Prepares devices of a kind; `directory` is where their sockets may be.
    pub fn new(kind: Vdev, directory: impl Into<PathBuf>) -> Self {
        Self {
            kind,
            directory: directory.into(),
            relay: None,
            pages: None,
        }
    }

    /// Returns the device of the node's port to a side, as the key `device` takes it.
    pub fn device(&self, side: &Side) -> String {
        let (kind, end) = (self.kind.name(), &side.node_device);
        let socket = self.socket(side);
        match self.kind {
            Vdev::AfPacket | Vdev::AfXdp => format!("{kind}_{end},iface={end}"),
            Vdev::Tap => format!("{kind}_{end},iface={}", tap(side)),
            Vdev::Memif => format!("{kind}_{end},role=server,socket-abstract=no,socket={socket}"),
            Vdev::Vhost => format!("{kind}_{end},iface={socket},queues=1"),
        }
    }

    /// Returns their kind.
    pub fn kind(&self) -> Vdev {
        self.kind
    }

    fn socket(&self, side: &Side) -> String {
        let name = format!("{}.sock", side.node_device);
        self.directory.join(name).display().to_string()
    }

    /// Connects the running node's devices to the sides. `readdress` gives a side addresses and routes beside
    /// those of the line, where its interface is a new one.
    ///
    /// # Errors
    /// The kernel or testpmd refuses.
    pub fn connect(
        &mut self,
        line: &Line,
        readdress: impl Fn(&Side, &Side),
    ) -> Result<(), VdevError> {
        match self.kind {
            Vdev::AfPacket | Vdev::AfXdp => Ok(()),
            Vdev::Tap => {
                for (side, other) in [(&line.left, &line.right), (&line.right, &line.left)] {
                    replace_by_tap(line, side, other)?;
                    readdress(side, other);
                }
                Ok(())
            }
            Vdev::Memif | Vdev::Vhost => self.relay(line),
        }
    }

    fn relay(&mut self, line: &Line) -> Result<(), VdevError> {
        if self.kind == Vdev::Vhost {
            let what = "reserve huge pages for virtio-user";
            let pages = HugePages::reserve(128).map_err(|source| VdevError::Io { what, source })?;
            self.pages = Some(pages);
        }
        let mut vdevs = Vec::new();
        for (number, side) in [&line.left, &line.right].into_iter().enumerate() {
            let socket = self.socket(side);
            // net_af_packet would have the kernel put fragments together.
            vdevs.push(format!("net_af_xdp{number},iface={}", side.node_device));
            vdevs.push(match self.kind {
                Vdev::Vhost => format!("net_virtio_user{number},path={socket}"),
                _ => format!("net_memif{number},role=client,socket-abstract=no,socket={socket}"),
            });
        }
        let cpus = io::cpu::allowed().unwrap_or_default();
        let mut testpmd = Testpmd::start(
            Some(&line.node),
            &TestpmdOptions {
                vdevs,
                forward_cpu: cpus.last().map_or(0, |cpu| usize::from(*cpu)),
                main_cpu: cpus.first().map_or(0, |cpu| usize::from(*cpu)),
                mbufs: 16_384,
                ..TestpmdOptions::default()
            },
        )?;
        testpmd.wait_until_forwarding()?;
        self.relay = Some(testpmd);
        Ok(())
    }
}

fn tap(side: &Side) -> String {
    format!("t{}", side.node_device)
}

/// Gives a side the node's TAP interface in place of its end of the wire.
fn replace_by_tap(line: &Line, side: &Side, other: &Side) -> Result<(), VdevError> {
    let name = tap(side);
    // The device is looked for by its name until it runs; that it is promiscuous comes last.
    let runs = || {
        let mut show = line.node.command("ip");
        let shown = show.args(["-o", "link", "show", "dev", &name]).output();
        shown.is_ok_and(|shown| String::from_utf8_lossy(&shown.stdout).contains("PROMISC"))
    };
    let end = Instant::now() + Duration::from_secs(20);
    while !runs() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(5));
    }
    line.node.links()?.move_to(&name, &side.namespace)?;
    let mut links = side.namespace.links()?;
    links.remove(&side.device)?;
    let mut rename = side.namespace.command("ip");
    let renamed = rename
        .args(["link", "set", &name, "down", "name", &side.device])
        .status();
    let failed = match renamed {
        Ok(status) if status.success() => None,
        Ok(_) => Some(std::io::Error::other("`ip link set ... name` failed")),
        Err(error) => Some(error),
    };
    if let Some(source) = failed {
        let what = "rename the TAP interface";
        return Err(VdevError::Io { what, source });
    }
    links.set_mac(&side.device, side.mac)?;
    links.set_up_and_wait(&side.device, Duration::from_secs(5))?;
    links.add_address(&side.device, side.address(), 24)?;
    links.add_route(other.network(), 24, side.node_address())?;
    Ok(())
}

/// Huge pages (2 MiB) beside those that the machine has reserved, given back when it is dropped.
#[derive(Debug)]
pub struct HugePages {
    before: u64,
}

const PAGES: &str = "/proc/sys/vm/nr_hugepages";
/// How often the kernel is asked for them.
const RESERVATIONS: u32 = 10;

impl HugePages {
    /// Reserves `pages` more; the kernel may find fewer.
    ///
    /// # Errors
    /// The caller is not root.
    pub fn reserve(pages: u64) -> std::io::Result<Self> {
        let before = std::fs::read_to_string(PAGES)?;
        let before: u64 = before.trim().parse().unwrap_or(0);
        let reserved = Self { before };
        // A machine that is busy needs a moment to make room.
        for _ in 0..RESERVATIONS {
            std::fs::write(PAGES, (before + pages).to_string())?;
            let now: u64 = std::fs::read_to_string(PAGES)?.trim().parse().unwrap_or(0);
            if now >= before + pages {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(reserved)
    }

    /// Returns how many are free now.
    pub fn free() -> u64 {
        let file = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";
        let text = std::fs::read_to_string(file).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        // Who took the permission away meanwhile keeps the pages.
        let _ = std::fs::write(PAGES, self.before.to_string());
    }
}

/// Huge pages and a hugetlbfs, as processes need that share DPDK; both are as before when it is dropped.
#[derive(Debug)]
pub struct SharedMemory {
    mount: Option<PathBuf>,
    _pages: HugePages,
}

impl SharedMemory {
    /// Makes `pages` huge pages free, for a test of that name; says loudly if it cannot be.
    pub fn get(test: &str, pages: u64) -> Option<Self> {
        if !need::root(test) || !need::program(test, "mount") {
            return None;
        }
        let reserved = HugePages::reserve(pages + pages / 2).ok()?;
        let what = format!("{pages} huge pages of 2 MiB");
        if !need::need(test, &what, HugePages::free() >= pages) {
            return None;
        }
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let mounted = |line: &str| line.split(' ').nth(2) == Some("hugetlbfs");
        let mount = if mounts.lines().any(mounted) {
            None
        } else {
            let name = format!("tidegate-lab-huge-{}", std::process::id());
            let directory = std::env::temp_dir().join(name);
            std::fs::create_dir_all(&directory).ok()?;
            let mut mount = Command::new("mount");
            let mount = mount.args(["-t", "hugetlbfs", "none"]).arg(&directory);
            let done = mount.status().is_ok_and(|status| status.success());
            if !need::need(test, "a hugetlbfs", done) {
                return None;
            }
            Some(directory)
        };
        Some(Self {
            mount,
            _pages: reserved,
        })
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        if let Some(directory) = &self.mount {
            let _ = Command::new("umount").arg(directory).status();
            let _ = std::fs::remove_dir(directory);
        }
    }
}
