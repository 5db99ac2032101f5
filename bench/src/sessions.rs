//! Sets of TCP sessions as networks have them, for the programs that measure session tables.

use tables::signature::Session4;

/// SplitMix64: numbers for workloads, the same in every run.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Starts a sequence.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next_u64()) * bound as u128) >> 64) as usize
    }

    /// Puts `items` in a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at + 1));
        }
    }
}

/// Where a set of sessions comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pool {
    /// Every field random.
    Random,
    /// 10,000 clients of one server, ports in order.
    ClientsSequential,
    /// 10,000 clients of one server, ports at random.
    ClientsRandom,
    /// 64 proxies, nearly all of their ports, one server (and more servers when the ports are out).
    Proxies,
    /// Clients behind the addresses of /24s, ports in order, many servers.
    Nat,
    /// Hosts of one net that talk to each other, both directions in the table.
    Mesh,
}

impl Pool {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Random,
        Self::ClientsSequential,
        Self::ClientsRandom,
        Self::Proxies,
        Self::Nat,
        Self::Mesh,
    ];

    /// Returns the name for tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Random => "random tuples",
            Self::ClientsSequential => "10 k clients, sequential ports, one server",
            Self::ClientsRandom => "10 k clients, random ports, one server",
            Self::Proxies => "64 proxies x 64 k ports",
            Self::Nat => "NATed /24s",
            Self::Mesh => "mesh, both directions",
        }
    }

    /// Makes `count` distinct sessions, in no order.
    pub fn sessions(self, count: usize) -> Vec<Session4> {
        let mut random = Random::new(0x5e55_1075 + self as u64);
        let mut sessions = Vec::with_capacity(count + count / 8);
        let mut round = 0;
        while sessions.len() < count {
            let missing = count - sessions.len();
            for at in 0..missing + missing / 16 + 16 {
                sessions.push(self.session(round + at, &mut random));
            }
            round += missing + missing / 16 + 16;
            sessions.sort_unstable();
            sessions.dedup();
        }
        random.shuffle(&mut sessions);
        sessions.truncate(count);
        sessions
    }

    fn session(self, at: usize, random: &mut Random) -> Session4 {
        let server = 0xc0a8_0101;
        let tuple =
            |source: usize, source_port: usize, destination: u32, destination_port: u16| Session4 {
                source: source as u32,
                destination,
                source_port: source_port as u16,
                destination_port,
                protocol: 6,
            };
        match self {
            Self::Random => {
                let (a, b) = (random.next_u64(), random.next_u64());
                tuple((a >> 32) as usize, b as usize, a as u32, (b >> 16) as u16)
            }
            Self::ClientsSequential => tuple(
                0x0a00_0000 + at % 10_000,
                1024 + at / 10_000 % 64_512,
                server + (at / 645_120_000) as u32,
                443,
            ),
            Self::ClientsRandom => tuple(
                0x0a00_0000 + random.below(10_000),
                1024 + random.below(64_512),
                server,
                443,
            ),
            Self::Proxies => tuple(
                0x0a00_0000 + at % 64,
                1024 + at / 64 % 64_512,
                server + (at / (64 * 64_512)) as u32,
                443,
            ),
            Self::Nat => tuple(
                0x6440_0000 + (at % 97) * 256 + random.below(256),
                1024 + at / 97 % 64_512,
                0x0808_0000 + random.below(4096) as u32,
                [80, 443, 8080, 993][random.below(4)],
            ),
            Self::Mesh => {
                let (a, b) = (random.below(256), random.below(256) as u32);
                let port = 32_768 + random.below(28_232);
                if at.is_multiple_of(2) {
                    tuple(0x0a01_0000 + a, port, 0x0a01_0000 + b, 5000)
                } else {
                    tuple(0x0a01_0000 + a, 5000, 0x0a01_0000 + b, port as u16)
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_are_distinct_sessions() {
        for pool in Pool::ALL {
            let mut sessions = pool.sessions(20_000);
            assert_eq!(sessions.len(), 20_000, "{}", pool.name());
            sessions.sort_unstable();
            sessions.dedup();
            assert_eq!(sessions.len(), 20_000, "{}", pool.name());
        }
    }
}
