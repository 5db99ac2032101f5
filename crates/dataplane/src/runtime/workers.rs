//! The workers of a running node: made, told, and brought home.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use control::Config;
use control::config::IdleMode;
use graph::runner::{self, WorkerThread};
use graph::{
    DrainReport, IdleConfig, Mode, Snapshot, Spread, TxFull, Worker, WorkerCounters, WorkerHandle,
    WorkerPort, WorkerSetup,
};
use io::{Pool, Queue, WorkerId, cpu};
use wire::FlowSecret;

use super::StartError;
use crate::topology::{self, Shared};

/// Frames that wait between two workers, each way.
const HANDOFF_DEPTH: usize = 1024;
/// How long a worker may take to stop before it is given up.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// All workers of a node.
#[derive(Debug)]
pub(super) struct Workers {
    pub(super) handles: Vec<WorkerHandle>,
    threads: Vec<WorkerThread>,
}

/// One worker's parts, until its thread starts.
struct Part {
    worker: Worker,
    cpu: Option<u16>,
}

impl Workers {
    /// Makes one worker a pool and starts their threads. `queues` has the queues of each port, by worker.
    pub(super) fn start(
        config: &Config,
        shared: &Shared,
        pools: Vec<Pool>,
        queues: Vec<Vec<Box<dyn Queue>>>,
    ) -> Result<Self, StartError> {
        let count = pools.len() as u16;
        let meshes = graph::mesh(count, HANDOFF_DEPTH)
            .map_err(|source| StartError::Worker { worker: 0, source })?;
        // A host's connections choose ports whose flows reach their own worker.
        let secret = shared
            .host
            .as_ref()
            .map_or_else(random_bytes, |host| host.secret());
        let cpus = cpus(config, count);
        let mut ports = worker_ports(config, queues, count);
        if let Some(ndn) = &shared.ndn {
            signal_ports(config, ndn.take_queues(), &mut ports);
        }
        let mut parts = Vec::new();
        let mut handles = Vec::new();
        let spreads = ports.iter().flatten().any(|port| port.spread);
        for (pool, mesh) in pools.into_iter().zip(meshes) {
            let id = mesh.id();
            let graph = topology::graph(shared, id, count, pool.capacity())?;
            let setup = WorkerSetup {
                pool,
                ports: core::mem::take(&mut ports[id.index()]),
                graph,
                mesh,
                spread: spreads.then(|| Spread::new(FlowSecret::new(secret), count)),
                idle: idle(config),
                cpu_time: Some(cpu::thread_time),
            };
            let (worker, handle) = Worker::new(setup, cpu::now());
            handles.push(handle);
            parts.push(Part {
                worker,
                cpu: cpus.get(id.index()).copied(),
            });
        }
        let mut threads = Vec::new();
        for (i, part) in parts.into_iter().enumerate() {
            let thread =
                runner::spawn(part.worker, part.cpu).map_err(|source| StartError::Worker {
                    worker: i as u16,
                    source,
                })?;
            threads.push(thread);
        }
        Ok(Self { handles, threads })
    }

    /// Returns each worker's counters.
    pub(super) fn counters(&self) -> Vec<Arc<WorkerCounters>> {
        let counters = |handle: &WorkerHandle| Arc::clone(handle.counters());
        self.handles.iter().map(counters).collect()
    }

    /// Returns the CPU that each worker is pinned to.
    pub(super) fn cpus(&self) -> Vec<Option<u16>> {
        self.threads.iter().map(|thread| thread.cpu).collect()
    }

    /// Tells whether every worker runs.
    pub(super) fn are_running(&self) -> bool {
        !self.threads.iter().any(WorkerThread::is_finished)
    }

    /// Gives all workers a new published configuration; tells whether all will take it.
    pub(super) fn reload(&mut self, snapshot: &Snapshot) -> bool {
        let mut all = true;
        for handle in &mut self.handles {
            all &= handle.reload(Arc::clone(snapshot)).is_ok();
        }
        all
    }

    /// Lets all workers wait for packets as the configuration says; tells whether all will.
    pub(super) fn set_idle(&mut self, config: &Config) -> bool {
        let modes: Vec<Mode> = config
            .port
            .iter()
            .map(|port| mode(port.idle.unwrap_or(config.idle.mode)))
            .collect();
        let mut all = true;
        for handle in &mut self.handles {
            all &= handle.set_idle(modes.clone(), idle(config)).is_ok();
        }
        all
    }

    /// Tells all workers to send what is inside and to end; waits for them, but not for ever. Returns how
    /// each ended; `None` for one that panicked or did not end.
    pub(super) fn stop(&mut self) -> Vec<Option<DrainReport>> {
        for handle in &mut self.handles {
            // A worker that does not read its messages is given up below.
            let _ = handle.drain();
        }
        let start = Instant::now();
        while !self.threads.iter().all(WorkerThread::is_finished) && start.elapsed() < STOP_PATIENCE
        {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.threads
            .drain(..)
            .map(|thread| thread.is_finished().then(|| thread.join()).flatten())
            .collect()
    }
}

/// Returns the CPU for each worker: those of the configuration, else the first allowed one.
fn cpus(config: &Config, workers: u16) -> Vec<u16> {
    if !config.node.cpus.is_empty() {
        return config.node.cpus.clone();
    }
    let mut allowed = cpu::allowed().unwrap_or_default();
    allowed.truncate(workers.into());
    allowed
}

/// Deals the queues out: port by port, one a worker. Where a port has fewer queues than there are workers,
/// those that have one spread flows over all, and send for the others.
fn worker_ports(
    config: &Config,
    queues: Vec<Vec<Box<dyn Queue>>>,
    workers: u16,
) -> Vec<Vec<WorkerPort>> {
    let mut dealt: Vec<Vec<WorkerPort>> = (0..workers).map(|_| Vec::new()).collect();
    for (port, queues) in config.port.iter().zip(queues) {
        let owners = queues.len().max(1) as u16;
        // A link's frames go to the worker that owns the link, whatever their flow.
        let linked = config
            .link
            .iter()
            .any(|link| link.ports.contains(&port.name));
        let mut queues = queues.into_iter();
        for (worker, ports) in (0..workers).zip(&mut dealt) {
            ports.push(WorkerPort {
                queue: queues.next(),
                tx_via: WorkerId(worker % owners),
                // A host's flows are where its own hash puts them, whatever a device's does.
                spread: (owners < workers || (config.host.is_some() && workers > 1)) && !linked,
                mode: mode(port.idle.unwrap_or(config.idle.mode)),
                tx_full: TxFull::default(),
            });
        }
    }
    dealt
}

/// Gives each worker the port that wakes it for the forwarder's sockets.
fn signal_ports(config: &Config, queues: Vec<Box<dyn Queue>>, ports: &mut [Vec<WorkerPort>]) {
    for (worker, (queue, ports)) in queues.into_iter().zip(ports).enumerate() {
        ports.push(WorkerPort {
            queue: Some(queue),
            tx_via: WorkerId(worker as u16),
            spread: false,
            mode: mode(config.idle.mode),
            tx_full: TxFull::Drop,
        });
    }
}

const fn mode(mode: IdleMode) -> Mode {
    match mode {
        IdleMode::Hybrid => Mode::Hybrid,
        IdleMode::Poll => Mode::Poll,
        IdleMode::Interrupt => Mode::Interrupt,
        IdleMode::Paper => Mode::Paper,
    }
}

fn idle(config: &Config) -> IdleConfig {
    let mut idle = IdleConfig::default();
    let settings = &config.idle;
    idle.hybrid.latency_budget = Duration::from_micros(settings.latency_budget_us.into());
    idle.hybrid.backlog_pkts = super::open::ring_entries(config) / 2;
    idle.paper.window = Duration::from_micros(settings.window_us.into());
    idle.paper.window_pkts = settings.window_pkts;
    idle.paper.interrupts = settings.interrupts_per_ms;
    idle
}

/// Returns a number that nobody outside can guess: the standard library seeds its hash maps from the
/// kernel's randomness.
pub(super) fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish()
}

fn random_bytes() -> [u8; 64] {
    let mut bytes = [0; 64];
    for chunk in bytes.chunks_exact_mut(8) {
        chunk.copy_from_slice(&random().to_le_bytes());
    }
    bytes
}

/// The ends of `mem` ports, by port name.
pub type Links = HashMap<String, io::mem::LinkEnd>;
