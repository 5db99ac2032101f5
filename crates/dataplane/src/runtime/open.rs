//! From the configuration to open ports and memory for frames.

use std::sync::Arc;

use control::Config;
use control::config::{DriverConfig, HugePagesConfig, PortConfig};
use io::interface::MacAddress;
use io::port::{DriverSpec, OpenPort, PortSpec};
use io::{HugePages, Pool, PortId, Queue, Region};
use wire::MacAddr;

use super::StartError;
use crate::forwarding::PortFacts;

/// An open port as listings show it; the workers have its queues. Unlike these, it may be shared by
/// threads.
#[derive(Debug)]
pub(super) struct OpenedPort {
    pub(super) id: PortId,
    pub(super) mac: MacAddress,
    pub(super) mtu: u16,
    pub(super) interface: Option<String>,
    pub(super) driver: &'static str,
    pub(super) mode: String,
    pub(super) refused: Vec<String>,
}

/// The queues of a port, one a worker.
pub(super) type PortQueues = Vec<Box<dyn Queue>>;

impl OpenedPort {
    fn split(port: OpenPort) -> (Self, PortQueues) {
        let opened = Self {
            id: port.id,
            mac: port.mac,
            mtu: port.mtu,
            interface: port.interface,
            driver: port.driver,
            mode: port.mode,
            refused: port.refused,
        };
        (opened, port.queues)
    }

    /// Returns what the forwarding tables need to know.
    pub(super) fn facts(&self) -> PortFacts {
        PortFacts {
            mac: MacAddr(self.mac),
            mtu: self.mtu,
        }
    }
}

/// Maps the memory for frames: one pool a worker.
pub(super) fn pools(config: &Config, workers: u16) -> Result<Vec<Pool>, StartError> {
    let node = &config.node;
    let huge = match node.huge_pages {
        HugePagesConfig::Auto => HugePages::Auto,
        HugePagesConfig::Require => HugePages::Require,
        HugePagesConfig::Never => HugePages::Never,
    };
    Ok(Pool::split(
        node.frames_per_worker,
        workers,
        node.frame_bytes,
        huge,
    )?)
}

/// Opens all ports.
pub(super) fn ports(
    config: &Config,
    region: &Arc<Region>,
    workers: u16,
) -> Result<(Vec<OpenedPort>, Vec<PortQueues>), StartError> {
    config
        .port
        .iter()
        .enumerate()
        .map(|(i, port)| {
            let spec = PortSpec::new(PortId(i as u16), &*port.name, driver(port)?);
            let port = io::port::open(&spec, region, workers)?;
            Ok(OpenedPort::split(port))
        })
        .collect()
}

fn driver(port: &PortConfig) -> Result<DriverSpec, StartError> {
    match port.driver {
        DriverConfig::Mem => Err(StartError::MemDriver {
            port: port.name.clone(),
        }),
        _ => Ok(DriverSpec::Null(io::null::NullSpec::default())),
    }
}
