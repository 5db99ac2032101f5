//! Writing of pcapng files.

use std::io::{self, Write};

use super::{
    BYTE_ORDER_MAGIC, ENHANCED_PACKET, INTERFACE, LINK_ETHERNET, OPT_COMMENT, OPT_END, SECTION,
    STATISTICS, padded,
};

/// What the section header says about who captured.
#[derive(Clone, Copy, Debug, Default)]
pub struct Section<'a> {
    /// The machine.
    pub hardware: Option<&'a str>,
    /// The operating system.
    pub os: Option<&'a str>,
    /// The program that writes the file.
    pub application: Option<&'a str>,
}

/// An interface that packets were captured at: a port, or a stage of the node.
#[derive(Clone, Copy, Debug)]
pub struct InterfaceDescription<'a> {
    /// Its name.
    pub name: &'a str,
    /// A sentence about it.
    pub description: Option<&'a str>,
    /// What its frames start with ([`LINK_ETHERNET`]).
    pub link_type: u16,
    /// The most bytes that are kept of a packet; 0: all.
    pub snap_bytes: u32,
    /// Its MAC address.
    pub mac: Option<[u8; 6]>,
}

impl<'a> InterfaceDescription<'a> {
    /// Describes an Ethernet interface by its name alone.
    pub const fn ethernet(name: &'a str) -> Self {
        Self {
            name,
            description: None,
            link_type: LINK_ETHERNET,
            snap_bytes: 0,
            mac: None,
        }
    }
}

/// Which way a packet went, seen from the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// It was received.
    Inbound,
    /// It is to be sent.
    Outbound,
}

/// What was decided about a packet (`epb_verdict`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The verdict of a traffic-control program (`TC_ACT_*`).
    TrafficControl(u64),
    /// The verdict of an XDP program (`XDP_*`): 1 drop, 2 pass, 3 transmit, 4 redirect.
    Xdp(u64),
}

/// A packet to write.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// The interface's number, from [`Writer::add_interface`].
    pub interface: u32,
    /// Nanoseconds since the epoch.
    pub timestamp_ns: u64,
    /// The bytes that are kept.
    pub data: &'a [u8],
    /// How long the packet was, bytes.
    pub original_bytes: u32,
    /// A sentence about this packet, e.g. why it was dropped.
    pub comment: Option<&'a str>,
    /// Which way it went.
    pub direction: Option<Direction>,
    /// What was decided about it.
    pub verdict: Option<Verdict>,
    /// The queue that received it or is to send it.
    pub queue: Option<u32>,
    /// The same number on every record of one packet.
    pub packet_id: Option<u64>,
    /// Packets of this interface lost between the record before and this one.
    pub lost_pkts: Option<u64>,
}

impl<'a> Packet<'a> {
    /// A whole packet without options.
    pub const fn new(interface: u32, timestamp_ns: u64, data: &'a [u8]) -> Self {
        Self {
            interface,
            timestamp_ns,
            data,
            original_bytes: data.len() as u32,
            comment: None,
            direction: None,
            verdict: None,
            queue: None,
            packet_id: None,
            lost_pkts: None,
        }
    }
}

/// Writes one section in the machine's byte order, with timestamps in nanoseconds.
///
/// Each block is written with one call, so that a reader of a pipe never sees half of one for long. Wrap a
/// file in a `BufWriter`.
#[derive(Debug)]
pub struct Writer<W: Write> {
    inner: W,
    interfaces: u32,
    /// The block that is being put together; kept, so that writing does not allocate.
    block: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Writes the section header.
    ///
    /// # Errors
    /// What the underlying writer says.
    pub fn new(inner: W, section: &Section<'_>) -> io::Result<Self> {
        let mut writer = Self {
            inner,
            interfaces: 0,
            block: Vec::with_capacity(4096),
        };
        writer.begin(SECTION);
        writer.put(&BYTE_ORDER_MAGIC.to_ne_bytes());
        // Version 1.0; the length of the section is not known.
        writer.put(&1_u16.to_ne_bytes());
        writer.put(&0_u16.to_ne_bytes());
        writer.put(&u64::MAX.to_ne_bytes());
        let options = [
            (2, section.hardware),
            (3, section.os),
            (4, section.application),
        ];
        for (code, text) in options {
            if let Some(text) = text {
                writer.option(code, text.as_bytes());
            }
        }
        writer.option(OPT_END, &[]);
        writer.end()?;
        Ok(writer)
    }

    /// Describes an interface and returns its number. It may come at any time before its first packet.
    ///
    /// # Errors
    /// What the underlying writer says.
    pub fn add_interface(&mut self, interface: &InterfaceDescription<'_>) -> io::Result<u32> {
        self.begin(INTERFACE);
        self.put(&interface.link_type.to_ne_bytes());
        self.put(&0_u16.to_ne_bytes());
        self.put(&interface.snap_bytes.to_ne_bytes());
        self.option(2, interface.name.as_bytes());
        if let Some(description) = interface.description {
            self.option(3, description.as_bytes());
        }
        if let Some(mac) = interface.mac {
            self.option(6, &mac);
        }
        // if_tsresol: 10^-9 seconds.
        self.option(9, &[9]);
        self.option(OPT_END, &[]);
        self.end()?;
        self.interfaces += 1;
        Ok(self.interfaces - 1)
    }

    /// Writes one packet.
    ///
    /// # Errors
    /// `InvalidInput` if the interface has not been described; else what the underlying writer says.
    pub fn write_packet(&mut self, packet: &Packet<'_>) -> io::Result<()> {
        if packet.interface >= self.interfaces {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.begin(ENHANCED_PACKET);
        self.put(&packet.interface.to_ne_bytes());
        self.put(&((packet.timestamp_ns >> 32) as u32).to_ne_bytes());
        self.put(&(packet.timestamp_ns as u32).to_ne_bytes());
        self.put(&(packet.data.len() as u32).to_ne_bytes());
        self.put(&packet.original_bytes.to_ne_bytes());
        self.put(packet.data);
        self.pad();
        self.packet_options(packet);
        self.end()
    }

    fn packet_options(&mut self, packet: &Packet<'_>) {
        let fixed = self.block.len();
        if let Some(comment) = packet.comment {
            self.option(OPT_COMMENT, comment.as_bytes());
        }
        if let Some(direction) = packet.direction {
            let bits: u32 = match direction {
                Direction::Inbound => 1,
                Direction::Outbound => 2,
            };
            self.option(2, &bits.to_ne_bytes());
        }
        if let Some(lost) = packet.lost_pkts {
            self.option(4, &lost.to_ne_bytes());
        }
        if let Some(id) = packet.packet_id {
            self.option(5, &id.to_ne_bytes());
        }
        if let Some(queue) = packet.queue {
            self.option(6, &queue.to_ne_bytes());
        }
        if let Some(verdict) = packet.verdict {
            let (kind, value) = match verdict {
                Verdict::TrafficControl(value) => (1, value),
                Verdict::Xdp(value) => (2, value),
            };
            let mut bytes = [0; 9];
            bytes[0] = kind;
            bytes[1..].copy_from_slice(&value.to_ne_bytes());
            self.option(7, &bytes);
        }
        if self.block.len() > fixed {
            self.option(OPT_END, &[]);
        }
    }

    /// Writes how many packets an interface has seen and lost so far.
    ///
    /// # Errors
    /// What the underlying writer says.
    pub fn write_statistics(
        &mut self,
        interface: u32,
        timestamp_ns: u64,
        received_pkts: u64,
        lost_pkts: u64,
    ) -> io::Result<()> {
        self.begin(STATISTICS);
        self.put(&interface.to_ne_bytes());
        self.put(&((timestamp_ns >> 32) as u32).to_ne_bytes());
        self.put(&(timestamp_ns as u32).to_ne_bytes());
        self.option(4, &received_pkts.to_ne_bytes());
        self.option(5, &lost_pkts.to_ne_bytes());
        self.option(OPT_END, &[]);
        self.end()
    }

    /// Flushes the underlying writer.
    ///
    /// # Errors
    /// What the underlying writer says.
    pub fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }

    /// Returns the underlying writer.
    pub fn into_inner(self) -> W {
        self.inner
    }

    /// Starts a block: its type, and a place for its length.
    fn begin(&mut self, kind: u32) {
        self.block.clear();
        self.put(&kind.to_ne_bytes());
        self.put(&[0; 4]);
    }

    fn put(&mut self, bytes: &[u8]) {
        self.block.extend_from_slice(bytes);
    }

    fn pad(&mut self) {
        let len = padded(self.block.len());
        self.block.resize(len, 0);
    }

    /// Appends an option; a value longer than 65,535 bytes is cut.
    fn option(&mut self, code: u16, value: &[u8]) {
        let len = value.len().min(usize::from(u16::MAX));
        self.put(&code.to_ne_bytes());
        self.put(&(len as u16).to_ne_bytes());
        self.put(&value[..len]);
        self.pad();
    }

    /// Completes the block's length at both ends and writes it out.
    fn end(&mut self) -> io::Result<()> {
        let len = (self.block.len() as u32 + 4).to_ne_bytes();
        self.put(&len);
        self.block[4..8].copy_from_slice(&len);
        self.inner.write_all(&self.block)
    }
}
