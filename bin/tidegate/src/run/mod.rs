//! `tidegate run`: the node in the foreground.

mod dump;
mod notify;
mod requests;
mod trial;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use control::Config;
use control::api::{ApiError, ErrorCode, Event, Reply, Stats, Timestamp};
use control::config::{self, ConfigError};
use control::socket::Server;
use dataplane::Dataplane;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use tracing::{error, info, warn};

use crate::cli::{Global, RunArgs};
use crate::command::check;
use crate::exit::{Exit, Failure};
use crate::log;

/// How often the main thread looks whether the workers live, where systemd does not ask for more.
const HEALTH_CHECK: Duration = Duration::from_secs(1);

/// What the main thread is asked to do.
pub(crate) enum Order {
    /// A signal came.
    Signal(i32),
    /// A client asks for a reload and waits for the reply.
    Reload(mpsc::SyncSender<Reply>),
    /// A client puts a file of rules in force.
    ApplyRules {
        /// The file.
        path: PathBuf,
        /// Seconds until the old rules come back.
        confirm_s: Option<u32>,
        /// Takes the reply.
        reply: mpsc::SyncSender<Reply>,
    },
    /// A client ends the wait for a confirmation.
    ConfirmRules {
        /// The new rules stay.
        keep: bool,
        /// Takes the reply.
        reply: mpsc::SyncSender<Reply>,
    },
}

pub(crate) fn run(global: &Global, args: &RunArgs) -> Result<(), Failure> {
    log::start(global, "info")?;
    let config = check::load(&args.config)?;
    for note in &config.notes {
        warn!(note, "not used");
    }
    // from here on a signal is an order and not a sudden death
    let (orders, incoming) = mpsc::sync_channel(16);
    listen_for_signals(orders.clone())?;
    let dataplane = Arc::new(start(&config, Some(args.config.clone()))?);
    let server = Server::start(
        &config.node.control_socket,
        requests::handler(Arc::clone(&dataplane), orders),
    )
    .map_err(|error| {
        let remedy = error.remedy();
        Failure::new(Exit::Failed, error).remedy(remedy)
    })?;
    info!(
        config = %args.config.display(),
        socket = %config.node.control_socket.display(),
        "running"
    );
    let stats = dataplane.stats();
    log_modes(&stats);
    notify::ready(&stats);
    let mut node = Node {
        file: args.config.clone(),
        config,
        dataplane,
        server,
        trial: trial::RulesTrial::default(),
    };
    node.obey(&incoming);
    node.stop();
    Ok(())
}

/// Starts the dataplane; the failure says whether the kernel refused.
pub(crate) fn start(config: &Config, file: Option<PathBuf>) -> Result<Dataplane, Failure> {
    Dataplane::start(config, file).map_err(|error| {
        let exit = if error.is_refusal() {
            Exit::Refused
        } else if error.is_absence() {
            Exit::NotFound
        } else {
            Exit::Failed
        };
        let remedy = error.remedy();
        let failure = Failure::new(exit, error);
        match remedy {
            Some(remedy) => failure.remedy(remedy),
            None => failure,
        }
    })
}

/// Writes to the log which mode each port got, and why better ones were refused.
fn log_modes(stats: &Stats) {
    for port in &stats.ports {
        for reason in &port.refused {
            info!(port = port.name, reason, "mode refused");
        }
        info!(
            port = port.name,
            driver = port.driver,
            mode = port.mode,
            "port open"
        );
    }
}

fn listen_for_signals(orders: mpsc::SyncSender<Order>) -> Result<(), Failure> {
    let mut signals =
        Signals::new([SIGTERM, SIGINT, SIGHUP, SIGUSR1]).context("cannot listen for signals")?;
    thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for signal in signals.forever() {
                if orders.send(Order::Signal(signal)).is_err() {
                    return;
                }
            }
        })?;
    Ok(())
}

struct Node {
    file: PathBuf,
    config: Config,
    dataplane: Arc<Dataplane>,
    server: Server,
    trial: trial::RulesTrial,
}

impl Node {
    /// Obeys orders until one says stop, or a worker dies.
    fn obey(&mut self, incoming: &mpsc::Receiver<Order>) {
        let watchdog = notify::watchdog_interval();
        let pause = watchdog.map_or(HEALTH_CHECK, |interval| interval.min(HEALTH_CHECK));
        loop {
            let pause = self.trial.wait().map_or(pause, |wait| wait.min(pause));
            match incoming.recv_timeout(pause) {
                Ok(Order::Signal(SIGHUP)) => {
                    self.reload();
                }
                Ok(Order::Signal(SIGUSR1)) => dump::to_log(&self.dataplane.stats()),
                Ok(Order::Signal(signal)) => {
                    info!(signal, "stopping");
                    return;
                }
                Ok(Order::Reload(reply)) => {
                    // a client that has gone needs no reply
                    let _ = reply.send(self.reload());
                }
                Ok(Order::ApplyRules {
                    path,
                    confirm_s,
                    reply,
                }) => {
                    let _ = reply.send(self.trial.apply(&self.dataplane, &path, confirm_s));
                }
                Ok(Order::ConfirmRules { keep, reply }) => {
                    let _ = reply.send(self.trial.end(&self.dataplane, keep));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.trial.look(&self.dataplane);
            if !self.dataplane.is_healthy() {
                // systemd's watchdog ends a node that stays like this
                warn!("a worker does not answer");
            } else if watchdog.is_some() {
                notify::alive();
            }
        }
    }

    fn reload(&mut self) -> Reply {
        notify::reloading();
        let reply = match self.try_reload() {
            Ok(reply) => {
                info!(config = %self.file.display(), "reloaded");
                reply
            }
            Err(error) => {
                error!(config = %self.file.display(), error = %error, "not reloaded; the old configuration stays in force");
                Reply::Error(error)
            }
        };
        notify::ready(&self.dataplane.stats());
        reply
    }

    fn try_reload(&mut self) -> Result<Reply, ApiError> {
        let config = config::load(&self.file).map_err(|error| describe(&error))?;
        let needs_restart = self.dataplane.reload(&config).map_err(|error| ApiError {
            code: ErrorCode::Failed,
            remedy: error.remedy(),
            message: format!("{:#}", anyhow::Error::from(error)),
        })?;
        self.config = config;
        self.trial.forget();
        let generation = self.dataplane.stats().node.config_generation;
        self.server.publish(&Event::Reloaded {
            at: Timestamp::now(),
            generation,
        });
        Ok(Reply::Reloaded {
            generation,
            needs_restart,
        })
    }

    /// Ends clients, then workers; ports are detached when this returns.
    fn stop(self) {
        notify::stopping();
        self.server.publish(&Event::Stopping {
            at: Timestamp::now(),
        });
        drop(self.server);
        let last = self.dataplane.stop();
        let rx: u64 = last.ports.iter().map(|port| port.counters.rx_pkts).sum();
        let tx: u64 = last.ports.iter().map(|port| port.counters.tx_pkts).sum();
        info!(rx_pkts = rx, tx_pkts = tx, "stopped");
    }
}

fn describe(error: &ConfigError) -> ApiError {
    match error.problems() {
        [] => ApiError {
            code: ErrorCode::Failed,
            message: error.to_string(),
            remedy: error.read_remedy(),
        },
        [first, ..] => ApiError {
            code: ErrorCode::Failed,
            message: format!(
                "{error}; line {}, column {}: {}",
                first.line, first.column, first.message
            ),
            remedy: Some(first.remedy.clone()),
        },
    }
}
