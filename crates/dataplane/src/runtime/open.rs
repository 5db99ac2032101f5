//! From the configuration to open ports and memory for frames.

use std::sync::Arc;

use control::Config;
use control::config::{DriverConfig, HugePagesConfig, PortConfig};
use io::port::{DriverSpec, OpenPort, PortSpec};
use io::{HugePages, Pool, PortId, Queue, Region};
use wire::MacAddr;

use super::StartError;
use crate::forwarding::PortFacts;

/// An open port, without its queues once the workers have them.
#[derive(Debug)]
pub(super) struct OpenedPort {
    port: OpenPort,
}

impl OpenedPort {
    /// Returns what the forwarding tables need to know.
    pub(super) fn facts(&self) -> PortFacts {
        PortFacts {
            mac: MacAddr(self.port.mac),
            mtu: self.port.mtu,
        }
    }

    /// Takes the queues out.
    pub(super) fn take_queues(&mut self) -> Vec<Box<dyn Queue>> {
        core::mem::take(&mut self.port.queues)
    }

    /// Returns the port.
    pub(super) fn port(&self) -> &OpenPort {
        &self.port
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
) -> Result<Vec<OpenedPort>, StartError> {
    config
        .port
        .iter()
        .enumerate()
        .map(|(i, port)| {
            let spec = PortSpec::new(PortId(i as u16), &*port.name, driver(port)?);
            let port = io::port::open(&spec, region, workers)?;
            Ok(OpenedPort { port })
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
