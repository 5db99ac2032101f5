//! What a test frame looks like: IPv4 and UDP headers of one of many flows, a stamp, filler.

use std::net::Ipv4Addr;

/// The frame sizes of RFC 2544 section 9.1 and the 1500 of IO-8, bytes, **with** the 4 bytes of FCS that a
/// wire would carry: a "64 byte frame" is 60 bytes in memory.
pub const FRAME_SIZES: [u16; 8] = [64, 128, 256, 512, 1024, 1280, 1500, 1518];

/// Bytes of frame check sequence that are counted in a frame's size but never in memory.
pub(crate) const FCS_BYTES: u16 = 4;
/// Preamble, start delimiter and inter-frame gap: what a frame takes of a wire beside its size, bytes.
pub(crate) const WIRE_OVERHEAD_BYTES: u16 = 20;

const HEADERS_BYTES: usize = 14 + 20 + 8;
const PORTS_AT: usize = 34;
const TAG_AT: usize = HEADERS_BYTES;
const FLOW_AT: usize = TAG_AT + 2;
const SEQUENCE_AT: usize = FLOW_AT + 2;
const TIME_AT: usize = SEQUENCE_AT + 6;
const STAMPED_BYTES: usize = TIME_AT + 8;
const TAG_HIGH: u8 = 0x7d;

/// What cannot be a test frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// Too short for the stamp, or longer than a slot of the pool.
    #[error("a test frame of {0} bytes is not possible (64 to 9018, FCS included)")]
    Size(u16),
    /// None, or more than there are numbers for.
    #[error("{0} flows are not possible (1 to 65536)")]
    Flows(u32),
}

/// Addresses, size and flows of the test frames of one direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    size_bytes: u16,
    template: Vec<u8>,
    flows: Vec<[u8; 4]>,
}

/// What a received test frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The trial that sent it.
    pub trial: u8,
    /// Its flow.
    pub flow: u16,
    /// Its number among all frames of the trial, from 0 (48 bits).
    pub sequence: u64,
    /// When it was handed to the driver, nanoseconds of the tester's clock.
    pub sent_ns: u64,
}

impl Profile {
    /// Prepares frames of `size_bytes` (FCS included) in `flows` flows. Every flow has a source port
    /// from 1024 to 65535 and a destination port from 1 to 49151, pseudorandom and different from
    /// those of every other flow (RFC 4814 section 4.5); the sequence depends on `seed` alone.
    ///
    /// # Errors
    /// An impossible size or number of flows.
    pub fn new(
        size_bytes: u16,
        mac: (/* source */ [u8; 6], /* destination */ [u8; 6]),
        ip: (/* source */ Ipv4Addr, /* destination */ Ipv4Addr),
        flows: u32,
        seed: u64,
    ) -> Result<Self, ProfileError> {
        if !(64..=9018).contains(&size_bytes) {
            return Err(ProfileError::Size(size_bytes));
        }
        if !(1..=1 << 16).contains(&flows) {
            return Err(ProfileError::Flows(flows));
        }
        let mut random = SplitMix(seed);
        Ok(Self {
            size_bytes,
            template: template(size_bytes, mac, ip, &mut random),
            flows: port_pairs(flows, &mut random),
        })
    }

    /// Returns the size, bytes with FCS.
    pub fn size_bytes(&self) -> u16 {
        self.size_bytes
    }

    /// Returns the bytes that a frame takes in memory: the size without FCS.
    pub fn frame_bytes(&self) -> u16 {
        self.size_bytes - FCS_BYTES
    }

    /// Returns the number of flows.
    pub fn flows(&self) -> usize {
        self.flows.len()
    }

    /// Returns a frame of the first flow without sequence number and stamp, e.g. for a bench in memory.
    pub fn example(&self) -> Vec<u8> {
        let mut frame = self.template.clone();
        frame[PORTS_AT..PORTS_AT + 4].copy_from_slice(&self.flows[0]);
        frame
    }

    /// Writes frame number `sequence` of `trial` into `frame`, without its send stamp; tells whether
    /// it fits.
    pub(crate) fn write(&self, frame: &mut io::Frame, trial: u8, sequence: u64) -> bool {
        if !frame.fill(&self.template) {
            return false;
        }
        let flow = (sequence % self.flows.len() as u64) as u16;
        let data = frame.data_mut();
        data[PORTS_AT..PORTS_AT + 4].copy_from_slice(&self.flows[usize::from(flow)]);
        data[TAG_AT..TAG_AT + 2].copy_from_slice(&[TAG_HIGH, trial]);
        data[FLOW_AT..FLOW_AT + 2].copy_from_slice(&flow.to_be_bytes());
        data[SEQUENCE_AT..SEQUENCE_AT + 6].copy_from_slice(&sequence.to_be_bytes()[2..]);
        true
    }

    /// Writes the send stamp into a frame that [`Profile::write`] filled.
    pub(crate) fn stamp(frame: &mut io::Frame, now_ns: u64) {
        if let Some(time) = frame.data_mut().get_mut(TIME_AT..STAMPED_BYTES) {
            time.copy_from_slice(&now_ns.to_be_bytes());
        }
    }
}

impl Stamp {
    /// Reads the stamp of a received frame; `None` for a frame that is not a test frame. MAC and IP
    /// addresses, TTL and ports may have been rewritten on the way.
    pub fn read(data: &[u8]) -> Option<Self> {
        let ethertype = data.get(12..14)?;
        let protocol = *data.get(23)?;
        let stamp = data.get(TAG_AT..STAMPED_BYTES)?;
        if ethertype != [8, 0] || protocol != 17 || stamp[0] != TAG_HIGH {
            return None;
        }
        let number = |from: usize, to: usize| {
            stamp[from - TAG_AT..to - TAG_AT]
                .iter()
                .fold(0u64, |value, &byte| value << 8 | u64::from(byte))
        };
        Some(Self {
            trial: stamp[1],
            flow: number(FLOW_AT, SEQUENCE_AT) as u16,
            sequence: number(SEQUENCE_AT, TIME_AT),
            sent_ns: number(TIME_AT, STAMPED_BYTES),
        })
    }
}

fn template(
    size_bytes: u16,
    mac: ([u8; 6], [u8; 6]),
    ip: (Ipv4Addr, Ipv4Addr),
    random: &mut SplitMix,
) -> Vec<u8> {
    let frame_bytes = size_bytes - FCS_BYTES;
    let ip_bytes = frame_bytes - 14;
    let mut frame = Vec::with_capacity(usize::from(frame_bytes));
    frame.extend_from_slice(&mac.1);
    frame.extend_from_slice(&mac.0);
    frame.extend_from_slice(&[8, 0, 0x45, 0]);
    frame.extend_from_slice(&ip_bytes.to_be_bytes());
    frame.extend_from_slice(&[0, 0, 0x40, 0, 64, 17, 0, 0]); // no id, DF, TTL 64, UDP, checksum below
    frame.extend_from_slice(&ip.0.octets());
    frame.extend_from_slice(&ip.1.octets());
    let checksum = header_checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(&(ip_bytes - 20).to_be_bytes());
    frame.extend_from_slice(&[0, 0]); // no UDP checksum (RFC 768): the stamp changes in every frame
    while frame.len() < usize::from(frame_bytes) {
        frame.push(random.next() as u8);
    }
    frame
}

fn header_checksum(header: &[u8]) -> u16 {
    let sum: u32 = header
        .chunks_exact(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

fn port_pairs(flows: u32, random: &mut SplitMix) -> Vec<[u8; 4]> {
    let mut taken = std::collections::HashSet::new();
    let mut pairs = Vec::with_capacity(flows as usize);
    while pairs.len() < flows as usize {
        let bits = random.next();
        let source = 1024 + (bits as u32 % 64512) as u16;
        let destination = 1 + ((bits >> 32) as u32 % 49151) as u16;
        if taken.insert((source, destination)) {
            let [a, b] = source.to_be_bytes();
            let [c, d] = destination.to_be_bytes();
            pairs.push([a, b, c, d]);
        }
    }
    pairs
}

/// SplitMix64 (Steele, Lea, Flood 2014): a seed gives the same flows everywhere.
#[derive(Clone, Debug)]
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use io::{HugePages, Pool};

    const MAC: ([u8; 6], [u8; 6]) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    const IP: (Ipv4Addr, Ipv4Addr) = (Ipv4Addr::new(10, 1, 0, 2), Ipv4Addr::new(10, 2, 0, 2));

    #[test]
    fn a_written_frame_reads_back() {
        let mut pool = Pool::new(4, 2048, HugePages::Never).unwrap();
        for size in FRAME_SIZES {
            let profile = Profile::new(size, MAC, IP, 1000, 1).unwrap();
            let mut frame = pool.alloc().unwrap();
            assert!(profile.write(&mut frame, 7, 0x0123_4567_89ab));
            Profile::stamp(&mut frame, 99);
            assert_eq!(frame.len(), usize::from(size) - 4);
            let stamp = Stamp::read(frame.data()).unwrap();
            let flow = (0x0123_4567_89abu64 % 1000) as u16;
            let expected = Stamp {
                trial: 7,
                flow,
                sequence: 0x0123_4567_89ab,
                sent_ns: 99,
            };
            assert_eq!(stamp, expected);
            assert_eq!(header_checksum(&frame.data()[14..34]), 0, "checksum");
            pool.free(frame);
        }
    }

    #[test]
    fn flows_are_many_different_and_reproducible() {
        let profile = Profile::new(64, MAC, IP, 65536, 5).unwrap();
        assert_eq!(profile, Profile::new(64, MAC, IP, 65536, 5).unwrap());
        let different: std::collections::HashSet<_> = profile.flows.iter().collect();
        assert_eq!(different.len(), 65536);
        for [a, b, c, d] in &profile.flows {
            assert!(u16::from_be_bytes([*a, *b]) >= 1024);
            assert!((1..=49151).contains(&u16::from_be_bytes([*c, *d])));
        }
    }

    #[test]
    fn other_frames_are_not_test_frames() {
        assert_eq!(Stamp::read(&[]), None);
        assert_eq!(Stamp::read(&[0; 59]), None);
        assert_eq!(Stamp::read(&[8; 1514]), None);
        assert_eq!(Profile::new(63, MAC, IP, 1, 0), Err(ProfileError::Size(63)));
        assert_eq!(Profile::new(64, MAC, IP, 0, 0), Err(ProfileError::Flows(0)));
    }
}
