//! Opens an AF_XDP port: tries the modes in order and keeps the reasons of those that are refused.

use std::sync::Arc;

use super::attachment::{Attachment, ReducedChannels};
use super::queue::{Parts, XdpQueue};
use super::umem::{BindKind, Umem};
use super::{AfXdpSpec, Copying, PartialChecksums, Place, RING_ENTRIES_MAX, refusal};
use crate::bpf::AttachMode;
use crate::ethtool::{Channels, Ethtool};
use crate::interface::Interface;
use crate::pool::{HEADROOM_BYTES, Region};
use crate::port::{OpenError, OpenPort, PortSpec};
use crate::queue::{Capabilities, Interrupt, Queue};

/// Bytes of a frame that the MTU does not count: Ethernet header and one VLAN tag.
const LINK_BYTES: u32 = 18;
/// Largest slot that the kernel takes in normal pages, bytes.
const PAGE_BYTES: u32 = 4096;

/// A port being opened.
struct Opening<'a> {
    port: &'a PortSpec,
    spec: &'a AfXdpSpec,
    interface: Interface,
    umem: Arc<Umem>,
    channels: Channels,
    queues: u32,
    /// The name of the kernel's driver, e.g. `veth`.
    driver: String,
    refused: Vec<String>,
}

/// Opens the queues of a port: as many as there are workers, or as the interface has.
///
/// # Errors
/// What is missing, refused or impossible, with the remedy; if all modes are refused, all reasons.
pub(crate) fn open(
    port: &PortSpec,
    spec: &AfXdpSpec,
    region: &Arc<Region>,
    workers: u16,
) -> Result<OpenPort, OpenError> {
    let interface = find_interface(port, spec)?;
    check_sizes(port, spec, &interface, region)?;
    let os = |doing, error| OpenError::os(&port.name, doing, error);
    let ethtool = Ethtool::open(&spec.interface).map_err(|error| os("opening it", error))?;
    let channels = ethtool
        .channels()
        .map_err(|error| os("reading its queues", error))?;
    let queues = u32::from(workers)
        .min(channels.rx_queues())
        .min(channels.tx_queues())
        .max(1);
    let mut opening = Opening {
        port,
        spec,
        interface,
        umem: Umem::of(region),
        channels,
        queues,
        driver: ethtool.driver().unwrap_or_default(),
        refused: Vec::new(),
    };
    opening.reduce_and_try(ethtool)
}

fn find_interface(port: &PortSpec, spec: &AfXdpSpec) -> Result<Interface, OpenError> {
    let find = || {
        let interface = Interface::get(&spec.interface)?;
        Interface::set_up(&spec.interface)?;
        Ok(interface)
    };
    find().map_err(|error: std::io::Error| match error.raw_os_error() {
        Some(libc::ENODEV) => OpenError::NoInterface {
            port: port.name.clone(),
            interface: spec.interface.clone(),
        },
        _ => OpenError::os(&port.name, "setting the interface up", error),
    })
}

/// Refuses sizes that cannot work before anything is attached.
fn check_sizes(
    port: &PortSpec,
    spec: &AfXdpSpec,
    interface: &Interface,
    region: &Region,
) -> Result<(), OpenError> {
    let slot = region.frame_bytes();
    let room = slot - u32::from(HEADROOM_BYTES);
    let fits = room - LINK_BYTES;
    if !spec.ring_entries.is_power_of_two() || spec.ring_entries > RING_ENTRIES_MAX {
        return Err(OpenError::unusable(
            &port.name,
            format!(
                "{} ring entries: AF_XDP wants a power of two up to {RING_ENTRIES_MAX}",
                spec.ring_entries
            ),
        ));
    }
    if slot > PAGE_BYTES && !region.is_huge() {
        return Err(OpenError::unusable(
            &port.name,
            format!(
                "AF_XDP takes frames of {slot} bytes in huge pages only \
                 (set frame_bytes to 4096, or reserve huge pages)"
            ),
        ));
    }
    if interface.mtu > fits {
        let larger = if slot < PAGE_BYTES {
            " or frame_bytes to 4096"
        } else {
            ""
        };
        return Err(OpenError::unusable(
            &port.name,
            format!(
                "the MTU of {}, {}, is too large for one AF_XDP frame of {slot} bytes \
                 (set the MTU to at most {fits}{larger})",
                spec.interface, interface.mtu
            ),
        ));
    }
    Ok(())
}

impl Opening<'_> {
    /// Cuts the receive queues down to those that have a worker, then tries the modes.
    fn reduce_and_try(&mut self, ethtool: Ethtool) -> Result<OpenPort, OpenError> {
        let reduced = if self.channels.rx_queues() > self.queues {
            let reduced = ReducedChannels::new(ethtool, self.channels, self.queues);
            Some(reduced.map_err(|error| {
                OpenError::unusable(
                    &self.port.name,
                    format!(
                        "{} receives on {} queues, and {} have a worker; the number cannot be changed: \
                         {error} (use more workers)",
                        self.spec.interface,
                        self.channels.rx_queues(),
                        self.queues
                    ),
                )
            })?)
        } else {
            None
        };
        let places: &[AttachMode] = match self.spec.place {
            Place::Auto => &[AttachMode::Native, AttachMode::Generic],
            Place::Native => &[AttachMode::Native],
            Place::Generic => &[AttachMode::Generic],
        };
        let mut reduced = reduced;
        for &place in places {
            if let Some(port) = self.try_place(place, &mut reduced)? {
                return Ok(port);
            }
        }
        Err(OpenError::EveryModeRefused {
            port: self.port.name.clone(),
            interface: self.spec.interface.clone(),
            reasons: std::mem::take(&mut self.refused),
        })
    }

    /// Attaches the program at a place and tries to bind sockets there.
    fn try_place(
        &mut self,
        place: AttachMode,
        reduced: &mut Option<ReducedChannels>,
    ) -> Result<Option<OpenPort>, OpenError> {
        let name = place_name(place);
        let attached = Attachment::new(
            self.umem.redirects(),
            &self.interface,
            place,
            self.queues,
            self.spec,
        );
        let mut attachment = match attached {
            Ok(attachment) => attachment,
            Err(reason) => {
                self.refused.push(format!("{name}: {reason}"));
                return Ok(None);
            }
        };
        // A veth delivers what its peer sends, whatever the address.
        if self.spec.promiscuous && self.driver != "veth" {
            attachment
                .hold_promiscuous(self.interface.index)
                .map_err(|error| {
                    OpenError::os(&self.port.name, "setting promiscuous mode", error)
                })?;
        }
        attachment.hold_channels(reduced.take());
        let attachment = Arc::new(attachment);
        for kind in self.kinds(place) {
            let mode = format!("{name} {}", kind_name(kind));
            match self.try_kind(place, kind, &attachment) {
                Ok(queues) => return Ok(Some(self.opened(queues))),
                Err(reason) => self.refused.push(format!("{mode}: {reason}")),
            }
        }
        *reduced = Arc::into_inner(attachment).and_then(Attachment::into_channels);
        Ok(None)
    }

    /// The copy modes to try, in order.
    fn kinds(&self, place: AttachMode) -> Vec<BindKind> {
        match (place, self.spec.copying) {
            (AttachMode::Generic, Copying::ZeroCopy) => Vec::new(),
            (AttachMode::Generic, _) | (_, Copying::Copy) => vec![BindKind::Copy],
            (_, Copying::ZeroCopy) => vec![BindKind::ZeroCopy],
            (_, Copying::Auto) => vec![BindKind::ZeroCopy, BindKind::Copy],
        }
    }

    /// Binds a socket to every queue and puts it in the program's map.
    fn try_kind(
        &mut self,
        place: AttachMode,
        kind: BindKind,
        attachment: &Arc<Attachment>,
    ) -> Result<Vec<XdpQueue>, String> {
        let zero_copy = kind == BindKind::ZeroCopy;
        let mut queues = Vec::new();
        let mut note = None;
        for queue in 0..self.queues {
            let socket = self
                .umem
                .bind(self.interface.index, queue, kind, self.spec.ring_entries)
                .map_err(|(step, error)| refusal::bind(zero_copy, queue, step, &error))?;
            let mut busy_poll = false;
            if self.spec.busy_poll_us > 0 {
                busy_poll = socket.napi_id() != 0
                    && socket.prefer_busy_poll(self.spec.busy_poll_us).is_ok();
                if !busy_poll {
                    note.get_or_insert_with(|| refusal::busy_poll(queue));
                }
            }
            let parts = Parts {
                port: self.port.id,
                queue,
                ring_entries: self.spec.ring_entries,
                zero_copy,
                busy_poll,
                finish_partial: self.finish_partial(place),
                socket: Arc::clone(&socket),
                umem: Arc::clone(&self.umem),
                attachment: Arc::clone(attachment),
                capabilities: self.capabilities(place, kind, busy_poll),
            };
            queues.push(
                XdpQueue::new(parts)
                    .map_err(|error| refusal::bind(zero_copy, queue, "ring mapping", &error))?,
            );
            attachment
                .insert(queue, &socket)
                .map_err(|error| format!("queue {queue}: {error}"))?;
        }
        self.refused.extend(note);
        if place == AttachMode::Generic && self.driver == "veth" {
            self.refused.push(refusal::super_frames());
        }
        for queue in &mut queues {
            queue.set_refused(&self.refused);
        }
        Ok(queues)
    }

    /// Tells whether frames with unfinished checksums are to be looked for.
    fn finish_partial(&self, place: AttachMode) -> bool {
        match self.spec.partial_checksums {
            PartialChecksums::Finish => true,
            PartialChecksums::Trust => false,
            PartialChecksums::Auto => place == AttachMode::Generic || self.driver == "veth",
        }
    }

    fn capabilities(&self, place: AttachMode, kind: BindKind, busy_poll: bool) -> Capabilities {
        let busy_poll = if busy_poll { " busy-poll" } else { "" };
        let partial = if self.finish_partial(place) {
            " finish-checksums"
        } else {
            ""
        };
        Capabilities {
            driver: "af_xdp",
            mode: format!(
                "{} {} need-wakeup{busy_poll}{partial}",
                place_name(place),
                kind_name(kind)
            ),
            interrupt: Interrupt::Level,
            max_frame_bytes: (self.interface.mtu + LINK_BYTES).min(u32::from(u16::MAX)) as u16,
            zero_copy: true,
            // A veth's queue is the one that the peer's sender chose; a network card hashes flows.
            rss: self.queues > 1 && self.driver != "veth",
            offloads: crate::Offloads::empty(),
            refused: Vec::new(),
        }
    }

    fn opened(&mut self, queues: Vec<XdpQueue>) -> OpenPort {
        let link = Interface::get(&self.spec.interface)
            .map_or(self.interface.link, |interface| interface.link);
        OpenPort {
            id: self.port.id,
            name: self.port.name.clone(),
            mac: self.interface.mac,
            mtu: self.interface.mtu.min(u32::from(u16::MAX)) as u16,
            link,
            interface: Some(self.spec.interface.clone()),
            driver: "af_xdp",
            mode: queues
                .first()
                .map(|queue| queue.capabilities().mode.clone())
                .unwrap_or_default(),
            refused: core::mem::take(&mut self.refused),
            queues: queues
                .into_iter()
                .map(|queue| Box::new(queue) as Box<dyn Queue>)
                .collect(),
        }
    }
}

fn place_name(place: AttachMode) -> &'static str {
    match place {
        AttachMode::Native => "native",
        AttachMode::Generic => "generic",
    }
}

fn kind_name(kind: BindKind) -> &'static str {
    match kind {
        BindKind::ZeroCopy => "zero-copy",
        BindKind::Copy => "copy",
    }
}
