//! The state of one connection (RFC 9293 3.3.1): a small part that an idle connection keeps, and working memory that
//! it has only while data is under way.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use tables::wheel::TimerId;

use super::block::BlockPool;
use super::congestion::Controller;
use super::path_mtu::MtuProbe;
use super::rack::Rack;
use super::rate::RateSampler;
use super::receive_buffer::ReceiveBuffer;
use super::recovery::Recovery;
use super::rtt::Rtt;
use super::scoreboard::Scoreboard;
use super::send_buffer::SendBuffer;
use super::seq::Seq;
use super::sessions::SessionRef;
use super::state::State;
use super::stats::TcpStats;
use crate::config::{Algorithm, Modules, TcpConfig};
use crate::error::Error;
use crate::event::Ready;

bitflags::bitflags! {
    /// Facts about a connection.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(crate) struct Flag: u64 {
        /// An acknowledgement is to be sent at the next occasion.
        const ACK_NOW = 1 << 0;
        /// Our SYN (or SYN-ACK) is to be sent.
        const SYN_NOW = 1 << 1;
        /// A tail loss probe is to be sent.
        const PROBE_TAIL = 1 << 2;
        /// A window probe or keep-alive is to be sent.
        const PROBE_PEER = 1 << 3;
        /// Send a short segment that silly-window avoidance holds back.
        const OVERRIDE = 1 << 4;
        /// The next retransmission goes out whatever the window.
        const FORCE_RESEND = 1 << 5;
        /// The application has closed its sending side.
        const FIN_QUEUED = 1 << 6;
        /// Our FIN is out.
        const FIN_SENT = 1 << 7;
        /// The peer's FIN came in order.
        const FIN_RECEIVED = 1 << 8;
        /// Selective acknowledgements were agreed.
        const SACK = 1 << 9;
        /// Timestamps were agreed.
        const TIMESTAMPS = 1 << 10;
        /// Window scaling was agreed.
        const SCALING = 1 << 11;
        /// Explicit congestion notification was agreed.
        const ECN = 1 << 12;
        /// Echo congestion until the peer's CWR.
        const ECE = 1 << 13;
        /// Tell the peer with the next data that the window was reduced.
        const CWR = 1 << 14;
        /// Nagle's algorithm is off.
        const NODELAY = 1 << 15;
        /// Keep-alive is on.
        const KEEPALIVE = 1 << 16;
        /// The application holds the handle.
        const OWNED = 1 << 17;
        /// Waits in the accept queue.
        const ACCEPTABLE = 1 << 18;
        /// In the list of connections with something to send.
        const QUEUED = 1 << 19;
        /// In the list of sockets with an event.
        const TOLD = 1 << 20;
        /// Waits for a neighbour.
        const UNRESOLVED = 1 << 21;
        /// A listener made it.
        const PASSIVE = 1 << 22;
        /// The application wants to hear of room to send.
        const WANTS_ROOM = 1 << 23;
        /// The application reads no more.
        const DEAF = 1 << 24;
        /// Segments are held back until they are full.
        const CORK = 1 << 25;
        /// Ask for, or send, a Fast Open cookie.
        const FAST_OPEN = 1 << 26;
        /// The SYN carries data.
        const SYN_DATA = 1 << 27;
        /// Closed by the application: an orphan.
        const ORPHAN = 1 << 28;
        /// A reset is to be sent, then the connection is gone.
        const RESET_NOW = 1 << 29;
        /// The last duplicate is to be reported (RFC 2883).
        const DSACK = 1 << 30;
        /// ICMP said that the path fails (RFC 1122 4.2.3.9): reported if the connection times out.
        const SOFT_ERROR = 1 << 31;
        /// Counted in its listener's backlog.
        const HALF_OPEN = 1 << 32;
    }
}

/// Which deadline `timer_at` is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Timer {
    #[default]
    None,
    /// Send the SYN again.
    Syn,
    /// Retransmission timeout.
    Rto,
    /// Tail loss probe (RFC 8985 7).
    Tail,
    /// The reordering window ends (RFC 8985 6.3).
    Reorder,
    /// Probe a zero window.
    Persist,
}

/// What few connections set.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) keepalive_idle: Option<Duration>,
    pub(crate) keepalive_interval: Option<Duration>,
    pub(crate) keepalive_probes: Option<u8>,
    pub(crate) user_timeout: Option<Duration>,
    pub(crate) ttl: Option<u8>,
    pub(crate) tos: u8,
}

/// Working memory of a connection that is not idle.
#[derive(Debug)]
pub(crate) struct Active {
    pub(crate) send: SendBuffer,
    pub(crate) receive: ReceiveBuffer,
    pub(crate) board: Scoreboard,
    pub(crate) controller: Controller,
    pub(crate) recovery: Recovery,
    pub(crate) rack: Rack,
    pub(crate) rate: RateSampler,
    pub(crate) probe: MtuProbe,
    /// When the next segment may go, ns (pacing).
    pub(crate) pace_at: u64,
    /// Something waits for `pace_at`.
    pub(crate) is_paced: bool,
    /// The range of the duplicate to be reported.
    pub(crate) dsack: (Seq, Seq),
    /// The end of the peer's FIN that came beyond a hole.
    pub(crate) fin_end: Option<Seq>,
    /// When something was sent last, ns.
    pub(crate) sent_at: u64,
    /// The congestion window was full when something was sent last.
    pub(crate) window_limited: bool,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Tcb {
    pub(crate) session: SessionRef,
    pub(crate) flags: Flag,
    pub(crate) state: State,
    pub(crate) timer: Timer,
    pub(crate) algorithm: Algorithm,
    /// What the application is to hear of.
    pub(crate) ready: Ready,
    pub(crate) error: Option<Error>,
    pub(crate) snd_shift: u8,
    pub(crate) rcv_shift: u8,
    /// SYNs, probes or keep-alives in a row without answer.
    pub(crate) tries: u8,
    /// Segments with data since the last acknowledgement.
    pub(crate) unacked_segments: u8,
    /// Segments that are acknowledged at once, for the peer's slow start.
    pub(crate) quick: u8,
    pub(crate) iss: Seq,
    pub(crate) snd_una: Seq,
    pub(crate) snd_nxt: Seq,
    pub(crate) snd_wl1: Seq,
    pub(crate) snd_wl2: Seq,
    pub(crate) snd_wnd: u32,
    pub(crate) snd_wnd_max: u32,
    pub(crate) irs: Seq,
    pub(crate) rcv_nxt: Seq,
    /// The right edge of the window that the peer was told.
    pub(crate) rcv_adv: Seq,
    pub(crate) last_ack_sent: Seq,
    pub(crate) ts_recent: u32,
    /// When `ts_recent` was set, s.
    pub(crate) ts_recent_s: u32,
    pub(crate) ts_offset: u32,
    pub(crate) rcv_limit: u32,
    /// Bytes read since the receive buffer grew last.
    pub(crate) rcv_read: u32,
    pub(crate) snd_limit: u32,
    pub(crate) rtt: Rtt,
    /// Congestion window and threshold while there is no working memory.
    pub(crate) window: u32,
    pub(crate) threshold: u32,
    /// Most data of a segment, options not counted.
    pub(crate) mss: u16,
    /// What the peer takes.
    pub(crate) peer_mss: u16,
    pub(crate) listener: u32,
    pub(crate) neighbour: u32,
    pub(crate) route_epoch: u32,
    pub(crate) timer_at: u64,
    pub(crate) ack_at: u64,
    pub(crate) idle_at: u64,
    pub(crate) heard_at: u64,
    /// Since when nothing that is in flight was acknowledged, ns.
    pub(crate) stalled_at: u64,
    /// When a challenge acknowledgement was sent last, ms; 0: never.
    pub(crate) challenged_ms: u32,
    pub(crate) armed: Option<TimerId>,
    pub(crate) armed_at: u64,
    pub(crate) settings: Option<Box<Settings>>,
    pub(crate) active: Option<Box<Active>>,
}

// The budget of an idle connection, beside 78 bytes of session record, 5 of index and 36 of timing wheel.
const _: () = assert!(size_of::<Tcb>() <= 288);

/// What every part of TCP is handed: time, configuration, memory, counters.
#[derive(Debug)]
pub(crate) struct Ctx<'a> {
    pub(crate) now_ns: u64,
    pub(crate) config: &'a TcpConfig,
    pub(crate) pool: &'a mut BlockPool,
    #[expect(
        clippy::vec_box,
        reason = "a box moves between connection and pool as it is"
    )]
    pub(crate) spare: &'a mut Vec<Box<Active>>,
    pub(crate) stats: &'a mut TcpStats,
}

impl Ctx<'_> {
    pub(crate) const fn has(&self, module: Modules) -> bool {
        self.config.modules.contains(module)
    }
}

impl Tcb {
    /// Makes a connection in `state` that sends from `iss` on.
    pub(crate) fn new(state: State, iss: Seq, config: &TcpConfig, mss: u16) -> Self {
        Self {
            session: SessionRef::NONE,
            flags: Flag::empty(),
            state,
            timer: Timer::None,
            algorithm: config.congestion,
            ready: Ready::empty(),
            error: None,
            snd_shift: 0,
            rcv_shift: 0,
            tries: 0,
            unacked_segments: 0,
            quick: 8,
            iss,
            snd_una: iss,
            snd_nxt: iss,
            snd_wl1: Seq(0),
            snd_wl2: Seq(0),
            snd_wnd: 0,
            snd_wnd_max: 0,
            irs: Seq(0),
            rcv_nxt: Seq(0),
            rcv_adv: Seq(0),
            last_ack_sent: Seq(0),
            ts_recent: 0,
            ts_recent_s: 0,
            ts_offset: 0,
            rcv_limit: config.receive_buffer,
            rcv_read: 0,
            snd_limit: config.send_buffer,
            rtt: Rtt::default(),
            window: config.initial_window * u32::from(mss),
            threshold: u32::MAX / 4,
            mss,
            peer_mss: 536,
            listener: u32::MAX,
            neighbour: u32::MAX,
            route_epoch: 0,
            timer_at: 0,
            ack_at: 0,
            idle_at: 0,
            heard_at: 0,
            stalled_at: 0,
            challenged_ms: 0,
            armed: None,
            armed_at: 0,
            settings: None,
            active: None,
        }
    }
    pub(crate) const fn has(&self, flag: Flag) -> bool {
        self.flags.contains(flag)
    }
    /// Returns the working memory, taken now if there was none.
    pub(crate) fn activate(&mut self, ctx: &mut Ctx<'_>) -> &mut Active {
        if self.active.is_none() {
            let mss = u32::from(self.mss);
            let controller =
                Controller::new(self.algorithm, ctx.config, mss, self.window, self.threshold);
            let mut active = ctx
                .spare
                .pop()
                .unwrap_or_else(|| Box::new(Active::new(controller, self.snd_una)));
            active.reset(
                Controller::new(self.algorithm, ctx.config, mss, self.window, self.threshold),
                self.snd_una,
            );
            if self.idle_at == 0 {
                self.idle_at = ctx.now_ns + ctx.config.trim_after.as_nanos() as u64;
            }
            self.active = Some(active);
        }
        // Some, as of the lines above; there is no other way to say so without a panic.
        self.active.get_or_insert_with(unreachable_active)
    }
    /// Gives the working memory back.
    pub(crate) fn deactivate(&mut self, ctx: &mut Ctx<'_>) {
        if let Some(mut active) = self.active.take() {
            self.window = active.controller.get().window();
            self.threshold = active.controller.get().threshold();
            active.send.clear(ctx.pool);
            active.receive.clear(ctx.pool);
            active.board.clear();
            ctx.spare.push(active);
        }
    }
    /// Says whether the working memory holds nothing that is needed.
    pub(crate) fn is_quiescent(&self) -> bool {
        self.active.as_ref().is_none_or(|active| {
            active.send.len() == 0 && active.receive.is_empty() && active.board.is_empty()
        })
    }
    /// Returns our clock for timestamps, ms.
    pub(crate) fn timestamp(&self, now_ns: u64) -> u32 {
        ((now_ns / 1_000_000) as u32).wrapping_add(self.ts_offset)
    }
    /// Returns bytes written by the application that were never sent.
    pub(crate) fn unsent(&self) -> u32 {
        let Some(active) = &self.active else { return 0 };
        if self.has(Flag::FIN_SENT) {
            return 0;
        }
        (active.send.len() as u32).saturating_sub(self.snd_nxt.since(self.snd_una))
    }
    /// Returns the bytes that can be read now.
    pub(crate) fn readable(&self) -> usize {
        self.active
            .as_ref()
            .map_or(0, |active| active.receive.ready())
    }
    /// Returns the length of the options of a segment with data.
    pub(crate) const fn option_bytes(&self) -> u16 {
        if self.has(Flag::TIMESTAMPS) { 12 } else { 0 }
    }
    /// Returns the most data of a segment.
    pub(crate) const fn segment_bytes(&self) -> u32 {
        (self.mss - self.option_bytes()) as u32
    }
    /// Ends the connection; the application hears of it.
    pub(crate) fn end(&mut self, error: Option<Error>, ctx: &mut Ctx<'_>) {
        self.state = State::Closed;
        self.error = self.error.or(error);
        self.ready |= Ready::CLOSED | Ready::READABLE | Ready::WRITABLE;
        if error.is_some() {
            self.ready |= Ready::ERROR;
            // What the peer sent before is gone, as with std's sockets after a reset.
            self.deactivate(ctx);
        } else if let Some(active) = &mut self.active {
            active.send.clear(ctx.pool);
            active.board.clear();
        }
        self.stop_timers();
        self.flags.remove(
            Flag::ACK_NOW
                | Flag::SYN_NOW
                | Flag::PROBE_TAIL
                | Flag::PROBE_PEER
                | Flag::OVERRIDE
                | Flag::FORCE_RESEND,
        );
    }
    pub(crate) fn stop_timers(&mut self) {
        self.timer = Timer::None;
        self.timer_at = 0;
        self.ack_at = 0;
        self.idle_at = 0;
    }
}

/// Only reached if a value that was just set is not there.
#[cold]
fn unreachable_active() -> Box<Active> {
    Box::new(Active::new(
        Controller::new(Algorithm::NewReno, &TcpConfig::default(), 536, 536, 536),
        Seq(0),
    ))
}

impl Active {
    fn new(controller: Controller, una: Seq) -> Self {
        Self {
            send: SendBuffer::default(),
            receive: ReceiveBuffer::default(),
            board: Scoreboard::default(),
            controller,
            recovery: Recovery::new(una),
            rack: Rack::new(una),
            rate: RateSampler::default(),
            probe: MtuProbe::default(),
            pace_at: 0,
            is_paced: false,
            dsack: (Seq(0), Seq(0)),
            fin_end: None,
            sent_at: 0,
            window_limited: false,
        }
    }
    fn reset(&mut self, controller: Controller, una: Seq) {
        self.controller = controller;
        self.recovery = Recovery::new(una);
        self.rack = Rack::new(una);
        self.rate = RateSampler::default();
        self.probe = MtuProbe::default();
        self.pace_at = 0;
        self.is_paced = false;
        self.dsack = (Seq(0), Seq(0));
        self.fin_end = None;
        self.sent_at = 0;
        self.window_limited = false;
    }
}
