//! Why a node does not start, or keeps its old configuration.

use crate::firewall::{GuardError, RulesError, StateError};
use crate::ndn::NdnError;
use crate::plan::PlanError;

/// Why a node does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration makes no sense.
    #[error("the configuration is not usable: {0}")]
    Plan(#[from] PlanError),
    /// The firewall's rules are not usable.
    #[error("{0}")]
    Rules(#[from] RulesError),
    /// The guard's blocklists are not usable.
    #[error("{0}")]
    Guard(#[from] GuardError),
    /// The firewall's connections cannot be kept where the configuration says.
    #[error("{0}")]
    State(#[from] StateError),
    /// The named-data forwarder does not start.
    #[error(transparent)]
    Ndn(#[from] NdnError),
    /// There is no memory for frames.
    #[error("no memory for frames")]
    Memory(#[from] io::RegionError),
    /// Other nodes do not share DPDK with this one.
    #[error("cannot share DPDK with the nodes of group `{group}`: {source}")]
    Sharing {
        /// The group's name.
        group: String,
        /// Why not.
        source: io::dpdk::process::SharingError,
    },
    /// A port cannot be opened.
    #[error(transparent)]
    Port(#[from] io::port::OpenError),
    /// The configuration asks for more bridges than a graph has room for.
    #[error("the packet graph cannot be built")]
    Graph(#[from] graph::GraphError),
    /// A driver that needs the program's help.
    #[error(
        "port {port}: the driver `mem` is for programs that link the node, not for configuration files"
    )]
    MemDriver {
        /// The port's name.
        port: String,
    },
    /// The kernel gave no thread beside the workers.
    #[error("cannot start a thread")]
    Thread(#[source] std::io::Error),
    /// The kernel gave no thread, or no descriptor to wake it.
    #[error("cannot start worker {worker}")]
    Worker {
        /// The worker's number.
        worker: u16,
        /// The kernel's answer.
        source: std::io::Error,
    },
}

impl StartError {
    /// Tells whether the kernel refused, for want of a privilege or of a mode of the driver.
    pub fn is_refusal(&self) -> bool {
        use io::port::OpenError::{EveryModeRefused, NotPermitted};
        matches!(
            self,
            Self::Port(NotPermitted { .. } | EveryModeRefused { .. })
        )
    }

    /// Tells whether an interface of the configuration is not there.
    pub fn is_absence(&self) -> bool {
        matches!(self, Self::Port(io::port::OpenError::NoInterface { .. }))
    }

    /// Returns what to do about it, where there is one thing.
    pub fn remedy(&self) -> Option<String> {
        match self {
            Self::Plan(error) => error.problems.first().map(|p| p.remedy.clone()),
            Self::Memory(_) => {
                Some("write smaller `frames_per_worker` or `frame_bytes` under `[node]`".into())
            }
            Self::Port(io::port::OpenError::EveryModeRefused { .. }) => {
                Some("run as root, or write `driver = \"auto\"`; see `tidegate doctor`".into())
            }
            Self::Ndn(error) => error.remedy(),
            // These say it themselves.
            Self::Port(_)
            | Self::Rules(_)
            | Self::Guard(_)
            | Self::State(_)
            | Self::Sharing { .. } => None,
            Self::Graph(_) => Some("join some of the bridges".into()),
            Self::MemDriver { .. } => Some("write `driver = \"auto\"`".into()),
            Self::Worker { .. } | Self::Thread(_) => {
                Some("raise the limits of threads and open files (`ulimit -u`, `ulimit -n`)".into())
            }
        }
    }
}

/// Why a new configuration was not put in force.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// It makes no sense.
    #[error("the configuration is not usable: {0}")]
    Plan(#[from] PlanError),
    /// The firewall's rules are not usable.
    #[error("{0}")]
    Rules(#[from] RulesError),
    /// The guard's blocklists are not usable.
    #[error("{0}")]
    Guard(#[from] GuardError),
    /// The node has other ports or bridges, which only a restart changes.
    #[error("{} cannot change while the node runs", paths.join(" and "))]
    Structure {
        /// Paths of the configuration.
        paths: Vec<String>,
    },
    /// The node's firewall takes no file of rules.
    #[error("the node's firewall has no file of rules that others could replace")]
    NoRules,
    /// A worker does not read its messages.
    #[error("a worker does not take the new configuration")]
    Busy,
    /// The node has stopped.
    #[error("the node has stopped")]
    Stopped,
}

impl ReloadError {
    /// Returns what to do about it, where there is one thing.
    pub fn remedy(&self) -> Option<String> {
        match self {
            Self::Plan(error) => error.problems.first().map(|p| p.remedy.clone()),
            Self::Structure { .. } => Some("restart the node".into()),
            Self::NoRules => Some("give the configuration `rules` under [firewall]".into()),
            Self::Busy => Some("see in `tidegate stats` whether the worker lives".into()),
            Self::Stopped | Self::Rules(_) | Self::Guard(_) => None,
        }
    }
}
