//! Sockets of TCP as handles.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use wire::{FlowKey, Instant, ip_protocol};

use crate::config::{Algorithm, Modules};
use crate::error::Error;
use crate::event::Ready;
use crate::handle::{ListenerHandle, TcpHandle};
use crate::stack::Stack;
use crate::tcp::listener::Listener;
use crate::tcp::recovery::Phase;
use crate::tcp::sessions::{Found, Key, SessionRef};
use crate::tcp::state::State;
use crate::tcp::tcb::{Flag, Tcb};

/// What can be set on a TCP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TcpOption {
    /// Send short segments at once (no Nagle).
    NoDelay(bool),
    /// Hold short segments back until they are full, or the option is taken back.
    Cork(bool),
    /// Probe the peer after silence: idle time, interval, probes; `None`: off.
    KeepAlive(Option<(Duration, Duration, u8)>),
    /// End the connection when data is not acknowledged for so long (RFC 5482); `None`: by retries.
    UserTimeout(Option<Duration>),
    /// Receive buffer, bytes.
    ReceiveBuffer(u32),
    /// Send buffer, bytes.
    SendBuffer(u32),
    /// Congestion control; counts from the next time that the connection is idle, or before it is opened.
    Congestion(Algorithm),
    /// Time to live, or hop limit.
    Ttl(u8),
    /// Type of service, or traffic class; the two ECN bits are TCP's own.
    Tos(u8),
}

/// Which half of a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// Nothing more is read; what comes is thrown away.
    Read,
    /// Nothing more is sent: FIN after the data.
    Write,
    /// Both.
    Both,
}

/// How a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpInfo {
    /// State of the connection.
    pub state: State,
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub peer: SocketAddr,
    /// Smoothed round-trip time, us; 0 if unknown.
    pub srtt_us: u32,
    /// Its variation, us.
    pub rtt_var_us: u32,
    /// Retransmission timeout, us.
    pub rto_us: u64,
    /// Congestion window, bytes.
    pub window: u32,
    /// Slow start threshold, bytes.
    pub threshold: u32,
    /// Window of the peer, bytes.
    pub peer_window: u32,
    /// Most data of a segment, bytes.
    pub segment_bytes: u32,
    /// In flight, bytes.
    pub in_flight: u32,
    /// Sent and not acknowledged cumulatively, bytes.
    pub outstanding: u32,
    /// Of these, acknowledged selectively, bytes.
    pub sacked: u32,
    /// Of these, found lost, sent again or not, bytes.
    pub lost: u32,
    /// Losses are being repaired without a timeout.
    pub recovering: bool,
    /// Losses are being repaired after a retransmission timeout.
    pub timed_out: bool,
    /// Retransmission timeouts in a row.
    pub backoff: u8,
    /// Written and not acknowledged, bytes.
    pub queued: u32,
    /// Received and not read, bytes.
    pub readable: u32,
}

impl Stack {
    /// Listens on a port, of one address or (unspecified) of all; `backlog` connections wait to be accepted at most.
    ///
    /// # Errors
    /// [`Error::AddrInUse`], [`Error::AddrNotAvailable`], [`Error::OutOfMemory`]; [`Error::InvalidInput`] for port 0.
    pub fn tcp_listen(
        &mut self,
        local: SocketAddr,
        backlog: usize,
    ) -> Result<ListenerHandle, Error> {
        if local.port() == 0 {
            return Err(Error::InvalidInput);
        }
        let address = (!local.ip().is_unspecified()).then_some(local.ip());
        if address.is_some_and(|ip| !self.addressing.is_ours(ip)) {
            return Err(Error::AddrNotAvailable);
        }
        let place = (local.port(), address);
        if self.tcp.by_port.contains_key(&place) {
            return Err(Error::AddrInUse);
        }
        let backlog = backlog.clamp(1, 65_535);
        let listener = Listener {
            address,
            port: local.port(),
            backlog,
            half_open: 0,
            queue: VecDeque::new(),
            ready: Ready::empty(),
            is_told: false,
            fast_open: self.tcp.config.modules.contains(Modules::FAST_OPEN),
        };
        let (index, generation) = self
            .tcp
            .listeners
            .insert(listener)
            .map_err(|_| Error::OutOfMemory)?;
        self.tcp.by_port.insert(place, index);
        Ok(ListenerHandle { index, generation })
    }

    /// Takes the oldest established connection of a listener.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] when there is none; [`Error::NotFound`].
    pub fn tcp_accept(
        &mut self,
        listener: ListenerHandle,
    ) -> Result<(TcpHandle, SocketAddr), Error> {
        loop {
            let queue = self
                .tcp
                .listeners
                .get_mut(listener.index, listener.generation)
                .ok_or(Error::NotFound)?;
            let Some((index, generation)) = queue.queue.pop_front() else {
                return Err(Error::WouldBlock);
            };
            let Some(tcb) = self.tcp.tcbs.get_mut(index, generation) else {
                continue;
            };
            let session = tcb.session;
            let Some(key) = self.tcp.sessions.key(session) else {
                // It was reset while it waited: std's accept never sees such a one either.
                tcb.flags.remove(Flag::ACCEPTABLE);
                if let Some((tcb, mut ctx)) = self.tcp.with(index, 0) {
                    tcb.deactivate(&mut ctx);
                }
                self.tcp.tcbs.remove(index);
                continue;
            };
            tcb.flags.remove(Flag::ACCEPTABLE);
            tcb.flags.insert(Flag::OWNED);
            tcb.ready.remove(Ready::CONNECTED);
            let handle = TcpHandle { index, generation };
            if !tcb.ready.is_empty() && !tcb.has(Flag::TOLD) {
                tcb.flags.insert(Flag::TOLD);
                self.told
                    .push_back(crate::tcp::table::Told::Tcp(index, generation));
            }
            let (peer, port) = key.peer();
            return Ok((handle, SocketAddr::new(peer, port)));
        }
    }

    /// Closes a listener; connections that wait to be accepted are reset.
    pub fn tcp_close_listener(
        &mut self,
        now: Instant,
        handle: ListenerHandle,
    ) -> Result<(), Error> {
        self.tcp
            .listeners
            .get(handle.index, handle.generation)
            .ok_or(Error::NotFound)?;
        let listener = self
            .tcp
            .listeners
            .remove(handle.index)
            .ok_or(Error::NotFound)?;
        self.tcp.by_port.remove(&(listener.port, listener.address));
        for (index, generation) in listener.queue {
            if self.tcp.tcbs.get(index, generation).is_some() {
                if let Some(tcb) = self.tcp.tcbs.at_mut(index) {
                    tcb.flags.remove(Flag::ACCEPTABLE);
                }
                self.abort_index(index, now.as_ns());
            }
        }
        Ok(())
    }

    /// Begins to open a connection; [`Ready::CONNECTED`] or [`Ready::ERROR`] tells the outcome. Without a local
    /// address or port they are chosen; a port is chosen so that the flow reaches this worker.
    ///
    /// # Errors
    /// [`Error::NetworkUnreachable`], [`Error::AddrNotAvailable`], [`Error::AddrInUse`], [`Error::OutOfMemory`],
    /// [`Error::InvalidInput`].
    pub fn tcp_connect(
        &mut self,
        now: Instant,
        peer: SocketAddr,
        local: Option<SocketAddr>,
    ) -> Result<TcpHandle, Error> {
        self.tcp_connect_with(now, peer, local, &[])
    }

    /// As [`tcp_connect`](Self::tcp_connect), with `data` to be sent, in the SYN where Fast Open allows it (RFC 7413).
    ///
    /// # Errors
    /// As `tcp_connect`; data beyond the send buffer is [`Error::InvalidInput`].
    pub fn tcp_connect_with(
        &mut self,
        now: Instant,
        peer: SocketAddr,
        local: Option<SocketAddr>,
        data: &[u8],
    ) -> Result<TcpHandle, Error> {
        let is_group = match peer.ip() {
            IpAddr::V4(ip) => ip.is_multicast() || self.addressing.is_broadcast(ip),
            IpAddr::V6(ip) => ip.is_multicast(),
        };
        if peer.port() == 0
            || peer.ip().is_unspecified()
            || is_group
            || data.len() > self.tcp.config.send_buffer as usize
        {
            return Err(Error::InvalidInput);
        }
        let given = local
            .map(|local| local.ip())
            .filter(|ip| !ip.is_unspecified());
        if given.is_some_and(|ip| !self.addressing.is_ours(ip)) {
            return Err(Error::AddrNotAvailable);
        }
        let choice = self
            .addressing
            .choose(peer.ip(), given)
            .ok_or(Error::NetworkUnreachable)?;
        let port = local.map_or(0, |local| local.port());
        let key = if port == 0 {
            self.choose_port(peer, choice.source)
                .ok_or(Error::AddrNotAvailable)?
        } else {
            let key =
                Key::new(peer.ip(), peer.port(), choice.source, port).ok_or(Error::InvalidInput)?;
            match self.tcp.sessions.find(&key) {
                SessionRef::Absent => {}
                session if matches!(self.tcp.sessions.get(session), Found::TimeWait(_)) => {
                    self.tcp.reuse(session)
                }
                _ => return Err(Error::AddrInUse),
            }
            key
        };
        let now_ns = now.as_ns();
        let first = self.tcp.secrets.initial(&key, now_ns);
        let mut tcb = self.new_tcb(State::SynSent, &key, first);
        tcb.flags |= Flag::OWNED | Flag::SYN_NOW;
        let modules = self.tcp.config.modules;
        tcb.flags.set(Flag::ECN, modules.contains(Modules::ECN));
        tcb.flags
            .set(Flag::FAST_OPEN, modules.contains(Modules::FAST_OPEN));
        tcb.stalled_at = now_ns;
        let index = self.insert(tcb, &key).ok_or(Error::OutOfMemory)?;
        self.tcp.stats.active_opens += 1;
        if !data.is_empty()
            && let Some((tcb, mut ctx)) = self.tcp.with(index, now_ns)
        {
            tcb.activate(&mut ctx);
            if let Some(active) = &mut tcb.active {
                active.send.push(data, usize::MAX, ctx.pool);
            }
        }
        self.tcp.settle(index, now_ns, &mut self.told);
        Ok(TcpHandle {
            index,
            generation: self.tcp.tcbs.generation(index),
        })
    }

    /// Finds a free port whose flow reaches this worker (RFC 6056 3.3.3).
    fn choose_port(&mut self, peer: SocketAddr, source: IpAddr) -> Option<Key> {
        let (first, last) = self.tcp.config.ephemeral_ports;
        let count = u32::from(last.checked_sub(first)?) + 1;
        let offset = self.tcp.secrets.port_offset(peer.ip(), peer.port());
        let start = self.tcp.next_port;
        for step in 0..count {
            let turn = start.wrapping_add(step);
            let port = first + (offset.wrapping_add(turn) % count) as u16;
            let key = Key::new(peer.ip(), peer.port(), source, port)?;
            if self.reaches_us(&key) && self.tcp.sessions.find(&key) == SessionRef::Absent {
                self.tcp.next_port = turn.wrapping_add(1);
                return Some(key);
            }
        }
        None
    }

    fn reaches_us(&self, key: &Key) -> bool {
        let Some(owner) = &self.owner else {
            return true;
        };
        let ((peer, peer_port), (local, local_port)) = (key.peer(), key.local());
        let octets = |ip| match ip {
            IpAddr::V4(ip) => core::net::Ipv4Addr::to_ipv6_mapped(&ip).octets(),
            IpAddr::V6(ip) => ip.octets(),
        };
        owner(&FlowKey {
            source: octets(peer),
            destination: octets(local),
            source_port: peer_port,
            destination_port: local_port,
            protocol: ip_protocol::TCP,
        })
    }

    /// Queues data to be sent; returns how much was taken.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] when there is no room; [`Error::BrokenPipe`] after the sending side was closed;
    /// [`Error::NotConnected`] while the connection is being opened; how the connection ended, once.
    pub fn tcp_send(
        &mut self,
        now: Instant,
        handle: TcpHandle,
        mut data: &[u8],
    ) -> Result<usize, Error> {
        self.tcp_send_with(now, handle, data.len(), |room| {
            let (piece, later) = data.split_at(room.len());
            room.copy_from_slice(piece);
            data = later;
        })
    }

    /// As [`tcp_send`](Self::tcp_send), for `bytes` bytes that `fill` writes to where they wait, piece by piece.
    ///
    /// # Errors
    /// As `tcp_send`.
    pub fn tcp_send_with(
        &mut self,
        now: Instant,
        handle: TcpHandle,
        bytes: usize,
        fill: impl FnMut(&mut [u8]),
    ) -> Result<usize, Error> {
        let tcb = self.tcb(handle)?;
        if let Some(error) = tcb.error.take() {
            return Err(error);
        }
        match tcb.state {
            State::SynSent | State::SynReceived => return Err(Error::NotConnected),
            State::Established | State::CloseWait if !tcb.has(Flag::FIN_QUEUED) => {}
            _ => return Err(Error::BrokenPipe),
        }
        if bytes == 0 {
            return Ok(0);
        }
        let index = handle.index;
        let now_ns = now.as_ns();
        let (tcb, mut ctx) = self.tcp.with(index, now_ns).ok_or(Error::NotFound)?;
        let limit = tcb.snd_limit as usize;
        tcb.activate(&mut ctx);
        // The answer acknowledges what was asked.
        tcb.quick = 0;
        let taken = tcb.active.as_mut().map_or(0, |active| {
            active.send.push_with(bytes, limit, ctx.pool, fill)
        });
        if taken < bytes {
            tcb.flags.insert(Flag::WANTS_ROOM);
        }
        self.tcp.settle(index, now_ns, &mut self.told);
        if taken == 0 {
            Err(Error::WouldBlock)
        } else {
            Ok(taken)
        }
    }

    /// Reads received data; 0 when the peer has closed its side.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] when there is none; [`Error::NotConnected`]; how the connection ended, once.
    pub fn tcp_recv(
        &mut self,
        now: Instant,
        handle: TcpHandle,
        to: &mut [u8],
    ) -> Result<usize, Error> {
        let mut done = 0;
        self.tcp_recv_with(now, handle, |data| {
            let bytes = data.len().min(to.len() - done);
            if let (Some(to), Some(from)) = (to.get_mut(done..done + bytes), data.get(..bytes)) {
                to.copy_from_slice(from);
            }
            done += bytes;
            bytes
        })
    }

    /// Reads received data without a copy: `take` sees it piece by piece and returns how much it took; less than the
    /// piece ends the call. Returns the sum; 0 when the peer has closed its side.
    ///
    /// # Errors
    /// As [`tcp_recv`](Self::tcp_recv).
    pub fn tcp_recv_with(
        &mut self,
        now: Instant,
        handle: TcpHandle,
        mut take: impl FnMut(&[u8]) -> usize,
    ) -> Result<usize, Error> {
        self.tcb(handle)?;
        let index = handle.index;
        let (tcb, mut ctx) = self.tcp.with(index, now.as_ns()).ok_or(Error::NotFound)?;
        let mut taken = 0;
        if let Some(active) = &mut tcb.active {
            while active.receive.ready() > 0 {
                let piece = active.receive.contiguous();
                let (whole, bytes) = (piece.len(), take(piece));
                active.receive.consume(bytes, ctx.pool);
                taken += bytes;
                if bytes < whole {
                    break;
                }
            }
        }
        if taken > 0 {
            tcb.on_read(taken, &mut ctx);
            if tcb.has(Flag::ACK_NOW) {
                self.tcp.settle(index, now.as_ns(), &mut self.told);
            }
            return Ok(taken);
        }
        if tcb.readable() > 0 {
            return Ok(0);
        }
        if let Some(error) = tcb.error.take() {
            return Err(error);
        }
        if tcb.has(Flag::FIN_RECEIVED) || tcb.has(Flag::DEAF) || tcb.state == State::Closed {
            return Ok(0);
        }
        if matches!(tcb.state, State::SynSent | State::SynReceived) {
            Err(Error::NotConnected)
        } else {
            Err(Error::WouldBlock)
        }
    }

    /// Closes one half of a connection, or both.
    ///
    /// # Errors
    /// [`Error::NotConnected`], [`Error::NotFound`].
    pub fn tcp_shutdown(
        &mut self,
        now: Instant,
        handle: TcpHandle,
        how: Shutdown,
    ) -> Result<(), Error> {
        let tcb = self.tcb(handle)?;
        if !tcb.state.is_synchronized() {
            return Err(Error::NotConnected);
        }
        let index = handle.index;
        let (tcb, ctx) = self.tcp.with(index, now.as_ns()).ok_or(Error::NotFound)?;
        if how != Shutdown::Write {
            tcb.flags.insert(Flag::DEAF);
            if let Some(active) = &mut tcb.active {
                let ready = active.receive.ready();
                active.receive.consume(ready, ctx.pool);
            }
        }
        if how != Shutdown::Read {
            tcb.queue_fin();
        }
        self.tcp.settle(index, now.as_ns(), &mut self.told);
        Ok(())
    }

    /// Gives a connection up: what was written is still sent. Data that was not read resets it, as the peer must know
    /// that it was lost (RFC 2525 2.17). The handle is stale from now on.
    pub fn tcp_close(&mut self, now: Instant, handle: TcpHandle) -> Result<(), Error> {
        let tcb = self.tcb(handle)?;
        let index = handle.index;
        let now_ns = now.as_ns();
        tcb.flags.remove(Flag::OWNED);
        tcb.ready = Ready::empty();
        let unread = tcb.readable() > 0 && tcb.state.is_synchronized() && !tcb.has(Flag::DEAF);
        match tcb.state {
            State::Closed | State::TimeWait => self.tcp.settle(index, now_ns, &mut self.told),
            State::SynSent => self.abort_index(index, now_ns),
            _ if unread => self.abort_index(index, now_ns),
            _ => {
                let fin_wait_ns = self.tcp.config.fin_wait_2.as_nanos() as u64;
                if let Some((tcb, _)) = self.tcp.with(index, now_ns) {
                    tcb.flags.insert(Flag::ORPHAN);
                    tcb.queue_fin();
                    if tcb.state == State::FinWait2 {
                        tcb.idle_at = now_ns + fin_wait_ns;
                    }
                }
                self.tcp.settle(index, now_ns, &mut self.told);
            }
        }
        // A new handle of the same slot must differ even before the slot is free.
        self.tcp.tcbs.renew(index);
        Ok(())
    }

    /// Resets a connection. The handle stays, and the next call returns [`Error::ConnectionAborted`].
    pub fn tcp_abort(&mut self, now: Instant, handle: TcpHandle) -> Result<(), Error> {
        self.tcb(handle)?;
        self.abort_index(handle.index, now.as_ns());
        Ok(())
    }

    /// Resets whatever connection is at `index`.
    pub(crate) fn abort_index(&mut self, index: u32, now_ns: u64) {
        if let Some((tcb, mut ctx)) = self.tcp.with(index, now_ns) {
            let tells_peer = !matches!(tcb.state, State::Closed | State::SynSent | State::TimeWait);
            tcb.end(Some(Error::ConnectionAborted), &mut ctx);
            tcb.flags.set(Flag::RESET_NOW, tells_peer);
        }
        self.tcp.settle(index, now_ns, &mut self.told);
    }

    /// Sets an option.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::InvalidInput`] for an empty buffer.
    pub fn tcp_set(
        &mut self,
        now: Instant,
        handle: TcpHandle,
        option: TcpOption,
    ) -> Result<(), Error> {
        let tcb = self.tcb(handle)?;
        let now_ns = now.as_ns();
        match option {
            TcpOption::NoDelay(on) => {
                tcb.flags.set(Flag::NODELAY, on);
                if on && tcb.unsent() > 0 {
                    // What waits goes, corked or not, as in Linux.
                    tcb.flags.insert(Flag::OVERRIDE);
                }
            }
            TcpOption::Cork(on) => tcb.flags.set(Flag::CORK, on),
            TcpOption::KeepAlive(None) => {
                tcb.flags.remove(Flag::KEEPALIVE);
            }
            TcpOption::KeepAlive(Some((idle, interval, probes))) => {
                let settings = tcb.settings.get_or_insert_with(Box::default);
                settings.keepalive_idle = Some(idle);
                settings.keepalive_interval = Some(interval);
                settings.keepalive_probes = Some(probes);
                tcb.flags.insert(Flag::KEEPALIVE);
                if tcb.state.is_synchronized() {
                    let due = tcb.heard_at.max(now_ns) + idle.as_nanos() as u64;
                    tcb.idle_at = if tcb.idle_at == 0 {
                        due
                    } else {
                        tcb.idle_at.min(due)
                    };
                }
            }
            TcpOption::UserTimeout(timeout) => {
                tcb.settings.get_or_insert_with(Box::default).user_timeout = timeout;
            }
            TcpOption::ReceiveBuffer(0) | TcpOption::SendBuffer(0) => {
                return Err(Error::InvalidInput);
            }
            TcpOption::ReceiveBuffer(bytes) => {
                tcb.rcv_limit = if tcb.has(Flag::SCALING) {
                    bytes
                } else {
                    bytes.min(65_535)
                }
            }
            TcpOption::SendBuffer(bytes) => tcb.snd_limit = bytes,
            TcpOption::Congestion(algorithm) => tcb.algorithm = algorithm,
            TcpOption::Ttl(ttl) => tcb.settings.get_or_insert_with(Box::default).ttl = Some(ttl),
            TcpOption::Tos(tos) => tcb.settings.get_or_insert_with(Box::default).tos = tos,
        }
        if let TcpOption::Congestion(algorithm) = option {
            self.change_congestion(handle.index, algorithm, now_ns);
        }
        self.tcp.settle(handle.index, now_ns, &mut self.told);
        Ok(())
    }

    fn change_congestion(&mut self, index: u32, algorithm: Algorithm, now_ns: u64) {
        let Some((tcb, ctx)) = self.tcp.with(index, now_ns) else {
            return;
        };
        let mss = tcb.segment_bytes();
        if let Some(active) = &mut tcb.active {
            let (window, threshold) = (
                active.controller.get().window(),
                active.controller.get().threshold(),
            );
            active.controller = crate::tcp::congestion::Controller::new(
                algorithm, ctx.config, mss, window, threshold,
            );
        }
    }

    /// Returns how a connection is doing.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::NotConnected`] when the session is over.
    pub fn tcp_info(&self, handle: TcpHandle) -> Result<TcpInfo, Error> {
        let tcb = self
            .tcp
            .tcbs
            .get(handle.index, handle.generation)
            .ok_or(Error::NotFound)?;
        let key = self
            .tcp
            .sessions
            .key(tcb.session)
            .ok_or(Error::NotConnected)?;
        let socket = |(ip, port)| SocketAddr::new(ip, port);
        let active = tcb.active.as_ref();
        let control = active.map(|active| active.controller.get());
        Ok(TcpInfo {
            state: tcb.state,
            local: socket(key.local()),
            peer: socket(key.peer()),
            srtt_us: tcb.rtt.srtt_us,
            rtt_var_us: tcb.rtt.var_us,
            rto_us: tcb.rtt.rto_us(&self.tcp.config),
            window: control.map_or(tcb.window, |control| control.window()),
            threshold: control.map_or(tcb.threshold, |control| control.threshold()),
            peer_window: tcb.snd_wnd,
            segment_bytes: tcb.segment_bytes(),
            in_flight: active.map_or(0, |active| active.board.pipe()),
            outstanding: tcb.snd_nxt.since(tcb.snd_una),
            sacked: active.map_or(0, |active| active.board.sacked_bytes()),
            lost: active.map_or(0, |active| active.board.lost_bytes()),
            recovering: active.is_some_and(|active| active.recovery.phase == Phase::Recovery),
            timed_out: active.is_some_and(|active| active.recovery.phase == Phase::Timeout),
            backoff: tcb.rtt.backoff,
            queued: active.map_or(0, |active| active.send.len() as u32),
            readable: tcb.readable() as u32,
        })
    }

    /// Returns the state of a connection; `None` for a stale handle.
    pub fn tcp_state(&self, handle: TcpHandle) -> Option<State> {
        self.tcp
            .tcbs
            .get(handle.index, handle.generation)
            .map(|tcb| tcb.state)
    }

    /// Takes the error that waits in a socket (as `SO_ERROR`).
    pub fn tcp_take_error(&mut self, handle: TcpHandle) -> Result<Option<Error>, Error> {
        Ok(self.tcb(handle)?.error.take())
    }

    fn tcb(&mut self, handle: TcpHandle) -> Result<&mut Tcb, Error> {
        self.tcp
            .tcbs
            .get_mut(handle.index, handle.generation)
            .ok_or(Error::NotFound)
    }
}

impl Tcb {
    /// Queues our FIN behind the data (RFC 9293 3.10.4).
    fn queue_fin(&mut self) {
        if self.has(Flag::FIN_QUEUED) {
            return;
        }
        self.flags.insert(Flag::FIN_QUEUED);
        self.flags.remove(Flag::CORK);
        match self.state {
            State::Established => self.state = State::FinWait1,
            State::CloseWait => self.state = State::LastAck,
            _ => {}
        }
    }
}
