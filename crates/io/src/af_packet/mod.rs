//! Driver `af_packet`: mapped rings of the kernel's packet sockets, on any interface, also in a user
//! namespace without privilege.
//!
//! Choices, and why:
//! - **TPACKET_V2** for receiving: version 3 hands over blocks, and a block that is not full waits for a
//!   timer of at least a millisecond. Version 2 hands over each frame at once, which is what a forwarder
//!   needs.
//! - **Offloads are undone here** (`PACKET_VNET_HDR`). What a local kernel stack sends over a veth has
//!   partial checksums and segments of up to 64 KiB; the interface to tell it not to is at the other end,
//!   not ours. Checksums are finished and super-frames are cut when they are received, so that every frame
//!   in the node is what a wire would carry. Frames that do not fit a slot come through the socket
//!   (`PACKET_COPY_THRESH`), so that slots stay small.
//! - **Sending copies** the whole frame into a linear buffer in the kernel (`hdr_len` of the vnet header).
//!   Otherwise the kernel sends references to the ring's pages; a veth, which must not keep them, then
//!   allocates pages and copies after all (and before Linux 4.20 did not, so that a slot was overwritten
//!   before the receiver had read it).
//! - The kernel's own stack sees every received frame, too. Give the interface no address in its
//!   namespace, or it will answer as well.

mod queue;
#[expect(
    unsafe_code,
    reason = "reads and writes rings that the kernel shares, with system calls"
)]
mod socket;

use std::io;
use std::sync::Arc;

use crate::bpf::Program;
use crate::interface::Interface;
use crate::pool::Region;
use crate::port::{OpenError, OpenPort, PortSpec};
use crate::queue::{Capabilities, Interrupt, Queue};

use queue::PacketQueue;
use socket::PacketSocket;

/// Settings of an `af_packet` port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AfPacketSpec {
    /// The kernel's interface.
    pub interface: String,
    /// Frames that a queue's receive ring holds. A worker that is away for 10 ms at 200,000 frames a second
    /// needs 2,000.
    pub rx_slots: u32,
    /// Frames that a queue's transmit ring holds.
    pub tx_slots: u32,
    /// Receive what is addressed to others, too: a bridge and a tester need it, a router does not.
    pub promiscuous: bool,
    /// Send past the traffic control of the interface.
    pub qdisc_bypass: bool,
    /// Which frames the sockets receive; without it, all.
    pub filter: Option<PacketFilter>,
}

/// A program of the kind [`ProgramKind::SocketFilter`](crate::bpf::ProgramKind): it returns how many bytes of a frame
/// a socket receives.
#[derive(Clone, Debug)]
pub struct PacketFilter(pub Arc<Program>);

impl PartialEq for PacketFilter {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for PacketFilter {}

impl AfPacketSpec {
    /// Returns the usual settings: 2,048 and 1,024 slots, promiscuous, without traffic control.
    pub fn new(interface: impl Into<String>) -> Self {
        Self {
            interface: interface.into(),
            rx_slots: 2048,
            tx_slots: 1024,
            promiscuous: true,
            qdisc_bypass: true,
            filter: None,
        }
    }
}

/// Bytes of a slot besides the frame: headers, alignment, vnet header, a VLAN tag or two.
const SLOT_OVERHEAD_BYTES: u32 = 128;

/// Bytes of an Ethernet header with two VLAN tags.
const ETHERNET_BYTES: u32 = 22;

/// Bytes that the kernel may hold in frames that did not fit their slots, a queue.
const SUPER_FRAME_BYTES: libc::c_int = 8 << 20;

/// Opens an interface: a queue for each worker, with the kernel hashing flows to them. `refused` says what
/// was tried before.
pub(crate) fn open(
    spec: &PortSpec,
    settings: &AfPacketSpec,
    region: &Arc<Region>,
    workers: u16,
    refused: Vec<String>,
) -> Result<OpenPort, OpenError> {
    let interface = Interface::get(&settings.interface).map_err(|source| {
        if source.raw_os_error() == Some(libc::ENODEV) {
            return OpenError::NoInterface {
                port: spec.name.clone(),
                interface: settings.interface.clone(),
            };
        }
        OpenError::os(&spec.name, "reading the interface's settings", source)
    })?;
    if !interface.ethernet {
        return Err(OpenError::unusable(
            &spec.name,
            format!("{} does not carry Ethernet frames", interface.name),
        ));
    }
    Interface::set_up(&interface.name)
        .map_err(|e| OpenError::os(&spec.name, "setting the interface up", e))?;
    let opener = Opener {
        spec,
        settings,
        interface: &interface,
        room: region.room_bytes(),
    };
    let receivers = opener.receivers(workers)?;
    let mut queues: Vec<Box<dyn Queue>> = Vec::with_capacity(receivers.len());
    let capabilities = Capabilities {
        refused,
        ..opener.capabilities(workers)
    };
    for receiver in receivers {
        queues.push(Box::new(opener.queue(receiver, capabilities.clone())?));
    }
    Ok(OpenPort {
        id: spec.id,
        name: spec.name.clone(),
        queues,
        mac: interface.mac,
        mtu: opener.mtu(),
        // Read again: setting it up may have changed it.
        link: Interface::get(&interface.name).map_or(interface.link, |now| now.link),
        interface: Some(interface.name.clone()),
        driver: "af_packet",
        mode: capabilities.mode,
        refused: capabilities.refused,
    })
}

/// What the steps of opening share.
struct Opener<'a> {
    spec: &'a PortSpec,
    settings: &'a AfPacketSpec,
    interface: &'a Interface,
    /// Bytes that a frame of the pool holds behind its headroom.
    room: u32,
}

impl Opener<'_> {
    fn os(&self, doing: &'static str) -> impl Fn(io::Error) -> OpenError {
        let port = self.spec.name.clone();
        move |source| OpenError::os(&port, doing, source)
    }

    /// Returns the largest packet that both the interface and a frame of the pool can hold.
    fn mtu(&self) -> u16 {
        let mtu = self.interface.mtu.min(self.room - ETHERNET_BYTES);
        mtu.min(u32::from(u16::MAX)) as u16
    }

    fn max_frame_bytes(&self) -> u32 {
        u32::from(self.mtu()) + ETHERNET_BYTES
    }

    fn slot_bytes(&self) -> u32 {
        (self.max_frame_bytes() + SLOT_OVERHEAD_BYTES)
            .max(2048)
            .next_power_of_two()
    }

    fn capabilities(&self, workers: u16) -> Capabilities {
        let fanout = if workers > 1 { ", fanout by flow" } else { "" };
        let bypass = if self.settings.qdisc_bypass {
            ", qdisc bypass"
        } else {
            ""
        };
        Capabilities {
            driver: "af_packet",
            mode: format!("mapped rings (TPACKET_V2){fanout}{bypass}"),
            interrupt: Interrupt::Level,
            max_frame_bytes: self.max_frame_bytes().min(u32::from(u16::MAX)) as u16,
            zero_copy: false,
            rss: workers > 1,
            offloads: crate::Offloads::empty(),
            refused: Vec::new(),
        }
    }

    /// Opens the receiving sockets, joins them to a fanout group, and only then lets frames in.
    fn receivers(&self, workers: u16) -> Result<Vec<(PacketSocket, socket::Ring)>, OpenError> {
        let mut receivers = Vec::with_capacity(usize::from(workers));
        let mut group = 0;
        for worker in 0..workers {
            let socket = PacketSocket::new().map_err(self.os("opening a packet socket"))?;
            let ring = self
                .receive_ring(&socket)
                .map_err(self.os("mapping a receive ring"))?;
            // Until all are members each would get every frame.
            socket
                .discard(true)
                .map_err(self.os("attaching a filter"))?;
            socket
                .bind(self.interface.index, true)
                .map_err(self.os("binding to the interface"))?;
            if workers > 1 {
                group = self
                    .join(&socket, worker == 0, group)
                    .map_err(self.os("joining the fanout group"))?;
            }
            receivers.push((socket, ring));
        }
        for (socket, _) in &receivers {
            let let_in = match &self.settings.filter {
                Some(filter) => socket.filter(&filter.0),
                None => socket.discard(false),
            };
            let_in.map_err(self.os("changing the filter"))?;
        }
        Ok(receivers)
    }

    fn receive_ring(&self, socket: &PacketSocket) -> io::Result<socket::Ring> {
        let version: libc::c_int = libc::tpacket_versions::TPACKET_V2 as libc::c_int;
        socket.set(libc::PACKET_VERSION, &version)?;
        socket.set(libc::PACKET_VNET_HDR, &1_i32)?;
        socket.set(libc::PACKET_COPY_THRESH, &1_i32)?;
        socket.set(libc::PACKET_IGNORE_OUTGOING, &1_i32)?;
        // Without privilege the first is refused and the second is capped by net.core.rmem_max.
        let force = socket.set_at(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &SUPER_FRAME_BYTES);
        if force.is_err() {
            socket.set_at(libc::SOL_SOCKET, libc::SO_RCVBUF, &SUPER_FRAME_BYTES)?;
        }
        if self.settings.promiscuous {
            let membership = libc::packet_mreq {
                mr_ifindex: self.interface.index as libc::c_int,
                mr_type: libc::PACKET_MR_PROMISC as libc::c_ushort,
                mr_alen: 0,
                mr_address: [0; 8],
            };
            socket.set(libc::PACKET_ADD_MEMBERSHIP, &membership)?;
        }
        socket.ring(
            libc::PACKET_RX_RING,
            self.slot_bytes(),
            self.settings.rx_slots,
        )
    }

    /// Makes a fanout group (the kernel picks a free number) or joins it; returns its number.
    fn join(&self, socket: &PacketSocket, first: bool, group: u32) -> io::Result<u32> {
        let flags = if first {
            libc::PACKET_FANOUT_FLAG_UNIQUEID
        } else {
            0
        };
        let argument = group | ((libc::PACKET_FANOUT_HASH | flags) << 16);
        socket.set(libc::PACKET_FANOUT, &argument)?;
        Ok(socket.get(libc::PACKET_FANOUT)? as u32 & 0xffff)
    }

    fn queue(
        &self,
        (rx_socket, rx): (PacketSocket, socket::Ring),
        capabilities: Capabilities,
    ) -> Result<PacketQueue, OpenError> {
        let tx_socket = PacketSocket::new().map_err(self.os("opening a packet socket"))?;
        let tx = self
            .transmit_ring(&tx_socket)
            .map_err(self.os("mapping a transmit ring"))?;
        Ok(PacketQueue::new(
            self.spec.id,
            rx_socket,
            rx,
            tx_socket,
            tx,
            capabilities,
        ))
    }

    fn transmit_ring(&self, socket: &PacketSocket) -> io::Result<socket::Ring> {
        let version: libc::c_int = libc::tpacket_versions::TPACKET_V2 as libc::c_int;
        socket.set(libc::PACKET_VERSION, &version)?;
        socket.set(libc::PACKET_VNET_HDR, &1_i32)?;
        // A frame that the kernel does not like is skipped; else it would block the ring.
        socket.set(libc::PACKET_LOSS, &1_i32)?;
        if self.settings.qdisc_bypass {
            socket.set(libc::PACKET_QDISC_BYPASS, &1_i32)?;
        }
        let force = socket.set_at(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SUPER_FRAME_BYTES);
        if force.is_err() {
            socket.set_at(libc::SOL_SOCKET, libc::SO_SNDBUF, &SUPER_FRAME_BYTES)?;
        }
        let ring = socket.ring(
            libc::PACKET_TX_RING,
            self.slot_bytes(),
            self.settings.tx_slots,
        )?;
        socket.bind(self.interface.index, false)?;
        Ok(ring)
    }
}
