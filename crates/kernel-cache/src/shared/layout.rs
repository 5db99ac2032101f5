//! The cache's memory: a hash table, nodes, and the Data bytes of each node, in three arrays (CS-2, CS-3).
//!
//! Slots are indices of nodes; slot 0 is never used, so 0 is "none". Data nodes have the slots from 1 to
//! [`Config::data_slots`], prefix nodes those behind. All words are little-endian, which the BPF object is
//! compiled for.

use super::bounded::Word;

/// The longest name that is cached, bytes of its value.
pub const NAME_BYTES_MAX: usize = 192;
/// Words of the longest name.
pub const NAME_WORDS: usize = NAME_BYTES_MAX / 8;
/// Components of the deepest name that is looked up.
pub const COMPONENTS_MAX: usize = 32;
/// Where the value of the name starts in a slab, bytes, so that names compare by aligned words.
pub const NAME_AT: usize = 8;
/// The longest Data packet that is cached, bytes.
pub const DATA_BYTES_MAX: usize = 2040;
/// Words of a slab: 2048 bytes and a line, so that slots do not share cache sets.
pub const SLAB_WORDS: usize = (2048 + 64) / 8;
/// Entries of a bucket.
pub const BUCKET_ENTRIES: usize = 7;
/// "No slot".
pub const NONE: u32 = 0;
/// Rows of the table of ports; an interface has the row of the low bits of its index.
pub const PORT_ROWS: usize = 64;

/// Facts that are fixed when the cache is made.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Config {
    /// Secret of the hash function.
    pub seed: u64,
    /// Number of buckets minus 1; that number is a power of two.
    pub bucket_mask: u32,
    /// Slots of Data nodes.
    pub data_slots: u32,
    /// Slots of prefix nodes.
    pub prefix_slots: u32,
    /// 1 if the processor reorders loads, so that the kernel's program needs a barrier instruction.
    pub weakly_ordered: u32,
}

/// A port on which the cache answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct PortRow {
    /// Index of the interface; 0 is an empty row.
    pub ifindex: u32,
    /// The longest frame that may leave, bytes, with the Ethernet header and without VLAN tags.
    pub frame_bytes_max: u32,
    /// The port's Ethernet address in the low six bytes; an Interest to another address is passed on.
    pub mac: u64,
}

impl PortRow {
    /// Describes an interface: its index, Ethernet address and MTU (bytes, without the Ethernet header).
    pub fn new(ifindex: u32, mac: [u8; 6], mtu: u32) -> Self {
        let [a, b, c, d, e, f] = mac;
        Self {
            ifindex,
            frame_bytes_max: mtu + 14,
            mac: u64::from_le_bytes([a, b, c, d, e, f, 0, 0]),
        }
    }
}

/// A bucket: one cache line.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Bucket {
    /// Bit 0: locked by a writer. Bits from 32: entries whose first bucket is this one and that are in their
    /// second.
    pub lock: Word,
    /// Tag (the upper half of the name's hash) in the upper half, slot in the lower; 0 is free.
    pub entries: [Word; BUCKET_ENTRIES],
}

/// What a slot holds: one cache line. Words of 64 bits, which are all that BPF has as atomics.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Node {
    /// Odd while a writer is at work; moves on with each change of the packet.
    pub generation: Word,
    /// Hash of the name; that of a prefix node is salted.
    pub hash: Word,
    /// The packet is fresh until then, ns of `CLOCK_MONOTONIC`.
    pub fresh_until_ns: Word,
    /// [`Facts`].
    pub facts: Word,
    /// Slot of the node of the name without the last component; in the upper half that of a node with one
    /// component more.
    family: Word,
    /// Slot of the next node with the same parent; in the upper half that of the one before.
    siblings: Word,
    /// Not 0 if it was asked for since the replacement policy last looked.
    pub touched: Word,
    /// How often the name of this slot was withdrawn: a packet answers as long as the number is the one in its
    /// [`Facts`].
    pub withdrawals: Word,
}

impl Node {
    /// Tells whether the packet with these facts answers.
    #[inline(always)]
    pub fn is_served(&self, facts: Facts) -> bool {
        facts.is_data()
            && facts.0 >> STAMP_SHIFT & STAMP_MASK == self.withdrawals.load() & STAMP_MASK
    }
    /// Returns the parent.
    #[inline(always)]
    pub fn parent(&self) -> u32 {
        self.family.load() as u32
    }
    /// Returns the first child.
    #[inline(always)]
    pub fn first_child(&self) -> u32 {
        (self.family.load() >> 32) as u32
    }
    /// Returns the next sibling.
    #[inline(always)]
    pub fn next(&self) -> u32 {
        self.siblings.load() as u32
    }
    /// Returns the previous sibling.
    #[inline(always)]
    pub fn previous(&self) -> u32 {
        (self.siblings.load() >> 32) as u32
    }
    /// Sets parent and first child. One writer has all links.
    #[inline(always)]
    pub fn set_family(&self, parent: u32, first_child: u32) {
        let word = u64::from(parent) | u64::from(first_child) << 32;
        self.family.store(word);
    }
    /// Sets next and previous sibling.
    #[inline(always)]
    pub fn set_siblings(&self, next: u32, previous: u32) {
        let word = u64::from(next) | u64::from(previous) << 32;
        self.siblings.store(word);
    }
}

/// What a node is, in one word; 0 is a free slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts(pub u64);

const DATA_NODE: u64 = 1 << 16;
const PREFIX_NODE: u64 = 1 << 17;
const IDLE_NODE: u64 = 1 << 18;
/// Where in the facts of a Data node the number of its withdrawals is, and how much of it.
const STAMP_SHIFT: u32 = 19;
const STAMP_MASK: u64 = (1 << 13) - 1;

impl Facts {
    /// A name that is a prefix of the name of a Data packet.
    pub const PREFIX: Self = Self(PREFIX_NODE);

    /// A Data packet: length of its name's value, where the packet starts in the slab (below 8), its length, and
    /// the folded one's complement sum of its little-endian 16-bit words.
    #[inline(always)]
    pub fn data(name_bytes: usize, data_at: usize, data_bytes: usize, data_sum: u16) -> Self {
        Self(
            DATA_NODE
                | name_bytes as u64
                | (data_at as u64) << 8
                | (data_bytes as u64) << 32
                | u64::from(data_sum) << 48,
        )
    }
    /// True of a Data packet.
    #[inline(always)]
    pub fn is_data(self) -> bool {
        self.0 & DATA_NODE != 0
    }
    /// Returns the facts of a Data packet that has its place and does not answer yet.
    #[inline(always)]
    pub fn idle(self) -> Self {
        Self(self.0 & !DATA_NODE | IDLE_NODE)
    }
    /// Returns the facts of a Data packet that answers as long as its name was withdrawn so often.
    #[inline(always)]
    pub fn served(self, withdrawals: u64) -> Self {
        let stamp = (withdrawals & STAMP_MASK) << STAMP_SHIFT;
        Self(self.0 & !(IDLE_NODE | STAMP_MASK << STAMP_SHIFT) | DATA_NODE | stamp)
    }
    /// True of a Data packet, whether it answers or not.
    #[inline(always)]
    pub fn has_packet(self) -> bool {
        self.0 & (DATA_NODE | IDLE_NODE) != 0
    }
    /// True of a prefix.
    #[inline(always)]
    pub fn is_prefix(self) -> bool {
        self.0 & PREFIX_NODE != 0
    }
    /// Length of the name's value, bytes.
    #[inline(always)]
    pub fn name_bytes(self) -> usize {
        (self.0 & 255) as usize
    }
    /// Where the packet starts in the slab.
    #[inline(always)]
    pub fn data_at(self) -> usize {
        (self.0 >> 8 & 7) as usize
    }
    /// Length of the packet, bytes.
    #[inline(always)]
    pub fn data_bytes(self) -> usize {
        (self.0 >> 32 & 0xffff) as usize
    }
    /// Sum of the packet.
    #[inline(always)]
    pub fn data_sum(self) -> u64 {
        self.0 >> 48
    }
}

/// The bytes of a Data packet, laid so that the value of its name starts at [`NAME_AT`].
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Slab {
    /// The bytes as words in the machine's order.
    pub words: [Word; SLAB_WORDS],
}

const _: () = {
    assert!(size_of::<Config>() == 64);
    assert!(size_of::<PortRow>() == 16);
    assert!(size_of::<Bucket>() == 64);
    assert!(size_of::<Node>() == 64);
    assert!(size_of::<Slab>() == SLAB_WORDS * 8);
    // What is copied is masked to 2048 bytes from a start below 8.
    assert!(NAME_AT + 2048 <= SLAB_WORDS * 8);
    assert!(DATA_BYTES_MAX + NAME_AT <= 2048);
};
