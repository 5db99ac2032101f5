//! What the workers' firewalls tell, and the thread that passes it on: workers push into a bounded ring and never
//! wait; what finds no room is counted.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{self, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use control::api::{Event, SessionChange, SessionEvent, SessionFilter, Timestamp};
use filter::guard::GuardEvent;
use filter::nat::cgn::BlockEvent;
use filter::pipeline::{ConnectionEvent, Logged, Worker};
use tables::ring::{MpscConsumer, MpscProducer};

use super::attacks::Attacks;
use super::rule_log::RuleLog;
use super::sessions::session_info;
use super::{FileRules, Firewall};

/// Reports that wait for the thread, at most.
const RING: usize = 1 << 13;
/// How often the thread looks.
const TICK: Duration = Duration::from_millis(50);
/// Ticks between two looks whether processes have died that have the tables in common.
const BURIAL_TICKS: u64 = 20;
/// Events that a slow watcher may be behind.
const WATCHER_QUEUE: usize = 1 << 12;

/// What a worker tells.
#[derive(Clone, Debug)]
pub(super) enum Report {
    /// A connection was opened, or ended.
    Connection(ConnectionEvent),
    /// A subscriber got a block of ports, or gave it back.
    Block(BlockEvent),
    /// A threshold of the guard fired.
    Guard(GuardEvent),
    /// A packet reached a log statement of these rules.
    Log(Logged, Arc<FileRules>),
}

/// Between the workers and the thread.
#[derive(Debug)]
pub struct Hub {
    reports: MpscProducer<Report>,
    consumer: Mutex<Option<MpscConsumer<Report>>>,
    /// Who wants to know of connections.
    watchers: Mutex<Vec<Watcher>>,
    watching: AtomicU32,
    lost: AtomicU64,
    /// Attacks that the guard saw.
    pub(super) attacks: Mutex<Attacks>,
    /// Lines of log statements: written, suppressed.
    pub(super) log_lines: [AtomicU64; 2],
    /// The engine of those who end connections by command: it handles no packets.
    pub(super) operator: Mutex<Worker>,
}

#[derive(Debug)]
struct Watcher {
    filter: SessionFilter,
    events: SyncSender<Event>,
    lost: u64,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hub {
    /// Makes a hub; `operator` is an engine of its own on the tables.
    pub(super) fn new(operator: Worker) -> Self {
        let (reports, consumer) = tables::ring::mpsc(RING);
        operator.set_offline();
        Self {
            reports,
            consumer: Mutex::new(Some(consumer)),
            watchers: Mutex::default(),
            watching: AtomicU32::new(0),
            lost: AtomicU64::new(0),
            attacks: Mutex::default(),
            log_lines: Default::default(),
            operator: Mutex::new(operator),
        }
    }

    /// Tells whether somebody wants to know of connections.
    #[inline]
    pub(super) fn is_watched(&self) -> bool {
        // Relaxed: a hint; who watches may miss what happens at the same moment.
        self.watching.load(Ordering::Relaxed) > 0
    }

    /// Takes what an engine has to tell.
    pub(super) fn collect(&self, engine: &mut Worker) {
        for event in engine.events.drain(..) {
            self.push(Report::Connection(event));
        }
        self.count_lost(core::mem::take(&mut engine.events_lost));
        for event in engine.take_block_events() {
            self.push(Report::Block(event));
        }
        self.count_lost(engine.take_block_events_lost());
        if let Some(guard) = &mut engine.guard {
            for event in guard.events.drain(..) {
                self.push(Report::Guard(event));
            }
            self.count_lost(core::mem::take(&mut guard.events_lost));
        }
    }

    /// Takes the lines that packets left at log statements of `rules`.
    pub(super) fn collect_logs(&self, engine: &mut Worker, rules: &Arc<FileRules>) {
        for line in engine.logs.drain(..) {
            let report = Report::Log(line, Arc::clone(rules));
            if self.reports.push(report).is_err() {
                self.suppress(1);
            }
        }
        self.suppress(core::mem::take(&mut engine.tally.logs_lost));
    }

    /// Counts lines that are not written.
    pub(super) fn suppress(&self, lines: u64) {
        if lines > 0 {
            self.log_lines[1].fetch_add(lines, Ordering::Relaxed);
        }
    }

    fn push(&self, report: Report) {
        if self.reports.push(report).is_err() {
            self.count_lost(1);
        }
    }

    /// Reports that found no room.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    fn count_lost(&self, lost: u64) {
        if lost > 0 {
            self.lost.fetch_add(lost, Ordering::Relaxed);
        }
    }

    /// Subscribes to connections that are opened and end.
    pub(super) fn watch(&self, filter: SessionFilter) -> mpsc::Receiver<Event> {
        let (events, receiver) = mpsc::sync_channel(WATCHER_QUEUE);
        lock(&self.watchers).push(Watcher {
            filter,
            events,
            lost: 0,
        });
        self.watching.fetch_add(1, Ordering::Relaxed);
        receiver
    }

    /// Passes an event on, and forgets watchers that have gone.
    fn tell(&self, event: &SessionEvent) {
        lock(&self.watchers).retain_mut(|watcher| {
            if !watcher.filter.matches(&event.session) {
                return true;
            }
            let is_there = watcher.send(Event::Session(Box::new(event.clone())));
            if !is_there {
                self.watching.fetch_sub(1, Ordering::Relaxed);
            }
            is_there
        });
    }
}

impl Watcher {
    /// Sends, or counts what does not fit; false if nobody is there any more.
    fn send(&mut self, event: Event) -> bool {
        if self.lost > 0 {
            match self.events.try_send(Event::Lost(self.lost)) {
                Ok(()) => self.lost = 0,
                Err(TrySendError::Full(_)) => {
                    self.lost += 1;
                    return true;
                }
                Err(TrySendError::Disconnected(_)) => return false,
            }
        }
        match self.events.try_send(event) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => {
                self.lost += 1;
                true
            }
            Err(TrySendError::Disconnected(_)) => false,
        }
    }
}

/// The thread that passes on what workers tell; ends when dropped.
#[derive(Debug)]
pub struct Reporter {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Reporter {
    /// Starts the thread of a firewall, once.
    ///
    /// # Errors
    /// The kernel gives no thread.
    pub fn start(firewall: Arc<Firewall>) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let consumer = lock(&firewall.hub.consumer).take();
        let thread = thread::Builder::new().name("firewall".into()).spawn({
            let stop = Arc::clone(&stop);
            move || {
                if let Some(consumer) = consumer {
                    pass_on(&firewall, consumer, &stop);
                }
            }
        })?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

fn pass_on(firewall: &Firewall, mut consumer: MpscConsumer<Report>, stop: &AtomicBool) {
    let hub = &*firewall.hub;
    let (mut log, mut told_lost) = (RuleLog::default(), 0);
    for tick in 0_u64.. {
        if tick % BURIAL_TICKS == 0 {
            firewall.bury_the_dead();
        }
        // Once more after the workers' last words.
        let is_last = stop.load(Ordering::Relaxed);
        while let Some(report) = consumer.pop() {
            match report {
                Report::Connection(event) => hub.tell(&session_event(&event)),
                Report::Block(event) => log_block(&event),
                Report::Guard(event) => lock(&hub.attacks).note(&event),
                Report::Log(line, rules) => log.write(hub, &line, &rules),
            }
        }
        let lost = hub.lost().saturating_sub(told_lost);
        told_lost += lost;
        for watcher in lock(&hub.watchers).iter_mut().filter(|_| lost > 0) {
            watcher.lost += lost;
        }
        log.say_suppressed(hub);
        lock(&hub.operator).tidy(io::cpu::now());
        if is_last {
            lock(&hub.watchers).clear();
            return;
        }
        thread::park_timeout(TICK);
    }
}

/// RFC 6888 REQ-13 to REQ-15: one line a block, without destinations; the line's own time is the moment's, within a tick.
fn log_block(event: &BlockEvent) {
    tracing::info!(
        target: "cgn",
        subscriber = %Ipv4Addr::from_bits(event.subscriber),
        outer = %Ipv4Addr::from_bits(event.outer),
        ports = %format_args!("{}-{}", event.first_port, event.last_port),
        "{}",
        if event.is_allocation {
            "ports allocated"
        } else {
            "ports given back"
        }
    );
}

fn session_event(event: &ConnectionEvent) -> SessionEvent {
    SessionEvent {
        at: timestamp(event.at),
        change: if event.is_new {
            SessionChange::New
        } else {
            SessionChange::Destroy
        },
        session: session_info(&event.connection),
    }
}

/// The wall clock's time of a moment of the monotonic clock.
pub(super) fn timestamp(at: wire::Instant) -> Timestamp {
    let ago = io::cpu::now() - at;
    Timestamp::try_from(SystemTime::now() - ago).unwrap_or_else(|_| Timestamp::now())
}
