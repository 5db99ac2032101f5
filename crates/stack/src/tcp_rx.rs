//! Segments: to their connection, to a session in TIME_WAIT, to a listener, or answered by a reset (RFC 9293 3.10.7).

use core::net::IpAddr;

use wire::tcp::{self, Flags};
use wire::{DropReason, MacAddr};

use crate::config::Modules;
use crate::rx::Rx;
use crate::stack::{Limit, Stack};
use crate::tcp::Reply;
use crate::tcp::emit::{Cookie, Header, Path, SynOptions, emit};
use crate::tcp::segment::Segment;
use crate::tcp::seq::Seq;
use crate::tcp::sessions::{Found, Key, TimeWait};
use crate::tcp::state::State;
use crate::tcp::tcb::{Flag, Tcb};

/// Fast Open cookies of servers that are remembered.
const COOKIES_MAX: usize = 256;

impl Stack {
    pub(crate) fn receive_tcp(&mut self, rx: &Rx<'_>, now_ns: u64) -> Result<(), DropReason> {
        let transport = usize::from(rx.layout.transport);
        let bytes = rx
            .frame
            .get(transport..usize::from(rx.layout.end))
            .unwrap_or_default();
        let view = tcp::View::new(bytes)?;
        let options = rx
            .frame
            .get(transport + tcp::HEADER_BYTES..usize::from(rx.layout.payload))
            .unwrap_or_default();
        let segment = Segment::new(&view, options, is_marked(rx));
        self.tcp.stats.segments_in += 1;
        match self.tcp.sessions.get(rx.session) {
            Found::Connection(index) => {
                self.at_connection(index, &segment, rx, now_ns);
                Ok(())
            }
            Found::TimeWait(wait) => self.at_time_wait(wait, &segment, &view, rx, now_ns),
            Found::Nothing => {
                let (source, destination) = Self::ends(rx);
                let key = Key::new(
                    source,
                    view.source_port(),
                    destination,
                    view.destination_port(),
                );
                match key {
                    Some(key) => self.at_listener(&key, &segment, None, rx, now_ns),
                    None => Err(DropReason::PortUnreachable),
                }
            }
        }
    }

    fn at_connection(&mut self, index: u32, segment: &Segment<'_>, rx: &Rx<'_>, now_ns: u64) {
        let Some((tcb, mut ctx)) = self.tcp.with(index, now_ns) else {
            return;
        };
        let ack_at = tcb.ack_at;
        if tcb.take_next(segment, &mut ctx) {
            if tcb.ack_at != ack_at || !tcb.is_known_to_act() {
                self.tcp.settle(index, now_ns, &mut self.told);
            }
            return;
        }
        self.make_acceptable(index);
        let Some((tcb, mut ctx)) = self.tcp.with(index, now_ns) else {
            return;
        };
        let (una, was_opening) = (tcb.snd_una, tcb.state == State::SynSent);
        let reply = tcb.on_segment(segment, &mut ctx);
        if tcb.has(Flag::HALF_OPEN) && matches!(tcb.state, State::SynReceived | State::Closed) {
            tcb.flags.remove(Flag::ACCEPTABLE);
        }
        if tcb.snd_una != una {
            self.neighbours.confirm(tcb.neighbour, now_ns);
        }
        if was_opening && let Some(cookie) = segment.options.fast_open {
            self.remember_cookie(rx, cookie);
        }
        match reply {
            Reply::None => {}
            Reply::Reset => self.reset(segment, rx, now_ns),
        }
        self.tcp.settle(index, now_ns, &mut self.told);
    }

    /// A half-open connection may be established only while its listener has room in the accept queue.
    fn make_acceptable(&mut self, index: u32) {
        let Some(tcb) = self.tcp.tcbs.at_mut(index) else {
            return;
        };
        if tcb.state != State::SynReceived || !tcb.has(Flag::PASSIVE) {
            return;
        }
        let has_room = self
            .tcp
            .listeners
            .at(tcb.listener)
            .is_some_and(|listener| listener.has_room());
        if has_room {
            tcb.flags.insert(Flag::ACCEPTABLE);
        } else {
            self.tcp.stats.backlog_drops += 1;
        }
    }

    fn remember_cookie(&mut self, rx: &Rx<'_>, cookie: &[u8]) {
        if !(4..=16).contains(&cookie.len()) {
            return;
        }
        let (server, _) = Self::ends(rx);
        let cookies = &mut self.tcp.fast_open_cookies;
        if cookies.len() >= COOKIES_MAX {
            cookies.pop_first();
        }
        cookies.insert(server, Cookie::new(cookie));
    }

    /// RFC 9293 3.10.7.4, TIME-WAIT; RFC 6191 for a new SYN; RFC 1337 for resets.
    fn at_time_wait(
        &mut self,
        wait: TimeWait,
        segment: &Segment<'_>,
        view: &tcp::View<'_>,
        rx: &Rx<'_>,
        now_ns: u64,
    ) -> Result<(), DropReason> {
        if segment.has(Flags::RST) {
            return Ok(());
        }
        if segment.has(Flags::SYN) && !segment.has(Flags::ACK) {
            let newer_stamp = wait.has_timestamps
                && segment
                    .options
                    .timestamps
                    .is_some_and(|(value, _)| Seq(value).after(Seq(wait.ts_recent)));
            if newer_stamp || segment.seq.after(wait.rcv_nxt) {
                let (source, destination) = Self::ends(rx);
                let key = Key::new(
                    source,
                    view.source_port(),
                    destination,
                    view.destination_port(),
                );
                let key = key.ok_or(DropReason::PortUnreachable)?;
                self.tcp.reuse(rx.session);
                // Above all that the old session sent.
                let first = wait.snd_nxt.plus(65_535 + 2);
                return self.at_listener(&key, segment, Some(first), rx, now_ns);
            }
        }
        if segment.has(Flags::FIN) {
            self.tcp.restart_time_wait(rx.session, wait, now_ns);
        } else if segment.length() == 0 && segment.seq == wait.rcv_nxt {
            return Ok(());
        }
        if self.may_answer(Limit::TimeWait, now_ns) {
            let mut header = Header::new(Flags::ACK, wait.snd_nxt, wait.rcv_nxt, wait.window);
            if wait.has_timestamps {
                let stamp = ((now_ns / 1_000_000) as u32).wrapping_add(wait.ts_offset);
                header.timestamps(stamp, wait.ts_recent);
            }
            self.answer(&header, rx, view.destination_port(), view.source_port());
        }
        Ok(())
    }

    /// RFC 9293 3.10.7.1 and .2.
    fn at_listener(
        &mut self,
        key: &Key,
        segment: &Segment<'_>,
        first: Option<Seq>,
        rx: &Rx<'_>,
        now_ns: u64,
    ) -> Result<(), DropReason> {
        let (local, port) = key.local();
        if segment.has(Flags::RST) {
            return Ok(());
        }
        let Some(at) = self.tcp.listener_of(local, port) else {
            self.reset(segment, rx, now_ns);
            return Err(DropReason::PortUnreachable);
        };
        if segment.has(Flags::ACK) {
            if segment.has(Flags::SYN) || !self.accept_cookie(at, key, segment, rx, now_ns) {
                self.reset(segment, rx, now_ns);
            }
            return Ok(());
        }
        if segment.has(Flags::SYN) {
            self.open_passively(at, key, segment, first, rx, now_ns);
        }
        Ok(())
    }

    /// Takes a SYN: a half-open connection, or a cookie where the backlog is full.
    fn open_passively(
        &mut self,
        at: u32,
        key: &Key,
        segment: &Segment<'_>,
        first: Option<Seq>,
        rx: &Rx<'_>,
        now_ns: u64,
    ) {
        let Some(listener) = self.tcp.listeners.at(at) else {
            return;
        };
        let fast_open = listener.fast_open;
        if !listener.has_room() {
            self.tcp.stats.backlog_drops += 1;
            return;
        }
        let is_full = listener.half_open >= listener.backlog;
        let made = if is_full {
            None
        } else {
            self.make_half_open(at, key, segment, first, now_ns)
        };
        let Some(index) = made else {
            if self.tcp.config.modules.contains(Modules::SYN_COOKIES) {
                self.send_cookie(key, segment, rx, now_ns);
            } else {
                self.tcp.stats.backlog_drops += 1;
            }
            return;
        };
        if fast_open && self.tcp.config.modules.contains(Modules::FAST_OPEN) {
            self.open_fast(index, key, segment, now_ns);
        }
        self.tcp.settle(index, now_ns, &mut self.told);
    }

    fn make_half_open(
        &mut self,
        at: u32,
        key: &Key,
        segment: &Segment<'_>,
        first: Option<Seq>,
        now_ns: u64,
    ) -> Option<u32> {
        let first = first.unwrap_or_else(|| self.tcp.secrets.initial(key, now_ns));
        let mut tcb = self.new_tcb(State::SynReceived, key, first);
        tcb.listener = at;
        tcb.flags |= Flag::PASSIVE | Flag::SYN_NOW | Flag::HALF_OPEN;
        let asks = segment.flags.contains(Flags::ECE | Flags::CWR);
        tcb.flags.set(
            Flag::ECN,
            asks && self.tcp.config.modules.contains(Modules::ECN),
        );
        let index = self.insert(tcb, key)?;
        if let Some((tcb, mut ctx)) = self.tcp.with(index, now_ns) {
            tcb.take_syn(segment, &mut ctx);
        }
        if let Some(listener) = self.tcp.listeners.at_mut(at) {
            listener.half_open += 1;
        }
        Some(index)
    }

    /// RFC 7413 4.2: a SYN with our cookie establishes the connection at once, and its data counts.
    fn open_fast(&mut self, index: u32, key: &Key, segment: &Segment<'_>, now_ns: u64) {
        let Some(cookie) = segment.options.fast_open else {
            return;
        };
        let (peer, _) = key.peer();
        let right = self.tcp.secrets.fast_open(peer);
        let Some((tcb, mut ctx)) = self.tcp.with(index, now_ns) else {
            return;
        };
        if cookie != right {
            // A request, or a wrong cookie: the SYN-ACK brings a right one.
            tcb.flags.insert(Flag::FAST_OPEN);
            return;
        }
        if !segment.payload.is_empty() {
            ctx.stats.fast_opens += 1;
            let data = Segment {
                seq: segment.seq.plus(1),
                flags: segment.flags.difference(Flags::FIN | Flags::SYN),
                ..*segment
            };
            tcb.state = State::Established;
            tcb.take_data(&data, &mut ctx);
            tcb.state = State::SynReceived;
            tcb.flags.remove(Flag::ACK_NOW);
        }
    }

    /// Answers a SYN with a cookie: nothing is kept (RFC 4987 3.6).
    fn send_cookie(&mut self, key: &Key, segment: &Segment<'_>, rx: &Rx<'_>, now_ns: u64) {
        let path = self.answering_path(key, rx.source_mac);
        let mss = segment.options.mss.unwrap_or(536).min(path.mss());
        let cookie = self.tcp.secrets.cookie(key, segment.seq, mss, now_ns);
        let config = &self.tcp.config.modules;
        let mut timestamps = None;
        let (mut sack, mut scale) = (false, None);
        if config.contains(Modules::TIMESTAMPS)
            && let Some((value, _)) = segment.options.timestamps
        {
            // The low bits of our timestamp bring back what the SYN offered (as Linux).
            sack = config.contains(Modules::SACK) && segment.options.sack_permitted;
            let offered = segment
                .options
                .scale
                .filter(|_| config.contains(Modules::WINDOW_SCALE));
            scale = offered.map(|_| Tcb::shift_for(self.tcp.config.receive_buffer_max));
            let terms = u32::from(offered.unwrap_or(15)) | u32::from(sack) << 4;
            timestamps = Some((
                cookie_stamp(now_ns, self.tcp.secrets.timestamp_offset(key), terms),
                value,
            ));
        }
        let window = (65_535 / u32::from(path.mss().max(1)) * u32::from(path.mss()))
            .min(self.tcp.config.receive_buffer);
        let mut header = Header::new(
            Flags::SYN | Flags::ACK,
            cookie,
            segment.seq.plus(1),
            window as u16,
        );
        header.syn_options(SynOptions {
            mss: path.mss(),
            sack,
            timestamps,
            scale,
        });
        self.tcp.stats.cookies_sent += 1;
        self.queue_segment(&path, &header);
    }

    /// Makes a connection of an acknowledgement that brings a cookie back; false if it brings none.
    fn accept_cookie(
        &mut self,
        at: u32,
        key: &Key,
        segment: &Segment<'_>,
        _rx: &Rx<'_>,
        now_ns: u64,
    ) -> bool {
        if !self.tcp.config.modules.contains(Modules::SYN_COOKIES)
            || self.tcp.stats.cookies_sent == 0
        {
            return false;
        }
        let (cookie, peer_seq) = (segment.ack.minus(1), segment.seq.minus(1));
        let Some(terms) = self.tcp.secrets.check_cookie(key, peer_seq, cookie, now_ns) else {
            self.tcp.stats.cookies_failed += 1;
            return false;
        };
        if !self
            .tcp
            .listeners
            .at(at)
            .is_some_and(|listener| listener.has_room())
        {
            self.tcp.stats.backlog_drops += 1;
            return true;
        }
        let mut syn = Segment {
            seq: peer_seq,
            flags: Flags::SYN,
            payload: &[],
            ..*segment
        };
        syn.options.mss = Some(terms.mss);
        if let Some((_, echo)) = segment.options.timestamps {
            let bits = echo.wrapping_sub(self.tcp.secrets.timestamp_offset(key)) & 31;
            syn.options.scale = Some((bits & 15) as u8).filter(|&shift| shift < 15);
            syn.options.sack_permitted = bits & 16 != 0;
        }
        let Some(index) = self.make_half_open(at, key, &syn, Some(cookie), now_ns) else {
            self.tcp.stats.backlog_drops += 1;
            return true;
        };
        if let Some((tcb, mut ctx)) = self.tcp.with(index, now_ns) {
            tcb.flags.remove(Flag::SYN_NOW);
            tcb.snd_nxt = cookie.plus(1);
            tcb.flags.insert(Flag::ACCEPTABLE);
            tcb.on_segment(segment, &mut ctx);
        }
        self.tcp.stats.cookies_accepted += 1;
        self.tcp.settle(index, now_ns, &mut self.told);
        true
    }

    /// Makes a connection with what the configuration offers.
    pub(crate) fn new_tcb(&self, state: State, key: &Key, first: Seq) -> Tcb {
        let config = &self.tcp.config;
        let header = if matches!(key, Key::V4(_)) { 40 } else { 60 };
        let (peer, _) = key.peer();
        let mtu = self.path_mtu(peer);
        let mut tcb = Tcb::new(state, first, config, mtu.saturating_sub(header));
        tcb.ts_offset = self.tcp.secrets.timestamp_offset(key);
        tcb.rcv_shift = Tcb::shift_for(config.receive_buffer_max.max(config.receive_buffer));
        for (module, flag) in [
            (Modules::SACK, Flag::SACK),
            (Modules::TIMESTAMPS, Flag::TIMESTAMPS),
            (Modules::WINDOW_SCALE, Flag::SCALING),
        ] {
            tcb.flags.set(flag, config.modules.contains(module));
        }
        tcb
    }

    /// Puts a connection and its session in the tables.
    pub(crate) fn insert(&mut self, tcb: Tcb, key: &Key) -> Option<u32> {
        let (index, _) = self.tcp.tcbs.insert(tcb).ok()?;
        let Some(session) = self.tcp.sessions.add(key, index) else {
            self.tcp.tcbs.remove(index);
            return None;
        };
        if let Some(tcb) = self.tcp.tcbs.at_mut(index) {
            tcb.session = session;
        }
        Some(index)
    }

    /// Answers by a reset (RFC 9293 3.10.7.1), never a reset or a group.
    pub(crate) fn reset(&mut self, segment: &Segment<'_>, rx: &Rx<'_>, now_ns: u64) {
        let groups = wire::LayoutFlags::L2_GROUP | wire::LayoutFlags::L3_GROUP;
        if segment.has(Flags::RST)
            || rx.layout.flags.intersects(groups)
            || !self.may_answer(Limit::Reset, now_ns)
        {
            return;
        }
        let header = if segment.has(Flags::ACK) {
            Header::new(Flags::RST, segment.ack, Seq(0), 0)
        } else {
            Header::new(Flags::RST | Flags::ACK, Seq(0), segment.end(), 0)
        };
        let ports = rx
            .frame
            .get(usize::from(rx.layout.transport)..)
            .and_then(|header| header.first_chunk::<4>());
        let Some(&[a, b, c, d]) = ports else { return };
        self.tcp.stats.resets_out += 1;
        self.answer(
            &header,
            rx,
            u16::from_be_bytes([c, d]),
            u16::from_be_bytes([a, b]),
        );
    }

    /// Sends a bare segment back to where a frame came from.
    fn answer(&mut self, header: &Header, rx: &Rx<'_>, source_port: u16, destination_port: u16) {
        let (source, destination): (IpAddr, IpAddr) = Self::ends(rx);
        if let Some(key) = Key::new(source, destination_port, destination, source_port) {
            let path = self.answering_path(&key, rx.source_mac);
            self.queue_segment(&path, header);
        }
    }

    fn answering_path(&self, key: &Key, mac: MacAddr) -> Path {
        Path::new((self.mac, mac), key, 64, 0, self.mtu)
    }

    fn queue_segment(&mut self, path: &Path, header: &Header) {
        self.tcp.stats.segments_out += 1;
        let mut one = crate::host::queue::Slot::new(&mut self.queue);
        emit(path, header, 0, |_| true, &mut one);
    }
}

/// Our clock with the terms of a cookie in its low five bits, not later than now.
fn cookie_stamp(now_ns: u64, offset: u32, terms: u32) -> u32 {
    let now = (now_ns / 1_000_000) as u32;
    let stamp = now & !31 | terms;
    let stamp = if stamp > now {
        stamp.wrapping_sub(32)
    } else {
        stamp
    };
    stamp.wrapping_add(offset)
}

/// Says whether routers marked the packet (RFC 3168 5).
fn is_marked(rx: &Rx<'_>) -> bool {
    let network = usize::from(rx.layout.network);
    let Some(&[first, second]) = rx
        .frame
        .get(network..)
        .and_then(|packet| packet.first_chunk::<2>())
    else {
        return false;
    };
    let ecn = if first >> 4 == 4 {
        second & 3
    } else {
        second >> 4 & 3
    };
    ecn == 3
}
