//! Driver `pcap`: replays a capture file, and records what the node sends to one.
//!
//! Both formats are read (pcap of either byte order and precision, pcapng); records are pcapng with
//! nanoseconds. The file is read whole when the port opens, so that a damaged one is refused then and not
//! in the middle of a run.

mod classic;
mod queue;

use std::fs::File;
use std::io::{BufReader, BufWriter, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::interface::Link;
pub use crate::pcapng::CaptureError;
use crate::pcapng::{InterfaceDescription, LINK_ETHERNET, Reader, Section, Writer};
use crate::pool::Region;
use crate::port::{OpenError, OpenPort, PortSpec};
use crate::queue::{Capabilities, Interrupt};

use queue::{PcapQueue, Recorder};

/// Settings of a `pcap` port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PcapSpec {
    /// The file whose packets are received.
    pub replay: Option<PathBuf>,
    /// The file that what is sent goes to; it is overwritten.
    pub record: Option<PathBuf>,
    /// How fast to replay.
    pub pace: Pace,
    /// How often to replay the file; 0: without end.
    pub loops: u32,
}

impl PcapSpec {
    /// Replays a file once, as fast as the node takes it.
    pub fn replay(file: impl Into<PathBuf>) -> Self {
        Self {
            replay: Some(file.into()),
            loops: 1,
            ..Self::default()
        }
    }
}

/// How fast to replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// As fast as the node takes it.
    #[default]
    Unpaced,
    /// With the pauses of the file.
    Timestamps,
}

/// Link types of bare IP packets: LINKTYPE_RAW, its numbers on the BSDs, LINKTYPE_IPV4, LINKTYPE_IPV6.
const LINKS_IP: [u32; 5] = [101, 12, 14, 228, 229];

/// The packets of a capture file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capture {
    bytes: Vec<u8>,
    records: Vec<Record>,
}

/// Where a packet is in the bytes of a [`Capture`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Record {
    timestamp_ns: u64,
    start: usize,
    len: u32,
    original: u32,
}

/// A packet of a [`Capture`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapturedPacket<'a> {
    /// Nanoseconds since the epoch.
    pub timestamp_ns: u64,
    /// The bytes that were kept.
    pub data: &'a [u8],
    /// How long the packet was, bytes.
    pub original_bytes: u32,
}

impl Capture {
    /// Reads a pcap or pcapng file of Ethernet frames, or of bare IP packets, which get an Ethernet header.
    ///
    /// # Errors
    /// It cannot be read, is neither, is damaged, or has frames of another link type.
    pub fn open(path: &Path) -> Result<Self, CaptureError> {
        Self::read(BufReader::new(File::open(path)?))
    }

    /// Reads a pcap or pcapng file from any source.
    ///
    /// # Errors
    /// As [`Capture::open`].
    pub fn read(mut source: impl Read) -> Result<Self, CaptureError> {
        let mut magic = [0; 4];
        source.read_exact(&mut magic)?;
        let number = u32::from_le_bytes(magic);
        let whole = magic.as_slice().chain(source);
        if number == 0x0a0d_0d0a {
            return Self::read_pcapng(whole);
        }
        let Some(format) = classic::Format::from_magic(number) else {
            return Err(CaptureError::UnknownFormat(number));
        };
        let mut capture = Self::default();
        classic::read(whole, format, |link, packet| capture.push(link, &packet))?;
        Ok(capture)
    }

    fn read_pcapng(source: impl Read) -> Result<Self, CaptureError> {
        let mut capture = Self::default();
        let mut reader = Reader::new(source)?;
        while let Some(packet) = reader.next_packet()? {
            let interface = packet.interface as usize;
            let packet = CapturedPacket {
                timestamp_ns: packet.timestamp_ns,
                data: packet.data,
                original_bytes: packet.original_bytes,
            };
            capture.append(&packet);
            // The reader looked the interface up before it returned the packet.
            let link = reader.interfaces().get(interface).map(|i| i.link_type);
            capture.frame_last(link.unwrap_or(LINK_ETHERNET).into())?;
        }
        Ok(capture)
    }

    fn push(&mut self, link: u32, packet: &CapturedPacket<'_>) -> Result<(), CaptureError> {
        self.append(packet);
        self.frame_last(link)
    }

    fn append(&mut self, packet: &CapturedPacket<'_>) {
        self.records.push(Record {
            timestamp_ns: packet.timestamp_ns,
            start: self.bytes.len(),
            len: packet.data.len() as u32,
            original: packet.original_bytes,
        });
        self.bytes.extend_from_slice(packet.data);
    }

    /// Puts an Ethernet header before the last packet if it is a bare IP packet.
    fn frame_last(&mut self, link: u32) -> Result<(), CaptureError> {
        if link == u32::from(LINK_ETHERNET) {
            return Ok(());
        }
        if !LINKS_IP.contains(&link) {
            return Err(CaptureError::LinkType(link));
        }
        let Some(last) = self.records.last_mut() else {
            return Ok(());
        };
        let version = self.bytes.get(last.start).map_or(4, |byte| byte >> 4);
        let [high, low] = if version == 6 { [0x86, 0xdd] } else { [8, 0] };
        let header = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, high, low];
        self.bytes.splice(last.start..last.start, header);
        last.len += header.len() as u32;
        last.original = last.original.saturating_add(header.len() as u32);
        Ok(())
    }

    /// Returns the number of packets.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Tells whether there are no packets.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Returns a packet by its place in the file, from 0.
    pub fn get(&self, index: usize) -> Option<CapturedPacket<'_>> {
        let record = self.records.get(index)?;
        let data = self.bytes.get(record.start..)?.get(..record.len as usize)?;
        Some(CapturedPacket {
            timestamp_ns: record.timestamp_ns,
            data,
            original_bytes: record.original,
        })
    }

    /// Returns the packets in the order of the file.
    pub fn packets(&self) -> impl Iterator<Item = CapturedPacket<'_>> {
        (0..self.len()).filter_map(|index| self.get(index))
    }
}

/// Opens the files: one queue, since a file has one order.
pub(crate) fn open(
    spec: &PortSpec,
    settings: &PcapSpec,
    region: &Arc<Region>,
) -> Result<OpenPort, OpenError> {
    let refuse = |path: &Path, error: &dyn std::error::Error| {
        let cause = error.source().map(|s| format!(": {s}")).unwrap_or_default();
        OpenError::unusable(&spec.name, format!("{}: {error}{cause}", path.display()))
    };
    let capture = match &settings.replay {
        Some(path) => Capture::open(path).map_err(|e| refuse(path, &e))?,
        None => Capture::default(),
    };
    let recorder = match &settings.record {
        Some(path) => {
            let application = concat!("tidegate-io ", env!("CARGO_PKG_VERSION"));
            let section = Section {
                application: Some(application),
                ..Section::default()
            };
            let recorder = File::create(path)
                .and_then(|file| Writer::new(BufWriter::new(file), &section))
                .and_then(|mut writer| {
                    writer.add_interface(&InterfaceDescription::ethernet(&spec.name))?;
                    Ok(Recorder::new(writer))
                });
            Some(recorder.map_err(|e| refuse(path, &e))?)
        }
        None => None,
    };
    let room = region.room_bytes().min(u32::from(u16::MAX)) as u16;
    let mode = match (settings.replay.is_some(), recorder.is_some()) {
        (true, true) => "replay and record",
        (true, false) => "replay",
        (false, true) => "record",
        (false, false) => {
            return Err(OpenError::unusable(
                &spec.name,
                "a pcap port needs a file to replay or to record",
            ));
        }
    };
    let capabilities = Capabilities {
        driver: "pcap",
        mode: mode.into(),
        interrupt: match settings.pace {
            Pace::Unpaced => Interrupt::Level,
            Pace::Timestamps => Interrupt::None,
        },
        max_frame_bytes: room,
        zero_copy: false,
        rss: false,
        offloads: crate::Offloads::empty(),
        refused: Vec::new(),
    };
    let queue = PcapQueue::new(spec.id, capture, settings, recorder, capabilities)
        .map_err(|e| OpenError::os(&spec.name, "making an eventfd", e))?;
    Ok(OpenPort {
        id: spec.id,
        name: spec.name.clone(),
        queues: vec![Box::new(queue)],
        mac: [0x02, b't', b'g', 3, 0, spec.id.0 as u8],
        mtu: room - 14,
        link: Link::Up,
        interface: None,
        driver: "pcap",
        mode: mode.into(),
        refused: Vec::new(),
    })
}
