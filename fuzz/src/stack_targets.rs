//! What the fuzz target of the TCP/IP host does with its input: it is the other end of the link, the
//! application and the clock.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use stack::{FrameList, ListenerHandle, Stack, StackConfig, TcpHandle, TcpOption as Setting};
use wire::tcp::{Flags, Repr, SackBlocks, TcpOption, View};
use wire::{Addresses, Instant, MacAddr, ethernet, ip_protocol, ipv4};

const HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const HOST_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const PEER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const PORT: u16 = 80;

/// Takes the input apart, byte by byte; zeros when it is at its end.
struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        first
    }

    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// A number near zero, seldom far from it.
    fn offset(&mut self) -> u32 {
        let byte = self.byte();
        match byte {
            0xf0.. => 1 << (byte & 15) << 16,
            _ => i32::from(byte as i8 / 2).cast_unsigned(),
        }
    }
}

struct World {
    stack: Stack,
    sink: FrameList,
    now: u64,
    listener: ListenerHandle,
    connections: Vec<TcpHandle>,
    /// The next sequence number that the host expects of us, and that we expect of it.
    ours: u32,
    theirs: u32,
    host_port: u16,
    peer_port: u16,
}

impl World {
    fn new() -> Self {
        let mut config = StackConfig::new(HOST_MAC, [1, 2, 3, 4]);
        config.limits.sessions_ipv4 = 64;
        config.limits.sessions_ipv6 = 16;
        config.limits.connections = 16;
        config.limits.buffer_blocks = 64;
        let now = 1_000_000_000;
        let mut stack = Stack::new(config, Instant::from_ns(now));
        stack.add_address(HOST.into(), 24);
        stack.set_neighbour(Instant::from_ns(now), PEER.into(), PEER_MAC);
        let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), PORT);
        let listener = stack.tcp_listen(any, 4).expect("a free port");
        Self {
            stack,
            sink: FrameList::new(256),
            now,
            listener,
            connections: Vec::new(),
            ours: 1000,
            theirs: 0,
            host_port: PORT,
            peer_port: 4000,
        }
    }

    fn time(&self) -> Instant {
        Instant::from_ns(self.now)
    }

    /// Takes what the host sends, and remembers where its stream is.
    fn transmit(&mut self) {
        for _ in 0..64 {
            let is_done = self.stack.poll_transmit(self.time(), &mut self.sink);
            while let Some(frame) = self.sink.pop() {
                assert!(frame.len() <= 1514, "a frame of {} bytes", frame.len());
                self.look_at(&frame);
                self.sink.recycle(frame);
            }
            if is_done {
                break;
            }
        }
        while self.stack.poll_event().is_some() {}
    }

    fn look_at(&mut self, frame: &[u8]) {
        let layout = wire::parse(frame).expect("the host sends valid frames");
        let at = usize::from(layout.transport);
        if layout.protocol != ip_protocol::TCP || layout.ether_type != 0x0800 {
            return;
        }
        let segment = View::new(&frame[at..]).expect("the frame is valid");
        self.host_port = segment.source_port();
        self.peer_port = segment.destination_port();
        let flags = segment.flags();
        let length = segment.payload().len() as u32
            + u32::from(flags.contains(Flags::SYN))
            + u32::from(flags.contains(Flags::FIN));
        self.theirs = segment.sequence().wrapping_add(length);
        if flags.contains(Flags::ACK) {
            self.ours = segment.acknowledgement();
        }
    }

    fn segment(&mut self, script: &mut Script<'_>) {
        let flags = Flags::from_bits_truncate(u16::from(script.byte()));
        let sequence = self.ours.wrapping_add(script.offset());
        let acknowledgement = self.theirs.wrapping_add(script.offset());
        let window = u16::from(script.byte()) << 8;
        let sack = [(
            acknowledgement.wrapping_add(100),
            acknowledgement.wrapping_add(script.offset()),
        )];
        let timestamps = TcpOption::Timestamps {
            value: (self.now / 1_000_000) as u32,
            echo: script.offset(),
        };
        let all = [
            TcpOption::MaximumSegmentSize(u16::from(script.byte()) << 3),
            TcpOption::WindowScale(script.byte()),
            TcpOption::SackPermitted,
            timestamps,
            TcpOption::Sack(SackBlocks::new(&sack)),
        ];
        let chosen = script.byte();
        let options: Vec<_> = (0..5)
            .filter(|bit| chosen >> bit & 1 == 1)
            .map(|bit| all[bit])
            .collect();
        let length = usize::from(script.byte()) * 6;
        let repr = Repr {
            source_port: self.peer_port,
            destination_port: self.host_port,
            sequence,
            acknowledgement,
            flags,
            window,
            urgent: u16::from(chosen >> 5),
            options: &options,
        };
        let mut segment = vec![0x5a; repr.bytes() + length];
        let addresses = Addresses::V4 {
            source: PEER,
            destination: HOST,
        };
        repr.emit(&mut segment, &addresses)
            .expect("five options fit");
        let mut frame = vec![0; 34];
        ethernet::Repr {
            destination: HOST_MAC,
            source: PEER_MAC,
            ether_type: 0x0800,
        }
        .emit(&mut frame)
        .expect("room for a header");
        ipv4::Repr::new(PEER, HOST, ip_protocol::TCP, segment.len() as u16)
            .emit(&mut frame[14..])
            .expect("room for a header");
        frame.extend(segment);
        self.stack.input(self.time(), &[&frame]);
    }

    fn pass(&mut self, ns: u64) {
        let end = self.now + ns;
        // A host sets a timer at most some hundred times a second and connection.
        for _ in 0..100_000 {
            match self.stack.poll_timeout().map(Instant::as_ns) {
                Some(at) if at <= end => {
                    self.now = self.now.max(at);
                    self.stack.handle_timeout(self.time());
                    self.transmit();
                }
                _ => {
                    self.now = end;
                    return;
                }
            }
        }
        panic!("the host is busy with nothing");
    }

    fn application(&mut self, script: &mut Script<'_>) {
        let now = self.time();
        while let Ok((connection, _)) = self.stack.tcp_accept(self.listener) {
            self.connections.push(connection);
        }
        let what = script.byte();
        if what & 7 == 0 {
            let to = SocketAddr::new(IpAddr::V4(PEER), 4000 + u16::from(what >> 3));
            if let Ok(connection) = self.stack.tcp_connect(now, to, None) {
                self.connections.push(connection);
            }
            return;
        }
        let Some(&connection) = self
            .connections
            .get(usize::from(what >> 3) % self.connections.len().max(1))
        else {
            return;
        };
        // Whatever a call answers is an answer; that there is one is what is looked at.
        match what & 7 {
            1 | 2 => drop(self.stack.tcp_send(
                now,
                connection,
                &vec![7; usize::from(script.byte()) * 64],
            )),
            3 => drop(self.stack.tcp_recv(now, connection, &mut [0; 4096])),
            4 => drop(
                self.stack
                    .tcp_shutdown(now, connection, stack::Shutdown::Write),
            ),
            5 => drop(self.stack.tcp_close(now, connection)),
            6 => drop(self.stack.tcp_abort(now, connection)),
            _ => drop(self.stack.tcp_set(
                now,
                connection,
                Setting::NoDelay(script.byte() & 1 == 1),
            )),
        }
    }
}

/// A host with a listener, at the hands of the script. In the end its connections are aborted: all that they
/// held is free again.
pub fn tcp_host(bytes: &[u8]) {
    let mut script = Script(bytes);
    let mut world = World::new();
    for _ in 0..256 {
        if script.0.is_empty() {
            break;
        }
        match script.byte() {
            0..=139 => world.segment(&mut script),
            140..=199 => world.application(&mut script),
            200..=239 => {
                let ms = 1 << (script.byte() % 18);
                world.pass(ms * 1_000_000);
            }
            _ => {
                let length = usize::from(script.byte());
                let frame = script.take(length);
                world.stack.input(world.time(), &[frame]);
            }
        }
        world.transmit();
    }
    world.application(&mut Script(&[7]));
    for connection in std::mem::take(&mut world.connections) {
        let _ = world.stack.tcp_abort(world.time(), connection);
        let _ = world.stack.tcp_close(world.time(), connection);
    }
    let _ = world.stack.tcp_close_listener(world.time(), world.listener);
    world.transmit();
    // Longer than eight retransmissions of an orphan, two minutes apart.
    world.pass(1_200_000_000_000);
    let usage = world.stack.usage();
    assert_eq!(
        (usage.sessions, usage.connections, usage.blocks),
        (0, 0, 0),
        "{usage:?}"
    );
}
