//! Driver `tap`: an interface that this process creates, one end of which is the kernel's.
//!
//! The kernel hands over segments of up to 64 KiB with partial checksums and this driver cuts and finishes
//! them (`IFF_VNET_HDR`, `TUNSETOFFLOAD`): a frame costs a system call here, and so does a segment of 45
//! frames. The interface is not persistent: it goes when its last descriptor is closed, also by `kill -9`.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;

use crate::batch::Batch;
use crate::frame::{Frame, FrameFlags};
use crate::ids::PortId;
use crate::interface::{self, Interface, Link, MacAddress};
use crate::offload;
use crate::pool::{HEADROOM_BYTES, PREFIX_BYTES, Pool, Region};
use crate::port::{OpenError, OpenPort, PortSpec};
use crate::queue::{Arm, Capabilities, Interrupt, Queue, QueueStats};
use crate::segment::{SuperFrame, VNET_HEADER_BYTES, VnetHeader};

/// Settings of a `tap` port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapSpec {
    /// Name of the interface to create; a `%d` in it becomes the first free number.
    pub interface: String,
    /// Largest packet that the kernel sends to it, bytes; default: the kernel's, 1,500.
    pub mtu: Option<u16>,
    /// MAC address of the kernel's end; default: random. The node's end differs in one bit.
    pub mac: Option<MacAddress>,
}

impl TapSpec {
    /// Returns the usual settings for an interface of that name.
    pub fn new(interface: impl Into<String>) -> Self {
        Self {
            interface: interface.into(),
            mtu: None,
            mac: None,
        }
    }
}

/// Creates the interface, sets it up, and opens a queue of it for each worker.
pub(crate) fn open(
    spec: &PortSpec,
    settings: &TapSpec,
    region: &Arc<Region>,
    workers: u16,
) -> Result<OpenPort, OpenError> {
    let os = |doing: &'static str| move |source| OpenError::os(&spec.name, doing, source);
    let mut name = settings.interface.clone();
    let mut files = Vec::with_capacity(usize::from(workers));
    for _ in 0..workers {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/net/tun")
            .map_err(os("opening /dev/net/tun"))?;
        name = interface::attach_tap(&file, &name, workers > 1)
            .map_err(os("creating the TAP interface"))?;
        files.push(file);
    }
    if let Some(mac) = settings.mac {
        Interface::set_mac(&name, mac).map_err(os("setting the MAC address"))?;
    }
    if let Some(mtu) = settings.mtu {
        Interface::set_mtu(&name, mtu.into()).map_err(os("setting the MTU"))?;
    }
    Interface::set_up(&name).map_err(os("setting the interface up"))?;
    let kernel = Interface::get(&name).map_err(os("reading the interface's settings"))?;
    // A frame's room behind its headroom, less an Ethernet header with two VLAN tags.
    let room = region.room_bytes();
    if kernel.mtu + 22 > room {
        return Err(OpenError::unusable(
            &spec.name,
            format!(
                "an MTU of {} needs frames of {} bytes or more",
                kernel.mtu,
                (kernel.mtu + 22 + u32::from(HEADROOM_BYTES + PREFIX_BYTES)).next_power_of_two()
            ),
        ));
    }
    let queues_word = if workers > 1 { ", multi-queue" } else { "" };
    let capabilities = Capabilities {
        driver: "tap",
        mode: format!("vnet header{queues_word}"),
        interrupt: Interrupt::Level,
        max_frame_bytes: (kernel.mtu + 22) as u16,
        zero_copy: false,
        rss: workers > 1,
        offloads: crate::Offloads::empty(),
        refused: Vec::new(),
    };
    let mode = capabilities.mode.clone();
    let queues = files
        .into_iter()
        .map(|file| {
            Box::new(TapQueue {
                port: spec.id,
                file: Some(file),
                super_frame: SuperFrame::new(),
                capabilities: capabilities.clone(),
                stats: QueueStats::default(),
            }) as Box<dyn Queue>
        })
        .collect();
    let mut mac = kernel.mac;
    mac[5] ^= 1;
    Ok(OpenPort {
        id: spec.id,
        name: spec.name.clone(),
        queues,
        mac,
        mtu: kernel.mtu as u16,
        link: Link::Up,
        interface: Some(name),
        driver: "tap",
        mode,
        refused: Vec::new(),
    })
}

/// A queue of a `tap` port.
#[derive(Debug)]
#[repr(align(128))]
struct TapQueue {
    port: PortId,
    /// `None` after closing.
    file: Option<File>,
    /// A super-frame whose segments did not all fit the last batch.
    super_frame: SuperFrame,
    capabilities: Capabilities,
    stats: QueueStats,
}

/// What a read found.
enum Found {
    Nothing,
    /// Something that was used or counted.
    One,
}

impl TapQueue {
    /// Reads one frame straight into a frame of the pool; what is longer goes on in the super-frame's
    /// memory.
    fn read(&mut self, file: &File, pool: &mut Pool, batch: &mut Batch) -> Found {
        let mut head = [0; VNET_HEADER_BYTES];
        let Some(mut frame) = pool.alloc() else {
            return self.discard(file, &mut head);
        };
        let room = frame.tailroom();
        frame.set_len(room);
        let rest = self.super_frame.buffer();
        let (first, rest) = rest.split_at_mut(room.min(rest.len()));
        self.stats.syscalls += 1;
        let mut parts = [
            IoSliceMut::new(&mut head),
            IoSliceMut::new(frame.data_mut()),
            IoSliceMut::new(rest),
        ];
        let Ok(read) = (&*file).read_vectored(&mut parts) else {
            pool.free(frame);
            return Found::Nothing;
        };
        let len = read.saturating_sub(VNET_HEADER_BYTES);
        let vnet = VnetHeader::parse(&head).unwrap_or_default();
        if vnet.is_super_frame() {
            first.copy_from_slice(frame.data());
            pool.free(frame);
            if !self.super_frame.start(0, len, &vnet) {
                self.stats.rx_invalid_pkts += 1;
            }
            return Found::One;
        }
        let mut usable = frame.set_len(len);
        if usable && let Some((start, field)) = vnet.partial_checksum() {
            usable = offload::complete(frame.data_mut(), start, len, field);
        }
        if !usable {
            self.stats.rx_invalid_pkts += 1;
            pool.free(frame);
            return Found::One;
        }
        if vnet.checksum_good() {
            frame.flags |= FrameFlags::CHECKSUM_GOOD;
        }
        deliver(self.port, frame, pool, batch, &mut self.stats);
        Found::One
    }

    /// Reads a frame for which the pool has none, so that the queue does not stay readable for ever.
    #[cold]
    fn discard(&mut self, mut file: &File, head: &mut [u8]) -> Found {
        self.stats.syscalls += 1;
        if file.read(head).is_err() {
            return Found::Nothing;
        }
        self.stats.rx_no_frame_pkts += 1;
        Found::One
    }
}

/// Appends the frame to the batch, which has room.
fn deliver(
    port: PortId,
    mut frame: Frame,
    pool: &mut Pool,
    batch: &mut Batch,
    stats: &mut QueueStats,
) {
    frame.rx_port = port;
    stats.rx_pkts += 1;
    stats.rx_bytes += frame.len() as u64;
    if let Err(frame) = batch.push(frame) {
        // Not reached: the callers look for room.
        pool.free(frame);
    }
}

impl Queue for TapQueue {
    fn rx(&mut self, pool: &mut Pool, batch: &mut Batch) -> usize {
        let Some(file) = self.file.take() else {
            return 0;
        };
        let before = batch.len();
        // Every read counts against the burst, so that a burst is bounded even if all are unusable.
        for _ in 0..batch.room() {
            let port = self.port;
            self.super_frame
                .cut(pool, batch, &mut self.stats, |frame, pool, batch, stats| {
                    deliver(port, frame, pool, batch, stats)
                });
            if batch.is_full() || matches!(self.read(&file, pool, batch), Found::Nothing) {
                break;
            }
        }
        self.file = Some(file);
        batch.len() - before
    }

    fn tx(&mut self, pool: &mut Pool, batch: &mut Batch) -> usize {
        let Some(file) = &self.file else { return 0 };
        let head = VnetHeader::plain(0);
        let mut taken = 0;
        for frame in batch.iter_mut() {
            offload::finish_checksum(frame);
            self.stats.syscalls += 1;
            let parts = [IoSlice::new(&head), IoSlice::new(frame.data())];
            match (&*file).write_vectored(&parts) {
                Ok(_) => {
                    self.stats.tx_pkts += 1;
                    self.stats.tx_bytes += frame.len() as u64;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // The interface is down, or the kernel dislikes the frame.
                Err(_) => self.stats.tx_error_pkts += 1,
            }
            taken += 1;
        }
        for frame in batch.drain_front(taken) {
            pool.free(frame);
        }
        taken
    }

    fn arm(&mut self) -> Arm<'_> {
        match &self.file {
            // Readable while frames wait, so that there is nothing to look for once more.
            Some(file) if !self.super_frame.is_pending() => Arm::Armed(file.as_fd()),
            Some(_) => Arm::Ready,
            None => Arm::Unsupported,
        }
    }

    /// Does nothing: the descriptor is readable while frames wait, whether or not anybody looks.
    fn disarm(&mut self) {}

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn stats(&self) -> QueueStats {
        self.stats
    }

    /// Closes the descriptor; with the last one the interface goes.
    fn close(&mut self, _pool: &mut Pool) -> usize {
        self.file = None;
        self.super_frame.clear();
        0
    }
}
