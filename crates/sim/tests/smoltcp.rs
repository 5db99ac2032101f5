//! Our stack and smoltcp, as they speak over one link with faults, in virtual time: whoever opens the connection, every
//! byte arrives in both directions, and both ends close.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use graph::fault::Impairment;
use sim::{Faults, Random, replayable};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp;
use smoltcp::time::Instant as SmolInstant;
use smoltcp::wire::{EthernetAddress, IpCidr, IpEndpoint};
use stack::{Error, FrameList, ListenerHandle, Shutdown, Stack, StackConfig, State, TcpHandle};
use wire::{Instant, MacAddr};

/// Seeds of each kind of link.
const SEEDS: u64 = 2;
/// Bytes each way.
const BYTES: usize = 150_000;
/// Virtual time after which a run is stuck: smoltcp's timeouts are whole seconds, and double.
const LIMIT: Duration = Duration::from_secs(600);
/// The least step of time: smoltcp may ask to be polled at once again and again.
const STEP_NS: u64 = 20_000;
const PORT: u16 = 80;

/// smoltcp's end of the link.
#[derive(Default)]
struct End {
    received: VecDeque<Vec<u8>>,
    sent: VecDeque<Vec<u8>>,
}

struct Take(Vec<u8>);
struct Give<'a>(&'a mut VecDeque<Vec<u8>>);

impl RxToken for Take {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

impl TxToken for Give<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, bytes: usize, f: F) -> R {
        let mut frame = vec![0; bytes];
        let result = f(&mut frame);
        self.0.push_back(frame);
        result
    }
}

impl Device for End {
    type RxToken<'a> = Take;
    type TxToken<'a> = Give<'a>;
    fn receive(&mut self, _: SmolInstant) -> Option<(Take, Give<'_>)> {
        let frame = self.received.pop_front()?;
        Some((Take(frame), Give(&mut self.sent)))
    }
    fn transmit(&mut self, _: SmolInstant) -> Option<Give<'_>> {
        (self.sent.len() < 64).then_some(Give(&mut self.sent))
    }
    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = 1514;
        capabilities
    }
}

/// Both hosts, the link, and what each application has sent and received.
struct Pair {
    now: u64,
    ours: Stack,
    listener: Option<ListenerHandle>,
    handle: Option<TcpHandle>,
    /// Our application has closed; the handle is stale.
    closed: bool,
    frames: FrameList,
    theirs: Interface,
    end: End,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
    to_ours: Impairment<Vec<u8>>,
    to_theirs: Impairment<Vec<u8>>,
    data: [Vec<u8>; 2],
    sent: [usize; 2],
    received: [Vec<u8>; 2],
}

impl Pair {
    fn new(seed: u64, faults: Faults, is_v6: bool, we_connect: bool) -> Self {
        let now = 1_000_000_000;
        let (our_ip, their_ip, prefix): (IpAddr, IpAddr, u8) = if is_v6 {
            let ip = |n: u16| IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, n]);
            (ip(1), ip(2), 64)
        } else {
            ([192, 0, 2, 1].into(), [192, 0, 2, 2].into(), 24)
        };
        let mut random = Random::new(seed);
        let mut config = StackConfig::new(MacAddr([2, 0, 0, 0, 0, 1]), [seed, 2, 3, 4]);
        config.limits.sessions_ipv4 = 64;
        config.limits.sessions_ipv6 = 64;
        config.tcp.fin_wait_2 = Duration::from_secs(5);
        let mut ours = Stack::new(config, Instant::from_ns(now));
        assert!(ours.add_address(our_ip, prefix));

        let mut end = End::default();
        let mut config = Config::new(EthernetAddress([2, 0, 0, 0, 0, 2]).into());
        config.random_seed = random.next_u64();
        let mut theirs = Interface::new(config, &mut end, smol_time(now));
        theirs.update_ip_addrs(|list| {
            list.push(IpCidr::new(their_ip.into(), prefix))
                .expect("room for an address");
        });
        let mut sockets = SocketSet::new(Vec::new());
        let buffer = || tcp::SocketBuffer::new(vec![0; 65_536]);
        let socket = sockets.add(tcp::Socket::new(buffer(), buffer()));

        let (mut listener, mut handle) = (None, None);
        let their_socket = sockets.get_mut::<tcp::Socket<'_>>(socket);
        if we_connect {
            their_socket.listen(PORT).expect("a free port");
            let peer = SocketAddr::new(their_ip, PORT);
            handle = Some(
                ours.tcp_connect(Instant::from_ns(now), peer, None)
                    .expect("a route"),
            );
        } else {
            let local = SocketAddr::new(our_ip, PORT);
            listener = Some(ours.tcp_listen(local, 4).expect("a free port"));
            let peer = IpEndpoint::new(our_ip.into(), PORT);
            their_socket
                .connect(theirs.context(), peer, 40_000)
                .expect("an address");
        }
        let mut stream = || (0..BYTES).map(|_| random.next_u64() as u8).collect();
        Self {
            now,
            ours,
            listener,
            handle,
            closed: false,
            frames: FrameList::new(256),
            theirs,
            end,
            sockets,
            socket,
            to_ours: Impairment::new(faults, seed ^ 1),
            to_theirs: Impairment::new(faults, seed ^ 2),
            data: [stream(), stream()],
            sent: [0; 2],
            received: [Vec::new(), Vec::new()],
        }
    }

    const fn time(&self) -> Instant {
        Instant::from_ns(self.now)
    }

    /// Our application: writes all, closes its side, reads all, closes.
    fn run_ours(&mut self) {
        let now = self.time();
        if let (None, Some(listener)) = (self.handle, self.listener) {
            self.handle = self
                .ours
                .tcp_accept(listener)
                .ok()
                .map(|(handle, _)| handle);
        }
        let Some(handle) = self.handle.filter(|_| !self.closed) else {
            return;
        };
        while self.sent[0] < BYTES {
            match self
                .ours
                .tcp_send(now, handle, &self.data[0][self.sent[0]..])
            {
                Ok(bytes) => self.sent[0] += bytes,
                Err(Error::WouldBlock | Error::NotConnected) => break,
                Err(error) => panic!("sending: {error}"),
            }
            if self.sent[0] == BYTES {
                self.ours
                    .tcp_shutdown(now, handle, Shutdown::Write)
                    .expect("it is connected");
            }
        }
        let mut buffer = [0; 4096];
        loop {
            match self.ours.tcp_recv(now, handle, &mut buffer) {
                Ok(0) => break,
                Ok(bytes) => self.received[0].extend(&buffer[..bytes]),
                Err(Error::WouldBlock | Error::NotConnected) => break,
                Err(error) => panic!("receiving: {error}"),
            }
        }
        if self.sent[0] == BYTES && self.received[0].len() == BYTES {
            self.ours
                .tcp_close(now, handle)
                .expect("the handle is ours");
            self.closed = true;
        }
    }

    /// Their application: the same.
    fn run_theirs(&mut self) {
        let socket = self.sockets.get_mut::<tcp::Socket<'_>>(self.socket);
        while self.sent[1] < BYTES && socket.can_send() {
            self.sent[1] += socket
                .send_slice(&self.data[1][self.sent[1]..])
                .expect("it can send");
            if self.sent[1] == BYTES {
                socket.close();
            }
        }
        let mut buffer = [0; 4096];
        while socket.can_recv() {
            let bytes = socket.recv_slice(&mut buffer).expect("it can receive");
            self.received[1].extend(&buffer[..bytes]);
        }
    }

    /// Moves frames and time; returns false when both ends are closed.
    fn step(&mut self) -> bool {
        let now = self.time();
        while let Some(frame) = self.to_ours.poll(now) {
            self.ours.input(now, &[frame.as_slice()]);
        }
        while let Some(frame) = self.to_theirs.poll(now) {
            self.end.received.push_back(frame);
        }
        self.ours.handle_timeout(now);
        self.theirs
            .poll(smol_time(self.now), &mut self.end, &mut self.sockets);
        self.run_ours();
        self.run_theirs();
        self.theirs
            .poll(smol_time(self.now), &mut self.end, &mut self.sockets);
        self.ours.poll_transmit(now, &mut self.frames);
        // What the link loses is in its statistics.
        while let Some(frame) = self.frames.pop() {
            let _ = self
                .to_theirs
                .offer(now, frame, |frame| Some(frame.clone()));
        }
        while let Some(frame) = self.end.sent.pop_front() {
            let _ = self.to_ours.offer(now, frame, |frame| Some(frame.clone()));
        }
        while self.ours.poll_event().is_some() {}

        let their_delay = self.theirs.poll_at(smol_time(self.now), &self.sockets);
        let theirs = their_delay.map(|at| at.total_micros().unsigned_abs() * 1000);
        let others = [
            self.ours.poll_timeout(),
            self.to_ours.poll_timeout(),
            self.to_theirs.poll_timeout(),
        ];
        let next = others
            .into_iter()
            .flatten()
            .map(Instant::as_ns)
            .chain(theirs)
            .min();
        self.now = next.unwrap_or(0).max(self.now + STEP_NS);

        let socket = self.sockets.get::<tcp::Socket<'_>>(self.socket);
        // In CLOSING smoltcp 0.14 does not repeat its FIN if that was lost.
        let they_are_done = matches!(
            socket.state(),
            tcp::State::Closed | tcp::State::TimeWait | tcp::State::Closing
        );
        // What is in TIME-WAIT is no connection any more.
        let we_are_done = self.closed && self.ours.usage().connections == 0;
        !(they_are_done && we_are_done && self.sent[1] == BYTES)
    }
}

fn smol_time(ns: u64) -> SmolInstant {
    SmolInstant::from_micros(i64::try_from(ns / 1000).unwrap_or(i64::MAX))
}

fn converse(seed: u64, faults: Faults) {
    for we_connect in [true, false] {
        for is_v6 in [false, true] {
            // A damaged ARP packet has no checksum to tell.
            let corrupt_ppm = if is_v6 { faults.corrupt_ppm } else { 0 };
            let faults = Faults {
                corrupt_ppm,
                ..faults
            };
            let mut pair = Pair::new(seed, faults, is_v6, we_connect);
            let limit = pair.now + LIMIT.as_nanos() as u64;
            while pair.step() {
                let state = pair.handle.and_then(|handle| pair.ours.tcp_state(handle));
                assert!(
                    pair.now < limit,
                    "stuck: we connect {we_connect}, IPv6 {is_v6}, sent {:?}, received {:?}, we are {state:?}, they {:?}",
                    pair.sent,
                    pair.received.each_ref().map(Vec::len),
                    pair.sockets.get::<tcp::Socket<'_>>(pair.socket).state(),
                );
                assert_ne!(state, Some(State::Closed), "our connection ended early");
            }
            assert!(
                pair.received[0] == pair.data[1],
                "what smoltcp sent arrived otherwise"
            );
            assert!(
                pair.received[1] == pair.data[0],
                "what we sent arrived otherwise"
            );
        }
    }
}

/// A link of 100 Mbit/s and 2 ms.
fn link() -> Faults {
    Faults {
        delay: Duration::from_millis(1),
        bandwidth_bps: 100_000_000,
        ..Faults::default()
    }
}

#[test]
fn clean_link() {
    replayable("smoltcp", "clean_link", SEEDS, |seed| {
        converse(seed, link())
    });
}

#[test]
fn lossy_link() {
    replayable("smoltcp", "lossy_link", SEEDS, |seed| {
        for drop_ppm in [1_000, 10_000, 30_000] {
            converse(seed, Faults { drop_ppm, ..link() });
        }
    });
}

#[test]
fn reordering_link() {
    replayable("smoltcp", "reordering_link", SEEDS, |seed| {
        let faults = Faults {
            reorder_ppm: 50_000,
            reorder_by: Duration::from_millis(3),
            jitter: Duration::from_micros(200),
            ..link()
        };
        converse(seed, faults);
    });
}

#[test]
fn bad_link() {
    replayable("smoltcp", "bad_link", SEEDS, |seed| {
        let faults = Faults {
            drop_ppm: 10_000,
            duplicate_ppm: 10_000,
            corrupt_ppm: 10_000,
            reorder_ppm: 20_000,
            reorder_by: Duration::from_millis(3),
            ..link()
        };
        converse(seed, faults);
    });
}
