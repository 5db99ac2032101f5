//! The world of the tests: hosts, a link with rate, delay, queue and seeded faults, virtual time.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use stack::{Event, FrameList, ListenerHandle, Ready, Stack, StackConfig, TcpHandle};
use wire::{Instant, MacAddr};

/// SplitMix64.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }
    pub fn happens(&mut self, ppm: u32) -> bool {
        ppm > 0 && self.below(1_000_000) < u64::from(ppm)
    }
}

/// What a link does to frames, in parts per million.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub drop: u32,
    pub duplicate: u32,
    pub corrupt: u32,
    /// Frames that are held back, and for how long at most.
    pub reorder: u32,
    pub reorder_ns: u64,
    /// Spare frames without data.
    pub data_only: bool,
}

/// Sees a frame, may change it, and says whether it goes on.
pub type Filter = Box<dyn FnMut(&mut Vec<u8>) -> bool>;

/// One direction of a link.
pub struct Way {
    pub rate_bps: u64,
    pub delay_ns: u64,
    pub queue_ns: u64,
    pub mtu: usize,
    pub faults: Faults,
    pub dropped: u64,
    pub carried_bytes: u64,
    free_at: u64,
    under_way: BTreeMap<(u64, u64), Vec<u8>>,
    count: u64,
    rng: Rng,
    /// Sees each frame first; false drops it.
    pub filter: Option<Filter>,
}

impl Way {
    fn new(seed: u64) -> Self {
        Self {
            rate_bps: 0,
            delay_ns: 50_000,
            queue_ns: 20_000_000,
            mtu: 9100,
            faults: Faults::default(),
            dropped: 0,
            carried_bytes: 0,
            free_at: 0,
            under_way: BTreeMap::new(),
            count: 0,
            rng: Rng(seed),
            filter: None,
        }
    }
    fn send(&mut self, now: u64, mut frame: Vec<u8>) {
        if let Some(filter) = &mut self.filter
            && !filter(&mut frame)
        {
            self.dropped += 1;
            return;
        }
        let faults = self.faults;
        let spared = faults.data_only && frame.len() < 200;
        let start = self.free_at.max(now);
        // 24 bytes: preamble, frame check sequence, gap.
        let bits = (frame.len() as u64 + 24) * 8;
        let serial = (bits * 1_000_000_000)
            .checked_div(self.rate_bps)
            .unwrap_or(0);
        if start - now > self.queue_ns || frame.len() > self.mtu + 14 {
            self.dropped += 1;
            return;
        }
        self.free_at = start + serial;
        if !spared && self.rng.happens(faults.drop) {
            self.dropped += 1;
            return;
        }
        self.carried_bytes += frame.len() as u64;
        let mut arrival = self.free_at + self.delay_ns;
        if !spared && self.rng.happens(faults.reorder) {
            arrival += self.rng.below(faults.reorder_ns) + 1;
        }
        if self.rng.happens(faults.duplicate) {
            self.count += 1;
            let later = arrival + self.rng.below(1_000_000);
            self.under_way.insert((later, self.count), frame.clone());
        }
        if self.rng.happens(faults.corrupt) {
            let at = self.rng.below(frame.len() as u64) as usize;
            frame[at] ^= 1 << self.rng.below(8);
        }
        self.count += 1;
        self.under_way.insert((arrival, self.count), frame);
    }
}

/// Two hosts and the link between them. Way 0 goes from host 0 to host 1.
pub struct World {
    pub hosts: [Stack; 2],
    pub ways: [Way; 2],
    pub now: u64,
    sinks: [FrameList; 2],
}

pub const MACS: [MacAddr; 2] = [MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2])];

pub fn ip(host: usize) -> IpAddr {
    IpAddr::from([192, 0, 2, host as u8 + 1])
}

pub fn ip6(host: usize) -> IpAddr {
    format!("2001:db8::{}", host + 1).parse().unwrap()
}

/// Makes the usual configuration.
pub fn config(host: usize, seed: u64) -> StackConfig {
    let mut config = StackConfig::new(MACS[host], [seed, host as u64, 3, 4]);
    config.limits.sessions_ipv4 = 512;
    config.limits.sessions_ipv6 = 64;
    config.limits.connections = 512;
    config
}

impl World {
    pub fn new(seed: u64) -> Self {
        Self::with(seed, |_, _| {})
    }
    /// Makes a world whose hosts' configurations `change` may touch.
    pub fn with(seed: u64, change: impl Fn(usize, &mut StackConfig)) -> Self {
        let make = |host: usize| {
            let mut config = config(host, seed);
            change(host, &mut config);
            let mut stack = Stack::new(config, Instant::ZERO);
            stack.add_address(ip(host), 24);
            stack.add_address(ip6(host), 64);
            stack
        };
        Self {
            hosts: [make(0), make(1)],
            ways: [Way::new(seed ^ 0xa), Way::new(seed ^ 0xb)],
            now: 1_000_000_000,
            sinks: [FrameList::new(4096), FrameList::new(4096)],
        }
    }
    pub fn time(&self) -> Instant {
        Instant::from_ns(self.now)
    }
    pub fn set_link(&mut self, rate_bps: u64, rtt_ns: u64) {
        for way in &mut self.ways {
            way.rate_bps = rate_bps;
            way.delay_ns = rtt_ns / 2;
        }
    }
    /// Moves frames from the hosts to the link.
    pub fn transmit(&mut self) {
        let now = self.time();
        for host in 0..2 {
            self.hosts[host].poll_transmit(now, &mut self.sinks[host]);
            while let Some(frame) = self.sinks[host].pop() {
                self.ways[host].send(self.now, frame);
            }
        }
    }
    /// Goes to the next moment at which something happens, `end` at the latest; false if there is none before it.
    pub fn step(&mut self, end: u64) -> bool {
        self.transmit();
        let arrivals = self
            .ways
            .iter()
            .filter_map(|way| way.under_way.first_key_value().map(|((at, _), _)| *at));
        let timeouts = self
            .hosts
            .iter()
            .filter_map(|host| host.poll_timeout().map(Instant::as_ns));
        let next = arrivals
            .chain(timeouts)
            .min()
            .unwrap_or(u64::MAX)
            .max(self.now);
        if next > end {
            self.now = end;
            return false;
        }
        self.now = next;
        let now = self.time();
        for host in 0..2 {
            let way = &mut self.ways[1 - host];
            let mut burst = Vec::new();
            while let Some(entry) = way.under_way.first_entry()
                && entry.key().0 <= next
                && burst.len() < 64
            {
                burst.push(entry.remove());
            }
            let frames: Vec<&[u8]> = burst.iter().map(Vec::as_slice).collect();
            self.hosts[host].input(now, &frames);
            self.hosts[host].handle_timeout(now);
            drop(frames);
            burst
                .into_iter()
                .for_each(|frame| self.sinks[1 - host].recycle(frame));
        }
        true
    }
    /// Runs until `done`, or for `ns` at most; returns whether it was done.
    pub fn run(&mut self, ns: u64, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.now + ns;
        loop {
            if done(self) {
                return true;
            }
            if !self.step(end) {
                return done(self);
            }
        }
    }
    /// Lets `ns` pass.
    pub fn pass(&mut self, ns: u64) {
        self.run(ns, |_| false);
    }
    /// Listens on host 1 and connects from host 0.
    pub fn connect(&mut self, port: u16) -> (TcpHandle, TcpHandle) {
        let listener = self.hosts[1]
            .tcp_listen(SocketAddr::new(ip(1), port), 16)
            .unwrap();
        self.connect_to(listener, SocketAddr::new(ip(1), port))
    }
    pub fn connect_to(
        &mut self,
        listener: ListenerHandle,
        to: SocketAddr,
    ) -> (TcpHandle, TcpHandle) {
        let now = self.time();
        let client = self.hosts[0].tcp_connect(now, to, None).unwrap();
        let mut server = None;
        self.run(60_000_000_000, |world| {
            server = server.or_else(|| {
                world.hosts[1]
                    .tcp_accept(listener)
                    .ok()
                    .map(|(handle, _)| handle)
            });
            server.is_some() && world.hosts[0].tcp_state(client) == Some(stack::State::Established)
        });
        (client, server.expect("connected"))
    }
    /// Returns the events of a host, told so far.
    pub fn events(&mut self, host: usize) -> Vec<Event> {
        std::iter::from_fn(|| self.hosts[host].poll_event()).collect()
    }
    pub fn ready(&mut self, host: usize, handle: TcpHandle) -> Ready {
        let of = |event: Event| match event {
            Event::Tcp(h, ready) if h == handle => ready,
            _ => Ready::empty(),
        };
        self.events(host)
            .into_iter()
            .map(of)
            .fold(Ready::empty(), Ready::union)
    }
}

/// The byte at a place of the test's stream.
pub fn byte(at: usize) -> u8 {
    (at.wrapping_mul(2_654_435_761) >> 13) as u8
}

/// Sends a stream of known bytes over a connection and checks what arrives.
pub struct Transfer {
    pub from: (usize, TcpHandle),
    pub to: (usize, TcpHandle),
    pub total: usize,
    pub sent: usize,
    pub received: usize,
    pub closes: bool,
    pub ended: bool,
}

impl Transfer {
    pub fn new(from: (usize, TcpHandle), to: (usize, TcpHandle), total: usize) -> Self {
        Self {
            from,
            to,
            total,
            sent: 0,
            received: 0,
            closes: false,
            ended: false,
        }
    }
    /// Moves what can be moved; true when all has arrived (and the end, if it closes).
    pub fn poll(&mut self, world: &mut World) -> bool {
        let now = world.time();
        let mut chunk = [0; 16_384];
        while self.sent < self.total {
            let bytes = chunk.len().min(self.total - self.sent);
            chunk[..bytes]
                .iter_mut()
                .enumerate()
                .for_each(|(i, b)| *b = byte(self.sent + i));
            match world.hosts[self.from.0].tcp_send(now, self.from.1, &chunk[..bytes]) {
                Ok(taken) => self.sent += taken,
                Err(stack::Error::WouldBlock) => break,
                Err(error) => panic!("send: {error}"),
            }
            if self.sent == self.total && self.closes {
                world.hosts[self.from.0]
                    .tcp_shutdown(now, self.from.1, stack::Shutdown::Write)
                    .unwrap();
            }
        }
        loop {
            match world.hosts[self.to.0].tcp_recv(now, self.to.1, &mut chunk) {
                Ok(0) => {
                    self.ended = true;
                    break;
                }
                Ok(bytes) => {
                    for (i, b) in chunk[..bytes].iter().enumerate() {
                        assert_eq!(
                            *b,
                            byte(self.received + i),
                            "byte {} is wrong",
                            self.received + i
                        );
                    }
                    self.received += bytes;
                }
                Err(stack::Error::WouldBlock) => break,
                Err(error) => panic!("recv: {error}"),
            }
        }
        self.received == self.total && (self.ended || !self.closes)
    }
}
