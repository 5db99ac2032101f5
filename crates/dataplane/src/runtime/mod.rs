//! The running node: ports, workers, published configuration, counters.

mod capture;
mod error;
mod host;
mod open;
mod reload;
mod report;
mod rules;
mod watch;
mod workers;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use control::Config;
use control::api::{
    ApiError, BridgeInfo, CaptureRequest, ErrorCode, NeighbourInfo, RouteInfo, SessionFilter,
    SessionPage, SessionRequest, Stats, Timestamp,
};
use graph::{DrainReport, WorkerCounters};
use io::{PortId, Region};
use wire::Instant;

pub use capture::Capture;
pub use error::{ReloadError, StartError};
pub use host::Lease;
pub use rules::RulesBefore;
pub use workers::Links;

use crate::firewall::{Firewall, Reporter, SessionWatch, load_guard, load_rules};
use crate::forwarding::Forwarding;
use crate::ndn::{Kernel, Ndn, NdnError};
use crate::plan::Plan;
use crate::topology::Shared;
use open::OpenedPort;
use watch::PortWatch;
use workers::Workers;

/// A running node. All methods may be called from any thread; none of them stops a worker's packets.
/// Dropping it stops it.
#[derive(Debug)]
pub struct Dataplane {
    file: Option<PathBuf>,
    started_at: Timestamp,
    started: Instant,
    region: Arc<Region>,
    shared: Shared,
    ports: Vec<OpenedPort>,
    watch: PortWatch,
    counters: Vec<Arc<WorkerCounters>>,
    cpus: Vec<Option<u16>>,
    workers: Arc<Mutex<Workers>>,
    /// Passes on what the firewall tells.
    reporter: Mutex<Option<Reporter>>,
    state: Mutex<State>,
}

/// What a reload or the end changes.
#[derive(Debug)]
struct State {
    config: Arc<Config>,
    plan: Plan,
    forwarding: Arc<Forwarding>,
    ended: Option<Vec<Option<DrainReport>>>,
}

/// Takes a lock; nothing here panics while it holds one half-way through a change.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Dataplane {
    /// Opens the ports of a configuration, builds one packet graph a worker and starts the workers.
    /// `file` is where the configuration came from, for listings.
    ///
    /// # Errors
    /// What is wrong with the configuration, or what the kernel refused.
    pub fn start(config: &Config, file: Option<PathBuf>) -> Result<Self, StartError> {
        Self::start_with_links(config, file, &Links::new())
    }

    /// As [`Dataplane::start`], with the ends of links inside this process for ports whose driver is
    /// `mem`, by port name.
    ///
    /// # Errors
    /// As [`Dataplane::start`].
    pub fn start_with_links(
        config: &Config,
        file: Option<PathBuf>,
        links: &Links,
    ) -> Result<Self, StartError> {
        let plan = Plan::new(config)?;
        let rules = load_rules(config, &plan, None)?;
        let guard = load_guard(config, None)?;
        let count = config.node.cpus.len().max(1) as u16;
        let pools = open::pools(config, count)?;
        let region = Arc::clone(pools[0].region());
        let mut kernel = Kernel::load(config).map_err(NdnError::from)?;
        let (ports, queues) = open::ports(config, links, &region, count, kernel.as_ref())?;
        region.wait_filled()?;
        let facts: Vec<_> = ports.iter().map(OpenedPort::facts).collect();
        let forwarding = Forwarding::new(&plan, &facts, 1);
        let forwarding = Arc::new(forwarding.with_rules(rules).with_guard(guard));
        if let Some(kernel) = &mut kernel {
            let opened = ports.iter().zip(&config.port);
            let opened: Vec<_> = opened.map(|(port, config)| port.beside(config)).collect();
            kernel
                .attach(&opened, &forwarding)
                .map_err(NdnError::from)?;
        }
        let mut shared = Shared::new(&plan, Arc::clone(&forwarding), workers::random())?;
        let signal_port = PortId(ports.len() as u16);
        let ndn = Ndn::prepare(
            config,
            &plan,
            &forwarding,
            count,
            signal_port,
            workers::random(),
            kernel,
        )?;
        shared.ndn = ndn.map(Arc::new);
        let shared = shared.with_host(&plan, count);
        let sources = ports.iter().zip(&config.port);
        let sources = sources.map(|(port, config)| port.source(config)).collect();
        let watch = PortWatch::start(sources).map_err(StartError::Thread)?;
        let started = io::cpu::now();
        shared.set_neighbours(&plan, started);
        let workers = Workers::start(config, &shared, pools, queues)?;
        if let Some(ndn) = &shared.ndn {
            ndn.start().map_err(StartError::Thread)?;
        }
        let reporter = shared.firewall.clone().map(Reporter::start).transpose();
        let reporter = reporter.map_err(StartError::Thread)?;
        tracing::info!(workers = count, ports = ports.len(), "the node runs");
        Ok(Self {
            file,
            started_at: Timestamp::now(),
            started,
            region,
            shared,
            ports,
            watch,
            counters: workers.counters(),
            cpus: workers.cpus(),
            workers: Arc::new(Mutex::new(workers)),
            reporter: Mutex::new(reporter),
            state: Mutex::new(State {
                config: Arc::new(config.clone()),
                plan,
                forwarding,
                ended: None,
            }),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Returns the configuration in force.
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.state().config)
    }

    /// Puts a configuration in force without losing a packet: addresses, routes, neighbours, ageing
    /// times, MAC addresses, MTUs, what links do to packets, and how workers wait. Returns what of it needs a restart and stays as it was, as paths of the configuration.
    ///
    /// # Errors
    /// The configuration makes no sense, has other ports or bridges, or the node has stopped; nothing
    /// changes then.
    pub fn reload(&self, config: &Config) -> Result<Vec<String>, ReloadError> {
        reload::reload(self, config)
    }

    /// Reads all counters. They are at most 5 ms old while packets flow.
    pub fn stats(&self) -> Stats {
        report::stats(self)
    }

    /// Lists the neighbours of all links.
    pub fn neighbours(&self) -> Vec<NeighbourInfo> {
        report::neighbours(self)
    }

    /// Lists the routes in force.
    pub fn routes(&self) -> Vec<RouteInfo> {
        report::routes(self)
    }

    /// Lists the bridges with their stations.
    pub fn bridges(&self) -> Vec<BridgeInfo> {
        report::bridges(self)
    }

    fn firewall(&self) -> Result<&Arc<Firewall>, ApiError> {
        self.shared.firewall.as_ref().ok_or_else(|| ApiError {
            code: ErrorCode::NotFound,
            message: "the node has no firewall, hence no connections".into(),
            remedy: Some("add `[firewall]` to its configuration and restart it".into()),
        })
    }

    /// Lists a part of the firewall's connections.
    ///
    /// # Errors
    /// There is no firewall.
    pub fn sessions(&self, request: &SessionRequest) -> Result<SessionPage, ApiError> {
        Ok(self.firewall()?.sessions(request))
    }

    /// Ends connections of the firewall; returns how many.
    ///
    /// # Errors
    /// There is no firewall.
    pub fn end_sessions(&self, filter: &SessionFilter) -> Result<u64, ApiError> {
        Ok(self.firewall()?.end_sessions(filter))
    }

    /// Subscribes to connections of the firewall that are opened and end.
    ///
    /// # Errors
    /// There is no firewall.
    pub fn session_events(&self, filter: SessionFilter) -> Result<SessionWatch, ApiError> {
        Ok(self.firewall()?.watch_sessions(filter))
    }

    /// Gives a program sockets of the node's host, until what comes back is dropped. Its doorbells are named after
    /// `beside`, the control socket.
    ///
    /// # Errors
    /// The node has no host, or the system refuses.
    pub fn attach(&self, beside: &Path) -> Result<Lease, ApiError> {
        Lease::new(self, beside)
    }

    /// Prepares a capture; it begins with [`Capture::run`]. One runs at a time.
    ///
    /// # Errors
    /// The request names a port or stage that is not there.
    pub fn capture(&self, request: &CaptureRequest) -> Result<Capture, ApiError> {
        capture::prepare(self, request)
    }

    /// Tells whether every worker runs.
    pub fn is_healthy(&self) -> bool {
        self.state().ended.is_none() && lock(&self.workers).are_running()
    }

    /// Stops the workers: what is inside is sent or dropped (and counted), queues are closed, ports
    /// detached. Returns the last counters. A second call changes nothing.
    pub fn stop(&self) -> Stats {
        let mut state = self.state();
        if state.ended.is_none() {
            if let Some(ndn) = &self.shared.ndn {
                ndn.stop();
            }
            let reports = lock(&self.workers).stop();
            if let Some(ndn) = &self.shared.ndn {
                ndn.spill();
            }
            for (worker, report) in reports.iter().enumerate() {
                match report {
                    Some(report) if report.home + report.kept_by_drivers >= report.frames => {}
                    Some(report) => tracing::warn!(worker, ?report, "frames are missing"),
                    None => tracing::error!(worker, "the worker did not end"),
                }
            }
            state.ended = Some(reports);
            // Last: it passes on what the workers told.
            lock(&self.reporter).take();
        }
        drop(state);
        self.stats()
    }

    /// Returns how each worker ended, once [`Dataplane::stop`] was called: frames owned, frames home,
    /// frames that the kernel kept; `None` for a worker that did not end.
    pub fn ended(&self) -> Option<Vec<Option<DrainReport>>> {
        self.state().ended.clone()
    }
}

impl Drop for Dataplane {
    fn drop(&mut self) {
        self.stop();
    }
}
