//! The workload of CS-8: publishers of files that are named after popular sites; files of 1, 10, 100 or 1,000
//! blocks of 1 KB; Zipf popularity; clients that fetch a file's blocks in order, now and then by prefix.

use super::names::{Sites, push, push_segment};
use crate::sessions::Random;

/// Bytes of a block's content.
pub const BLOCK_BYTES: usize = 1024;
/// Files of a publisher (CS-8).
pub const FILES_PER_PUBLISHER: usize = 50_000;
/// Blocks of the files, in turns (CS-8).
pub const MIXED: [u32; 4] = [1, 10, 100, 1000];

/// All files that there are.
#[derive(Clone, Debug)]
pub struct Catalogue {
    prefixes: Vec<u8>,
    /// Where each file's prefix ends, and the number of its first block.
    files: Vec<(u32, u64)>,
    blocks: u64,
}

impl Catalogue {
    /// Makes files, with `sizes` in turns, until there are `blocks` blocks.
    pub fn new(sites: &Sites, sizes: &[u32], blocks: u64, first_publisher: usize) -> Self {
        let mut catalogue = Self {
            prefixes: Vec::new(),
            files: vec![(0, 0)],
            blocks: 0,
        };
        for number in 0.. {
            if catalogue.blocks >= blocks {
                break;
            }
            let publisher = first_publisher + number / FILES_PER_PUBLISHER;
            let prefixes = &mut catalogue.prefixes;
            push(prefixes, 8, b"ndn");
            push(prefixes, 8, format!("publisher{publisher}").as_bytes());
            push(prefixes, 8, sites.file(number).as_bytes());
            push(prefixes, 54, &[1]);
            let left = blocks - catalogue.blocks;
            catalogue.blocks += u64::from(sizes[number % sizes.len()]).min(left);
            catalogue
                .files
                .push((prefixes.len() as u32, catalogue.blocks));
        }
        catalogue
    }

    /// Number of files.
    pub fn files(&self) -> usize {
        self.files.len() - 1
    }

    /// Number of blocks of all files.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Blocks of a file.
    pub fn blocks_of(&self, file: usize) -> u32 {
        (self.files[file + 1].1 - self.files[file].1) as u32
    }

    /// The number of a file's first block.
    pub fn first_block(&self, file: usize) -> u64 {
        self.files[file].1
    }

    /// The file that a block belongs to, and its segment.
    pub fn locate(&self, block: u64) -> (usize, u32) {
        let file = self.files.partition_point(|(_, first)| *first <= block) - 1;
        (file, (block - self.files[file].1) as u32)
    }

    /// Appends a file's name (TLV-VALUE).
    pub fn push_file(&self, out: &mut Vec<u8>, file: usize) {
        let (start, end) = (self.files[file].0, self.files[file + 1].0);
        out.extend_from_slice(&self.prefixes[start as usize..end as usize]);
    }

    /// Appends a block's name (TLV-VALUE).
    pub fn push_block(&self, out: &mut Vec<u8>, file: usize, segment: u32) {
        self.push_file(out, file);
        push_segment(out, segment);
    }
}

/// Names (or packets) one after the other in one buffer, so that reading them costs no cache misses.
#[derive(Clone, Debug, Default)]
pub struct Flat {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl Flat {
    /// Appends what `write` writes.
    pub fn push(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.bytes);
        self.ends.push(self.bytes.len() as u32);
    }

    /// Empties it.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Number of items.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The items, in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let ranges = starts.zip(&self.ends);
        ranges.map(|(start, end)| &self.bytes[start as usize..*end as usize])
    }
}

/// A Data packet of a block, its name, and where that lies.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    /// The packet.
    pub packet: &'a [u8],
    /// The name's TLV-VALUE, in the packet.
    pub name: &'a [u8],
}

impl<'a> Block<'a> {
    /// Takes a packet that [`push_packet`] made apart.
    pub fn of(packet: &'a [u8]) -> Self {
        let name_len = usize::from(packet[5]);
        Self {
            packet,
            name: &packet[6..6 + name_len],
        }
    }
}

/// FreshnessPeriod of the packets, ms.
pub const FRESHNESS_MS: u64 = 10_000;

/// Appends a Data packet: name, MetaInfo with a FreshnessPeriod, 1 KB of content, a digest signature (zeros).
pub fn push_packet(out: &mut Vec<u8>, name: &[u8], seed: u64) {
    const TAIL: usize = 6 + 4 + BLOCK_BYTES + 5 + 34;
    let len = 2 + name.len() + TAIL;
    out.extend_from_slice(&[0x06, 253]);
    out.extend_from_slice(&(len as u16).to_be_bytes());
    out.extend_from_slice(&[0x07, name.len() as u8]);
    out.extend_from_slice(name);
    out.extend_from_slice(&[0x14, 0x04, 0x19, 0x02]);
    out.extend_from_slice(&(FRESHNESS_MS as u16).to_be_bytes());
    out.extend_from_slice(&[0x15, 253]);
    out.extend_from_slice(&(BLOCK_BYTES as u16).to_be_bytes());
    let start = out.len();
    out.resize(start + BLOCK_BYTES, 0x5a);
    out[start..start + 8].copy_from_slice(&seed.to_le_bytes());
    out.extend_from_slice(&[0x16, 0x03, 0x1b, 0x01, 0x00, 0x17, 0x20]);
    out.resize(out.len() + 32, 0);
}

/// The first word of a packet's content, by which a reader touches the payload.
#[inline]
pub fn content_word(packet: &[u8], name_len: usize) -> u64 {
    let at = 6 + name_len + 10;
    match packet.get(at..at + 8).and_then(|bytes| bytes.first_chunk()) {
        Some(bytes) => u64::from_le_bytes(*bytes),
        None => 0,
    }
}

/// Files by Zipf popularity: file r (from 0) is asked for in proportion to 1 / (r + 1)^alpha.
#[derive(Clone, Debug)]
pub struct Zipf {
    sums: Vec<f64>,
    /// Rank to file: popularity must not follow the order in which files lie in memory.
    order: Vec<u32>,
}

impl Zipf {
    /// Makes the distribution over `files` files in random order.
    pub fn new(files: usize, alpha: f64, random: &mut Random) -> Self {
        let mut sum = 0.0;
        let weight = |rank: usize| ((rank + 1) as f64).powf(-alpha);
        let sums = (0..files)
            .map(|rank| {
                sum += weight(rank);
                sum
            })
            .collect();
        let mut order: Vec<u32> = (0..files as u32).collect();
        random.shuffle(&mut order);
        Self { sums, order }
    }

    /// Draws a file.
    pub fn draw(&self, random: &mut Random) -> usize {
        let total = self.sums.last().copied().unwrap_or(0.0);
        let at = random.next_u64() as f64 / u64::MAX as f64 * total;
        let rank = self.sums.partition_point(|sum| *sum < at);
        self.file(rank.min(self.order.len() - 1))
    }

    /// The file of a rank.
    pub fn file(&self, rank: usize) -> usize {
        self.order[rank] as usize
    }

    /// Makes other files popular: moves the ranking on by `files` places.
    pub fn shift(&mut self, files: usize) {
        let len = self.order.len();
        self.order.rotate_left(files % len);
    }
}

/// A request: a block, or any block of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// This segment of a file.
    Block(usize, u32),
    /// Any block of a file, by its prefix.
    Prefix(usize),
}

/// Clients that fetch files.
#[derive(Clone, Debug)]
pub struct Clients {
    clients: Vec<(usize, u32)>,
    next: usize,
    prefix_share: u64,
}

impl Clients {
    /// Starts `clients` clients; `prefix_percent` of the files are asked for by one prefix request instead.
    pub fn new(clients: usize, prefix_percent: u64) -> Self {
        Self {
            clients: vec![(usize::MAX, 0); clients],
            next: 0,
            prefix_share: prefix_percent,
        }
    }

    /// The next request, of the clients in turns.
    pub fn next(&mut self, catalogue: &Catalogue, zipf: &Zipf, random: &mut Random) -> Request {
        let at = self.next;
        self.next = (at + 1) % self.clients.len();
        let (file, segment) = &mut self.clients[at];
        if *file == usize::MAX || *segment >= catalogue.blocks_of(*file) {
            (*file, *segment) = (zipf.draw(random), 0);
        }
        // A request is one by prefix with this probability, whatever the client does (CS-8).
        if random.next_u64() % 100 < self.prefix_share {
            return Request::Prefix(zipf.draw(random));
        }
        let request = Request::Block(*file, *segment);
        *segment += 1;
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_located_and_packets_taken_apart() {
        let sites = Sites::read(None).unwrap();
        let catalogue = Catalogue::new(&sites, &MIXED, 5000, 0);
        assert_eq!(catalogue.blocks(), 5000);
        assert_eq!(catalogue.locate(0), (0, 0));
        assert_eq!(catalogue.locate(1), (1, 0));
        assert_eq!(catalogue.locate(4), (1, 3));
        let mut name = Vec::new();
        let (file, segment) = catalogue.locate(4999);
        catalogue.push_block(&mut name, file, segment);
        let mut packet = Vec::new();
        push_packet(&mut packet, &name, 77);
        let block = Block::of(&packet);
        assert_eq!(block.name, name);
        assert_eq!(content_word(&packet, name.len()), 77);
        // The packet is valid TLV: the outer length covers it, and the elements fill it.
        let outer = wire::ndn::Tlv::read_exact(&packet).unwrap();
        assert_eq!(
            outer
                .elements()
                .map(|element| element.unwrap().tlv_type)
                .collect::<Vec<_>>(),
            [7, 0x14, 0x15, 0x16, 0x17]
        );
        assert!(wire::ndn::NameRef::new(&name).is_ok());
    }

    #[test]
    fn popular_files_are_drawn_more_often() {
        let mut random = Random::new(1);
        let zipf = Zipf::new(1000, 0.8, &mut random);
        let mut counts = vec![0; 1000];
        for _ in 0..100_000 {
            counts[zipf.draw(&mut random)] += 1;
        }
        let (first, tenth) = (counts[zipf.file(0)], counts[zipf.file(9)]);
        let ratio = f64::from(first) / f64::from(tenth);
        assert!((ratio / 10_f64.powf(0.8) - 1.0).abs() < 0.2, "{ratio}");
    }
}
