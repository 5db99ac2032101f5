//! A worker: everything that one thread owns, and one step of its loop.
//!
//! [`Worker::step`] has no clock, no thread and never blocks: it receives, runs the graph, sends, hands
//! over, serves timers and messages, and says what to do [`Next`]. [`crate::runner`] puts a thread and a
//! clock around it; the simulator puts virtual ones.

use core::time::Duration;
use std::sync::Arc;

use io::wait::PollSet;
use io::{Arm, Batch, Frame, Pool, PortId, Queue, WorkerId};
use wire::{DropReason, Instant};

use crate::capture::{Point, Tap};
use crate::counters::WorkerCounters;
use crate::dispatch::Graph;
use crate::handoff::{For, Mesh, Spread};
use crate::idle::{Before, Decision, Engine, IdleConfig, Mode, Pass, State};
use crate::mailbox::{Command, Message, WorkerHandle, connect};
use crate::node::Context;

/// Longest nap while the pool is empty: frames that come back are seen within this time.
const EXHAUSTED_NAP: Duration = Duration::from_micros(200);
/// Nap while packets wait for room in a transmit queue.
const HELD_NAP: Duration = Duration::from_micros(20);
/// Passes with packets held in a transmit queue before the worker naps between tries.
const HELD_SPINS: u32 = 64;
/// Nap in place of a sleep where a driver cannot wake the worker.
const BLIND_NAP: Duration = Duration::from_millis(1);
/// Interval at which queue statistics are published.
const PUBLISH: Duration = Duration::from_millis(5);
/// Interval at which the thread's CPU time is read.
const CPU_TIME: Duration = Duration::from_millis(20);
/// Passes that a draining worker tries to send what waits.
const DRAIN_PASSES: u32 = 1000;

/// What happens to packets for which a transmit queue has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxFull {
    /// Up to so many wait, in order; the newest above that are dropped.
    Hold {
        /// Packets that wait at most.
        pkts: usize,
    },
    /// They are dropped.
    Drop,
}

impl Default for TxFull {
    /// Holds four bursts.
    fn default() -> Self {
        Self::Hold {
            pkts: 4 * io::BATCH_MAX,
        }
    }
}

/// A port, as one worker has it.
#[derive(Debug)]
pub struct WorkerPort {
    /// This worker's queue, if it has one.
    pub queue: Option<Box<dyn Queue>>,
    /// The worker that sends for this one, where it has no queue.
    pub tx_via: WorkerId,
    /// Spread received flows over all workers in software: the port has fewer queues than there are
    /// workers.
    pub spread: bool,
    /// How to wait for packets.
    pub mode: Mode,
    /// What happens to packets for which the queue has no room.
    pub tx_full: TxFull,
}

/// What a worker is made of.
#[derive(Debug)]
pub struct WorkerSetup {
    /// Its frames: its part of [`Pool::split`].
    pub pool: Pool,
    /// The ports, in the order of their ids.
    pub ports: Vec<WorkerPort>,
    /// The packet graph.
    pub graph: Graph,
    /// Rings to the other workers: its part of [`crate::handoff::mesh`].
    pub mesh: Mesh,
    /// Spreads flows, if any port needs it.
    pub spread: Option<Spread>,
    /// Configuration of the idle machines.
    pub idle: IdleConfig,
    /// Reads the CPU time of the worker's thread; `None` under a simulator.
    pub cpu_time: Option<fn() -> Duration>,
}

/// What to do after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Step again.
    Again,
    /// Sleep for so long, then step.
    Nap(Duration),
    /// Call [`Worker::arm`]; if it agrees, sleep until a descriptor is readable or this time comes; then
    /// call [`Worker::woke`] and step.
    Block(Option<Instant>),
    /// The worker has ended; see [`Worker::report`].
    Stopped,
}

/// What ended a sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// A queue's interrupt.
    Packet,
    /// The doorbell: the control side or another worker.
    Message,
    /// The timer.
    Timer,
}

/// How a worker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainReport {
    /// Frames that the pool owns.
    pub frames: usize,
    /// Frames of these that are home.
    pub home: usize,
    /// Frames that drivers could not give back.
    pub kept_by_drivers: usize,
    /// Packets inside that were dropped ([`DropReason::Shutdown`]) because they could not be sent.
    pub dropped_pkts: u64,
}

/// Where in its life a worker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Running,
    /// Sending what is inside; so many passes so far.
    Draining(u32),
    /// Queues are closed; waits for frames that other workers have, so many passes so far.
    Homing(u32),
    Stopped,
}

/// One worker. It shares nothing but rings, doorbells and counters.
#[derive(Debug)]
pub struct Worker {
    pool: Pool,
    ports: Vec<WorkerPort>,
    graph: Graph,
    mesh: Mesh,
    spread: Option<Spread>,
    engine: Engine,
    /// Flips of idle machines that were replaced.
    earlier_flips: u64,
    messages: tables::ring::Consumer<Message>,
    tap: Tap,
    counters: Arc<WorkerCounters>,
    cpu_time: Option<fn() -> Duration>,
    batch: Batch,
    transmit: Batch,
    kept: Vec<Frame>,
    port_pkts: Vec<u32>,
    before: Before,
    accounted: Instant,
    published: Instant,
    cpu_read: Instant,
    held_spins: u32,
    held_pkts: usize,
    life: Life,
    report: DrainReport,
}

impl Worker {
    /// Makes a worker and the control side's handle to it.
    pub fn new(setup: WorkerSetup, now: Instant) -> (Self, WorkerHandle) {
        let modes: Vec<Mode> = setup.ports.iter().map(|port| port.mode).collect();
        let nodes = Arc::clone(setup.graph.counters());
        let counters = Arc::new(WorkerCounters::new(setup.ports.len(), nodes));
        let frames = setup.pool.capacity();
        counters.frames.set(frames as u64);
        counters.frames_free_min.set(frames as u64);
        let (handle, side) = connect(&setup.mesh, &counters);
        let worker = Self {
            engine: Engine::new(&modes, &setup.idle, now),
            earlier_flips: 0,
            pool: setup.pool,
            port_pkts: vec![0; setup.ports.len()],
            ports: setup.ports,
            graph: setup.graph,
            mesh: setup.mesh,
            spread: setup.spread,
            messages: side.messages,
            tap: side.tap,
            counters,
            cpu_time: setup.cpu_time,
            batch: Batch::new(),
            transmit: Batch::new(),
            kept: Vec::with_capacity(io::BATCH_MAX),
            before: Before::Pass,
            accounted: now,
            published: now,
            // At the first pass: what is learned from the CPU time begins there.
            cpu_read: Instant::ZERO,
            held_spins: 0,
            held_pkts: 0,
            life: Life::Running,
            report: DrainReport {
                frames,
                home: 0,
                kept_by_drivers: 0,
                dropped_pkts: 0,
            },
        };
        (worker, handle)
    }

    /// Returns the worker's id.
    pub fn id(&self) -> WorkerId {
        self.mesh.id()
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Arc<WorkerCounters> {
        &self.counters
    }

    /// Returns the idle machines.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Returns the pool.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Returns how the worker ended, once [`Next::Stopped`] was returned.
    pub fn report(&self) -> Option<DrainReport> {
        (self.life == Life::Stopped).then_some(self.report)
    }

    /// Makes one pass over everything. Never blocks; takes bounded time.
    pub fn step(&mut self, now: Instant) -> Next {
        match self.life {
            Life::Running => {}
            Life::Draining(passes) => return self.drain(now, passes),
            Life::Homing(passes) => return self.home(now, passes),
            Life::Stopped => return Next::Stopped,
        }
        self.account(now);
        if !self.messages.is_empty() {
            self.read_messages(now);
        }
        let mut pkts = self.receive(now);
        if !self.mesh.is_alone() {
            pkts += self.take_handed_over(now);
        }
        if self.graph.poll_timeout().is_some_and(|due| due <= now) {
            self.with_graph(now, |graph, cx, tap| graph.handle_timeout(cx, tap));
            self.run(now);
        }
        if self.graph.is_polled() {
            let mut done = 0;
            self.with_graph(now, |graph, cx, tap| done = graph.work(cx, tap));
            if done > 0 {
                pkts += done;
                self.run(now);
            }
        }
        if self.graph.has_pending() {
            self.run(now);
        }
        let held = self.transmit(now);
        self.held_pkts = held;
        if !self.mesh.is_alone() {
            self.hand_over(now);
        }
        self.decide(now, pkts, held)
    }

    /// Receives one burst a port and runs the graph on each.
    #[inline]
    fn receive(&mut self, now: Instant) -> u32 {
        let mut total = 0;
        for index in 0..self.ports.len() {
            let port = &mut self.ports[index];
            let Some(queue) = &mut port.queue else {
                continue;
            };
            let id = PortId(index as u16);
            let (pool, tap) = (&mut self.pool, &mut self.tap);
            let mut receive = |batch: &mut Batch| {
                let pkts = queue.rx(pool, batch);
                if tap.is_on() {
                    tap.batch(Point::Rx(id), now, batch);
                }
                pkts
            };
            let spread = port.spread;
            let pkts = if spread {
                receive(&mut self.batch)
            } else {
                self.graph.receive(id, receive)
            };
            self.port_pkts[index] = pkts as u32;
            if pkts == 0 {
                continue;
            }
            total += pkts as u32;
            self.counters.count_burst(pkts);
            if spread {
                self.spread_flows();
                self.graph.input(id, &mut self.batch);
            }
            self.run(now);
        }
        self.counters.rx_pkts.add(u64::from(total));
        total
    }

    /// Leaves in the batch what this worker is to do itself.
    fn spread_flows(&mut self) {
        let Some(spread) = &self.spread else { return };
        let own = self.mesh.id();
        for _ in 0..self.batch.len() {
            let Some(mut frame) = self.batch.drain_front(1).next() else {
                break;
            };
            let worker = spread.worker(&mut frame);
            let frame = if worker == own {
                Err(frame)
            } else {
                self.mesh.stage(worker, frame, For::Input)
            };
            if let Err(frame) = frame {
                // As many leave as enter.
                let _ = self.batch.push(frame);
            }
        }
    }

    fn take_handed_over(&mut self, now: Instant) -> u32 {
        let mut total = 0;
        for worker in 0..usize::from(self.mesh.workers()) {
            let taken = self.mesh.take(worker, &mut self.batch, &mut self.transmit);
            total += taken as u32;
            for frame in self.transmit.drain() {
                match self.ports.get(frame.tx_port.index()) {
                    Some(_) => self.graph.tx_lane(frame.tx_port).push(frame),
                    None => self.pool.free(frame),
                }
            }
            // Neighbours in the ring mostly came by one port.
            while let Some(first) = self.batch.first() {
                let port = first.rx_port;
                let run = self
                    .batch
                    .iter()
                    .take_while(|frame| frame.rx_port == port)
                    .count();
                if run == self.batch.len() {
                    self.graph.input(port, &mut self.batch);
                } else {
                    for frame in self.batch.drain_front(run) {
                        let _ = self.transmit.push(frame);
                    }
                    self.graph.input(port, &mut self.transmit);
                }
            }
            if taken > 0 {
                self.run(now);
            }
        }
        self.mesh.take_back(&mut self.pool);
        self.counters.handoff_in_pkts.add(u64::from(total));
        total
    }

    #[inline]
    fn run(&mut self, now: Instant) {
        self.with_graph(now, |graph, cx, tap| graph.run(cx, tap));
        if self.graph.has_handoff() {
            for (worker, frame) in self.graph.take_handoff() {
                if let Err(frame) = self.mesh.stage(worker, frame, For::Input) {
                    self.counters.handoff_full_pkts.add(1);
                    self.pool.free(frame);
                }
            }
        }
    }

    #[inline]
    fn with_graph(&mut self, now: Instant, f: impl FnOnce(&mut Graph, &mut Context<'_>, &mut Tap)) {
        let mut cx = Context {
            now,
            worker: self.mesh.id(),
            pool: &mut self.pool,
            held_pkts: self.held_pkts,
        };
        f(&mut self.graph, &mut cx, &mut self.tap);
    }

    /// Sends what waits for each port; returns how many packets found no room and wait on.
    #[inline]
    fn transmit(&mut self, now: Instant) -> usize {
        let mut waiting = 0;
        let mut sent = 0;
        for (index, port) in self.ports.iter_mut().enumerate() {
            let id = PortId(index as u16);
            let lane = self.graph.tx_lane(id);
            if lane.is_empty() {
                continue;
            }
            let Some(queue) = &mut port.queue else {
                while let Some(batch) = lane.front_mut() {
                    for frame in batch.drain() {
                        if let Err(frame) = self.mesh.stage(port.tx_via, frame, For::Transmit) {
                            self.counters.handoff_full_pkts.add(1);
                            self.pool.free(frame);
                        }
                    }
                }
                continue;
            };
            while let Some(batch) = lane.front_mut() {
                if self.tap.is_on() {
                    self.tap.batch(Point::Tx(id), now, batch);
                }
                sent += queue.tx(&mut self.pool, batch);
                if !batch.is_empty() {
                    break;
                }
            }
            if lane.is_empty() {
                continue;
            }
            let limit = match port.tx_full {
                TxFull::Hold { pkts } => pkts,
                TxFull::Drop => 0,
            };
            let mut held = lane.len();
            while held > limit
                && let Some(frame) = self.graph.tx_lane(id).pop_newest()
            {
                held -= 1;
                let stage = self.graph.counters().len() - 1;
                self.graph
                    .tx_counters()
                    .count_drop(DropReason::TxRingFull, 1);
                self.counters.ports[index].tx_full_pkts.add(1);
                if self.tap.is_on() {
                    let point = Point::Drop(stage as u8, DropReason::TxRingFull);
                    self.tap.frame(point, now, &frame);
                }
                self.pool.free(frame);
            }
            self.counters.ports[index].tx_held_pkts.set(held as u64);
            waiting += held;
        }
        if sent > 0 {
            self.counters.tx_pkts.add(sent as u64);
        }
        waiting
    }

    /// Sends what was put aside for other workers, and their frames home.
    fn hand_over(&mut self, now: Instant) {
        let counters = &self.counters;
        let (tap, pool) = (&mut self.tap, &mut self.pool);
        let tx = (self.graph.counters().len() - 1) as u8;
        let flushed = self.mesh.flush(|frame, reason| {
            match reason {
                DropReason::PeerWorkerGone => counters.peer_gone_pkts.add(1),
                _ => counters.handoff_full_pkts.add(1),
            }
            if tap.is_on() {
                tap.frame(Point::Drop(tx, reason), now, &frame);
            }
            pool.free(frame);
        });
        self.counters.handoff_out_pkts.add(flushed.sent_pkts);
        self.counters.bells.add(flushed.bells);
        if self.pool.strays() > 0 {
            self.mesh.send_home(&mut self.pool, &mut self.kept);
        }
    }

    fn decide(&mut self, now: Instant, pkts: u32, held: usize) -> Next {
        let counters = &self.counters;
        counters.polls.add(1);
        if pkts == 0 {
            counters.empty_polls.add(1);
        }
        let free = self.pool.available();
        let exhausted = free == 0;
        if (free as u64) < counters.frames_free_min.get() {
            counters.frames_free_min.set(free as u64);
        }
        if let Some(cpu_time) = self.cpu_time
            && now - self.cpu_read >= CPU_TIME
        {
            self.cpu_read = now;
            let cpu = cpu_time();
            counters.cpu_ns.set(cpu.as_nanos() as u64);
            self.engine.cpu_time(cpu);
        }
        let pass = Pass {
            now,
            pkts,
            exhausted,
            before: core::mem::take(&mut self.before),
        };
        let decision = self.engine.pass(&pass, &self.port_pkts);
        self.port_pkts.fill(0);
        if self.life != Life::Running || self.graph.has_pending() {
            return Next::Again;
        }
        if decision != Decision::Spin && held > 0 {
            self.held_spins += 1;
            return if self.held_spins < HELD_SPINS {
                Next::Again
            } else {
                Next::Nap(HELD_NAP)
            };
        }
        self.held_spins = 0;
        if now - self.published >= PUBLISH {
            self.publish(now);
        }
        match decision {
            Decision::Spin => Next::Again,
            Decision::Nap(length) => self.nap_until_timer(length, now),
            // Frames come back without an interrupt.
            Decision::Block if exhausted => self.nap_until_timer(EXHAUSTED_NAP, now),
            Decision::Block => Next::Block(self.graph.poll_timeout()),
        }
    }

    fn nap_until_timer(&self, length: Duration, now: Instant) -> Next {
        let timer = self.graph.poll_timeout();
        Next::Nap(timer.map_or(length, |due| length.min(due - now)))
    }

    /// Prepares to sleep: arms all interrupts and the doorbell, then looks once more for messages, handed
    /// frames and packets. Returns `None` if there is work (everything is disarmed again: step), else how
    /// the sleep is to be ended; the descriptors are in `set`, the doorbell last.
    pub fn arm(&mut self, set: &mut PollSet, now: Instant) -> Option<Sleep> {
        set.clear();
        let mut blind = false;
        let mut ready = false;
        for port in &mut self.ports {
            let Some(queue) = &mut port.queue else {
                continue;
            };
            match queue.arm() {
                Arm::Ready => {
                    ready = true;
                    break;
                }
                Arm::Armed(fd) => {
                    set.add(fd);
                }
                Arm::Unsupported => blind = true,
            }
        }
        let bell = self.mesh.bell();
        if self.pool.available() * 4 < self.pool.capacity() {
            bell.prepare_hungry();
        } else {
            bell.prepare();
        }
        ready |= self.graph.arm(set);
        set.add(std::os::fd::AsFd::as_fd(bell));
        ready = ready || !self.messages.is_empty() || !self.mesh.is_empty();
        if ready {
            self.disarm();
            self.counters.arm_ready.add(1);
            return None;
        }
        self.publish(now);
        Some(if blind {
            Sleep::Nap(BLIND_NAP)
        } else {
            Sleep::Block
        })
    }

    fn disarm(&mut self) {
        for port in &mut self.ports {
            if let Some(queue) = &mut port.queue {
                queue.disarm();
            }
        }
        self.graph.disarm();
        self.mesh.bell().cancel();
    }

    /// Ends a sleep that [`Worker::arm`] prepared.
    pub fn woke(&mut self, wake: Wake, now: Instant) {
        self.disarm();
        self.account(now);
        let counters = &self.counters;
        match wake {
            Wake::Packet => counters.wakeups_packet.add(1),
            Wake::Message => counters.wakeups_message.add(1),
            Wake::Timer => counters.wakeups_timer.add(1),
        }
        self.before = match wake {
            // Frames that another worker hands over are packets too.
            Wake::Packet => Before::Interrupt,
            Wake::Message if !self.mesh.is_alone() => Before::Interrupt,
            Wake::Message | Wake::Timer => Before::Other,
        };
    }

    /// Ends a nap that was to last `asked` and began at `start`.
    pub fn napped(&mut self, asked: Duration, start: Instant, now: Instant) {
        self.counters.naps.add(1);
        self.account(now);
        self.before = Before::Nap {
            late: (now - start).saturating_sub(asked),
        };
    }

    /// Adds the time since the last call to the state's account.
    #[inline]
    fn account(&mut self, now: Instant) {
        let ns = (now - self.accounted).as_nanos() as u64;
        self.accounted = now;
        self.counters.accounted_until_ns.set(now.as_ns());
        match self.engine.state() {
            State::Poll => self.counters.poll_ns.add(ns),
            State::Nap => self.counters.nap_ns.add(ns),
            State::Wait => self.counters.interrupt_ns.add(ns),
        }
    }

    fn publish(&mut self, now: Instant) {
        self.published = now;
        let counters = &self.counters;
        counters.state.set(self.engine.state() as u64);
        counters.flips.set(self.earlier_flips + self.engine.flips());
        counters.frames_free.set(self.pool.available() as u64);
        counters.exhausted.set(self.pool.exhausted());
        for (index, port) in self.ports.iter().enumerate() {
            let target = &counters.ports[index];
            target.state.set(self.engine.port_state(index) as u64);
            if let Some(queue) = &port.queue {
                target.publish(&queue.stats());
            }
        }
    }

    #[cold]
    fn read_messages(&mut self, now: Instant) {
        while let Some(Message { number, command }) = self.messages.pop() {
            match command {
                Command::Reload(snapshot) => {
                    self.with_graph(now, |graph, cx, tap| graph.reload(cx, &snapshot, tap));
                }
                Command::Idle(idle) => self.set_idle(&idle.0, &idle.1, now),
                Command::Capture(filter) => self.tap.set(filter),
                Command::Drain => self.life = Life::Draining(0),
            }
            self.counters.acknowledged.set(number);
        }
    }

    /// Starts new idle machines in place of the old ones; ports beyond `modes` keep theirs.
    fn set_idle(&mut self, modes: &[Mode], config: &IdleConfig, now: Instant) {
        self.account(now);
        for (port, mode) in self.ports.iter_mut().zip(modes) {
            port.mode = *mode;
        }
        let modes: Vec<Mode> = self.ports.iter().map(|port| port.mode).collect();
        self.earlier_flips += self.engine.flips();
        self.engine = Engine::new(&modes, config, now);
    }

    /// Sends what is inside; then closes the queues.
    #[cold]
    fn drain(&mut self, now: Instant, passes: u32) -> Next {
        self.account(now);
        self.take_handed_over(now);
        if passes == 0 {
            self.with_graph(now, |graph, cx, tap| graph.stop(cx, tap));
        }
        self.run(now);
        let held = self.transmit(now);
        self.hand_over(now);
        if held > 0 && passes < DRAIN_PASSES {
            self.life = Life::Draining(passes + 1);
            return Next::Nap(HELD_NAP);
        }
        self.report.dropped_pkts = self.graph.drop_all(&mut self.pool);
        for port in &mut self.ports {
            if let Some(queue) = &mut port.queue {
                self.report.kept_by_drivers += queue.close(&mut self.pool);
            }
        }
        self.life = Life::Homing(0);
        Next::Again
    }

    /// Waits, bounded, for frames that other workers still have.
    #[cold]
    fn home(&mut self, now: Instant, passes: u32) -> Next {
        // What peers still hand over cannot be sent any more.
        for worker in 0..usize::from(self.mesh.workers()) {
            while self.mesh.take(worker, &mut self.batch, &mut self.transmit) > 0 {
                let pkts = self.batch.len() + self.transmit.len();
                self.counters.handoff_full_pkts.add(pkts as u64);
                self.report.dropped_pkts += pkts as u64;
                self.pool.free_batch(&mut self.batch);
                self.pool.free_batch(&mut self.transmit);
            }
        }
        self.mesh.take_back(&mut self.pool);
        if self.pool.strays() > 0 {
            self.mesh.send_home(&mut self.pool, &mut self.kept);
        }
        let home = self.pool.available();
        let missing =
            self.report.frames - home - self.report.kept_by_drivers.min(self.report.frames - home);
        if (missing > 0 || self.pool.strays() > 0) && passes < DRAIN_PASSES && !self.mesh.is_alone()
        {
            self.life = Life::Homing(passes + 1);
            return Next::Nap(HELD_NAP);
        }
        self.report.home = home;
        self.counters.frames_lost.set(missing as u64);
        self.publish(now);
        self.counters.state.set(3);
        self.life = Life::Stopped;
        Next::Stopped
    }
}

/// How a sleep is to be ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleep {
    /// By a descriptor or a timer.
    Block,
    /// By a descriptor, a timer, or after so long: a driver cannot wake the worker.
    Nap(Duration),
}
