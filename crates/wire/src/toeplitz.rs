//! The Toeplitz hash that NICs use for receive-side scaling (RSS), to know which queue a NIC chooses.

use crate::{FlowKey, ip_protocol};

/// Length of a key: enough for two IPv6 addresses and two ports.
pub const KEY_BYTES: usize = 40;

/// The longest input, bytes.
const INPUT_BYTES_MAX: usize = 36;

/// The key of Microsoft's verification suite, the default of many drivers.
pub const MICROSOFT_KEY: [u8; KEY_BYTES] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0,
    0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c,
    0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
];

/// The key that hashes both directions of a flow alike: 0x6d5a repeated (Woo and Park, KAIST 2012).
///
/// It repeats every 16 bits, so that hashes hold 16 bits of entropy at most: choose a queue with it, do
/// not index a table with it.
pub const SYMMETRIC_KEY: [u8; KEY_BYTES] = {
    let mut key = [0x6d; KEY_BYTES];
    let mut i = 1;
    while i < KEY_BYTES {
        key[i] = 0x5a;
        i += 2;
    }
    key
};

/// A key, prepared: what each half byte of the input contributes (4.6 kB).
#[derive(Clone)]
pub struct Toeplitz {
    tables: [[u32; 16]; INPUT_BYTES_MAX * 2],
}

impl core::fmt::Debug for Toeplitz {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Toeplitz(..)")
    }
}

impl Toeplitz {
    /// Prepares a key.
    pub const fn new(key: &[u8; KEY_BYTES]) -> Self {
        let mut tables = [[0; 16]; INPUT_BYTES_MAX * 2];
        let mut nibble = 0;
        while nibble < tables.len() {
            let mut value = 1;
            while value < 16 {
                let mut bit = 0;
                while bit < 4 {
                    if value & (8 >> bit) != 0 {
                        tables[nibble][value] ^= window(key, nibble * 4 + bit);
                    }
                    bit += 1;
                }
                value += 1;
            }
            nibble += 1;
        }
        Self { tables }
    }

    /// Hashes the first 36 bytes of `input`. Two table look-ups a byte.
    #[inline]
    pub fn hash(&self, input: &[u8]) -> u32 {
        let (tables, _) = self.tables.as_chunks::<2>();
        input
            .iter()
            .zip(tables)
            .fold(0, |hash, (byte, [high, low])| {
                hash ^ high[usize::from(byte >> 4)] ^ low[usize::from(byte & 0xf)]
            })
    }

    /// Hashes a flow as a NIC does: source, destination and, for TCP and UDP, both ports.
    ///
    /// IPv4 addresses count as four bytes. NICs differ in what they do with UDP: many leave the ports
    /// out unless they are told otherwise (`ethtool -N rx-flow-hash`).
    #[inline]
    pub fn hash_flow(&self, key: &FlowKey) -> u32 {
        let mut input = [0; INPUT_BYTES_MAX];
        let addresses = match (key.source, key.destination) {
            (
                [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, source @ ..],
                [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, destination @ ..],
            ) => {
                input[..4].copy_from_slice(&source);
                input[4..8].copy_from_slice(&destination);
                8
            }
            (source, destination) => {
                input[..16].copy_from_slice(&source);
                input[16..32].copy_from_slice(&destination);
                32
            }
        };
        let mut length = addresses;
        if matches!(key.protocol, ip_protocol::TCP | ip_protocol::UDP) {
            length += 4;
            let [a, b] = key.source_port.to_be_bytes();
            let [c, d] = key.destination_port.to_be_bytes();
            for (to, from) in input.iter_mut().skip(addresses).zip([a, b, c, d]) {
                *to = from;
            }
        }
        self.hash(input.get(..length).unwrap_or_default())
    }
}

/// Returns the 32 bits of the key that start at bit `at`.
const fn window(key: &[u8; KEY_BYTES], at: usize) -> u32 {
    let mut bits: u64 = 0;
    let mut i = 0;
    while i < 5 {
        bits = bits << 8 | key[at / 8 + i] as u64;
        i += 1;
    }
    (bits >> (8 - at % 8)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::IpAddr;

    /// destination, its port, source, its port, hash of the addresses, hash with ports: the vectors
    /// of "Verifying the RSS Hash Calculation" in Microsoft's Windows driver documentation.
    const VECTORS: [(&str, u16, &str, u16, u32, u32); 8] = [
        (
            "161.142.100.80",
            1766,
            "66.9.149.187",
            2794,
            0x323e_8fc2,
            0x51cc_c178,
        ),
        (
            "65.69.140.83",
            4739,
            "199.92.111.2",
            14230,
            0xd718_262a,
            0xc626_b0ea,
        ),
        (
            "12.22.207.184",
            38024,
            "24.19.198.95",
            12898,
            0xd2d0_a5de,
            0x5c2b_394a,
        ),
        (
            "209.142.163.6",
            2217,
            "38.27.205.30",
            48228,
            0x8298_9176,
            0xafc7_327f,
        ),
        (
            "202.188.127.2",
            1303,
            "153.39.163.191",
            44251,
            0x5d18_09c5,
            0x10e8_28a2,
        ),
        (
            "3ffe:2501:200:3::1",
            1766,
            "3ffe:2501:200:1fff::7",
            2794,
            0x2cc1_8cd5,
            0x4020_7d3d,
        ),
        (
            "ff02::1",
            4739,
            "3ffe:501:8::260:97ff:fe40:efab",
            14230,
            0x0f0c_461c,
            0xdde5_1bbf,
        ),
        (
            "fe80::200:f8ff:fe21:67cf",
            38024,
            "3ffe:1900:4545:3:200:f8ff:fe21:67cf",
            44251,
            0x4b61_e985,
            0x02d1_feef,
        ),
    ];

    fn key(vector: &(&str, u16, &str, u16, u32, u32), protocol: u8) -> FlowKey {
        let octets = |text: &str| match text.parse().unwrap() {
            IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
            IpAddr::V6(address) => address.octets(),
        };
        FlowKey {
            source: octets(vector.2),
            destination: octets(vector.0),
            source_port: vector.3,
            destination_port: vector.1,
            protocol,
        }
    }

    #[test]
    fn microsoft_vectors() {
        let toeplitz = Toeplitz::new(&MICROSOFT_KEY);
        for vector in &VECTORS {
            assert_eq!(
                toeplitz.hash_flow(&key(vector, ip_protocol::TCP)),
                vector.5,
                "{vector:?}"
            );
            assert_eq!(
                toeplitz.hash_flow(&key(vector, ip_protocol::SCTP)),
                vector.4,
                "{vector:?}"
            );
        }
    }

    #[test]
    fn the_symmetric_key_is_symmetric_and_the_other_is_not() {
        let symmetric = Toeplitz::new(&SYMMETRIC_KEY);
        let plain = Toeplitz::new(&MICROSOFT_KEY);
        for vector in &VECTORS {
            let key = key(vector, ip_protocol::UDP);
            assert_eq!(
                symmetric.hash_flow(&key),
                symmetric.hash_flow(&key.reversed())
            );
            assert_ne!(plain.hash_flow(&key), plain.hash_flow(&key.reversed()));
        }
    }

    #[test]
    fn tables_equal_the_definition_bit_by_bit() {
        let toeplitz = Toeplitz::new(&MICROSOFT_KEY);
        for bit in 0..INPUT_BYTES_MAX * 8 {
            let mut input = [0; INPUT_BYTES_MAX];
            input[bit / 8] = 0x80 >> (bit % 8);
            assert_eq!(toeplitz.hash(&input), window(&MICROSOFT_KEY, bit), "{bit}");
        }
    }
}
