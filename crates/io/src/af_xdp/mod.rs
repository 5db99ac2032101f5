//! AF_XDP: frames straight from a driver's receive path into the node's memory, and back, without the
//! kernel's network stack.
//!
//! # How it works
//! A small XDP program (assembled and loaded by [`crate::bpf`], no compiler and no library) redirects the
//! packets that the node wants to the socket of their interface and receive queue and leaves the rest to
//! the kernel ([`crate::bpf::Filter`]). Ports with the same filter share it. It is attached to each as a
//! BPF link: when the process ends, however it ends, the interfaces are normal ones again.
//!
//! The sockets of all ports share one registration of the node's [`Region`](crate::Region) (umem), so
//! that a frame received on one port is sent on another by passing its slot: from one socket's RX ring
//! to the other's TX ring, and back by its completion ring to the pool of the worker that sent it.
//!
//! # Modes
//! Tried in this order, each refusal kept with its reason in
//! [`Capabilities::refused`](crate::Capabilities::refused): `native zero-copy` (the driver moves frames
//! by DMA), `native copy` (the kernel copies once, before it makes an skb), `generic copy` (after it
//! has made one; any driver). Busy polling (`SO_PREFER_BUSY_POLL`) is used where the kernel knows the
//! queue's NAPI id; on others it would be accepted and have no effect.
//!
//! # Unfinished checksums
//! A kernel that sends into a virtual link (veth) leaves TCP and UDP checksums to the device, and an
//! XDP program on the other side gets the frames before anyone computed them. The same goes, in generic
//! mode, for segments larger than the MTU (a kernel takes those offloads off a veth by itself when a
//! native program is attached to its peer). Two remedies, of which one is enough for checksums:
//! - turn the offloads of the sending side off where that is in your hands:
//!   [`Ethtool::disable_offloads`](crate::ethtool::Ethtool::disable_offloads);
//! - let the driver finish them ([`PartialChecksums`]; the default on veth). A frame whose field holds
//!   just the pseudo-header's sum is completed when it is received. The look costs a few nanoseconds a
//!   frame, finishing what a checksum over its bytes costs.
//!
//! # Limits
//! Frames in one piece only: the MTU has to fit a slot less 256 bytes (a 2048-byte slot: 1774 bytes,
//! a 4096-byte slot: 3822). A socket takes its queue away from the kernel except for what the filter
//! leaves it. Copy mode sends by system call, on the calling worker's core.

#[expect(unsafe_code, reason = "asks netlink, which std does not have")]
mod attached;
#[expect(unsafe_code, reason = "joins promiscuous mode by a socket option")]
mod attachment;
mod held;
mod open;
mod partial;
#[expect(unsafe_code, reason = "takes frames back from the kernel")]
mod queue;
mod redirect;
mod refusal;
#[expect(unsafe_code, reason = "maps rings and shares them with the kernel")]
mod ring;
#[expect(unsafe_code, reason = "AF_XDP has system calls and options of its own")]
mod socket;
mod umem;

use crate::af_packet::PacketFilter;
use crate::bpf::Front;
pub use crate::bpf::{Filter, PacketMatch};
pub use attached::{AttachedXdp, XdpAttachment, attached_xdp};
pub(crate) use open::open;

/// Largest number of entries of a ring that is worth its memory.
const RING_ENTRIES_MAX: u32 = 16_384;

/// Where in the kernel packets are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// In the driver if it can, else on skbs.
    #[default]
    Auto,
    /// In the driver or not at all.
    Native,
    /// On skbs.
    Generic,
}

/// Whether frames are copied between the driver and the node's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Copying {
    /// Without a copy if the driver can, else with one.
    #[default]
    Auto,
    /// Without a copy or not at all.
    ZeroCopy,
    /// With a copy.
    Copy,
}

/// What to do about TCP and UDP checksums that a kernel left to a device that is not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PartialChecksums {
    /// Finish them on interfaces that can deliver such frames (veth), and in generic mode.
    #[default]
    Auto,
    /// Finish them.
    Finish,
    /// Do not look: all senders finish theirs.
    Trust,
}

/// The settings of an AF_XDP port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AfXdpSpec {
    /// The kernel's interface.
    pub interface: String,
    /// Where packets are taken.
    pub place: Place,
    /// Whether frames are copied.
    pub copying: Copying,
    /// Entries of each of the four rings of a queue: a power of two. As many frames wait in the kernel
    /// for packets at most.
    pub ring_entries: u32,
    /// Which packets the node gets.
    pub filter: Filter,
    /// Take packets for all MAC addresses. A bridge needs it.
    pub promiscuous: bool,
    /// How long the kernel may poll the device in a receive call, microseconds; 0: never.
    pub busy_poll_us: u32,
    /// What to do about unfinished checksums.
    pub partial_checksums: PartialChecksums,
    /// A program that sees the frames first, on the same attachment.
    pub front: Option<Front>,
    /// The filter of packet sockets where [`DriverSpec::Auto`](crate::port::DriverSpec) takes these instead.
    pub packet_filter: Option<PacketFilter>,
}

impl AfXdpSpec {
    /// Names an interface and takes the defaults for the rest.
    pub fn new(interface: impl Into<String>) -> Self {
        Self {
            interface: interface.into(),
            place: Place::Auto,
            copying: Copying::Auto,
            ring_entries: 2048,
            filter: Filter::Everything,
            promiscuous: true,
            busy_poll_us: 20,
            partial_checksums: PartialChecksums::Auto,
            front: None,
            packet_filter: None,
        }
    }
}
