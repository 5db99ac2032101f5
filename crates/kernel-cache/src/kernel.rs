//! The program in the kernel: maps, loading, ports, counters.

use std::os::fd::AsFd;

use io::bpf::{AttachMode, BpfError, Link, Map, MapKind, Program, TestRunResult};

use crate::cache::Cache;
use crate::memory::{Array, Arrays, Sizes};
use crate::object::{self, ObjectError};
use crate::shared::answer::{OUTCOMES, Scratch, port_row};
use crate::shared::layout::{Bucket, Config, Node, PORT_ROWS, PortRow, Slab};

/// The compiled program, for all processors of little-endian order.
const OBJECT: &[u8] = include_bytes!("../bpf/xdp.o");
const NAME: &str = "tg_kernel_cache";

/// Why there is no cache in the kernel.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The kernel refused a map or the program.
    #[error(transparent)]
    Bpf(#[from] BpfError),
    /// The maps could not be mapped.
    #[error("cannot map the cache's memory: {0}")]
    Memory(#[from] std::io::Error),
    /// The program that this binary has is damaged.
    #[error("the built-in program: {0}")]
    Object(#[from] ObjectError),
}

/// Why a port has no cache.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The kernel refused.
    #[error(transparent)]
    Bpf(#[from] BpfError),
    /// Another port of this cache has the same row.
    #[error(
        "interface {ifindex} and interface {other} share a row of the port table (indices alike modulo {PORT_ROWS}); make one of them anew"
    )]
    Row {
        /// The port that was to be added.
        ifindex: u32,
        /// The one that is there.
        other: u32,
    },
}

/// A cache in the kernel's packet path. Everything goes with it, or with the process.
#[derive(Debug)]
pub struct KernelCache {
    program: Program,
    ports: Map,
    rows: Vec<u32>,
    outcomes: Map,
    next: Map,
    _others: Vec<Map>,
}

/// A port on which the cache answers; dropping it detaches the program.
#[derive(Debug)]
pub struct Port {
    _link: Link,
}

impl KernelCache {
    /// Loads the program for a cache of these sizes, and returns it with what fills it.
    ///
    /// # Errors
    /// The kernel's refusal: no rights, too old (it needs 6.1), no memory.
    pub fn load(sizes: Sizes) -> Result<(Self, Cache), LoadError> {
        let config = sizes.config();
        let bytes = |size: usize| size as u32;
        let configs = Map::create(MapKind::Array, "kc_config", bytes(size_of::<Config>()), 1)?;
        configs.set(0, &config_bytes(&config))?;
        let buckets =
            Map::create_mappable("kc_buckets", bytes(size_of::<Bucket>()), sizes.buckets())?;
        let nodes = Map::create_mappable("kc_nodes", bytes(size_of::<Node>()), sizes.nodes())?;
        let slabs = Map::create_mappable("kc_slabs", bytes(size_of::<Slab>()), sizes.slabs())?;
        let rows = PORT_ROWS as u32;
        let ports = Map::create(
            MapKind::Array,
            "kc_ports",
            bytes(size_of::<PortRow>()),
            rows,
        )?;
        let own = MapKind::PerCpuArray;
        let scratch = Map::create(own, "kc_scratch", bytes(size_of::<Scratch>()), 1)?;
        let outcomes = Map::create(own, "kc_outcomes", 8, OUTCOMES as u32)?;
        let next = Map::create(MapKind::ProgramArray, "kc_next", 4, rows)?;
        let arrays = Arrays {
            config,
            buckets: Array::new(Some(buckets.as_fd()), sizes.buckets())?,
            nodes: Array::new(Some(nodes.as_fd()), sizes.nodes())?,
            slabs: Array::new(Some(slabs.as_fd()), sizes.slabs())?,
        };
        let insns = object::program(OBJECT, "xdp", |name| {
            Some(match name {
                "kc_config" => configs.raw_fd(),
                "kc_buckets" => buckets.raw_fd(),
                "kc_nodes" => nodes.raw_fd(),
                "kc_slabs" => slabs.raw_fd(),
                "kc_ports" => ports.raw_fd(),
                "kc_scratch" => scratch.raw_fd(),
                "kc_outcomes" => outcomes.raw_fd(),
                "kc_next" => next.raw_fd(),
                _ => return None,
            })
        })?;
        let cache = Self {
            program: Program::load_xdp(NAME, &insns)?,
            ports,
            rows: vec![0; PORT_ROWS],
            outcomes,
            next,
            _others: vec![configs, buckets, nodes, slabs, scratch],
        };
        Ok((cache, Cache::new(arrays)))
    }

    /// Answers from now on what comes in by a port, without attaching anything.
    ///
    /// # Errors
    /// Its row is taken; the kernel's refusal.
    pub fn add_port(&mut self, port: &PortRow) -> Result<(), AttachError> {
        let row = port_row(port.ifindex);
        let taken = &mut self.rows[row as usize];
        if *taken != 0 && *taken != port.ifindex {
            return Err(AttachError::Row {
                ifindex: port.ifindex,
                other: *taken,
            });
        }
        self.ports.set(row, &port_bytes(port))?;
        *taken = port.ifindex;
        Ok(())
    }

    /// Attaches the program to a port.
    ///
    /// # Errors
    /// As [`KernelCache::add_port`], and as [`Program::attach_xdp`].
    pub fn attach(&mut self, port: &PortRow, mode: AttachMode) -> Result<Port, AttachError> {
        self.add_port(port)?;
        let link = self.program.attach_xdp(port.ifindex, mode)?;
        Ok(Port { _link: link })
    }

    /// Gives what the cache does not answer on a port to another program, not to the kernel's stack.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn set_next(&self, ifindex: u32, next: &Program) -> Result<(), BpfError> {
        use std::os::fd::AsRawFd;
        let fd = next.as_fd().as_raw_fd() as u32;
        self.next.set_u32(port_row(ifindex), fd)
    }

    /// Returns how many frames had each outcome ([`crate::Outcome`] by number).
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn outcomes(&self) -> Result<[u64; OUTCOMES], BpfError> {
        let mut counts = [0; OUTCOMES];
        for (count, key) in counts.iter_mut().zip(0..) {
            *count = self.outcomes.sum_u64(key)?;
        }
        Ok(counts)
    }

    /// Runs the program on a packet without a device; see [`Program::run`].
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn test_run(&self, packet: &[u8], repeat: u32) -> Result<TestRunResult, BpfError> {
        self.program.run(packet, repeat)
    }
}

fn config_bytes(config: &Config) -> Vec<u8> {
    let mut bytes = config.seed.to_ne_bytes().to_vec();
    for number in [
        config.bucket_mask,
        config.data_slots,
        config.prefix_slots,
        config.weakly_ordered,
    ] {
        bytes.extend(number.to_ne_bytes());
    }
    bytes.resize(size_of::<Config>(), 0);
    bytes
}

fn port_bytes(port: &PortRow) -> Vec<u8> {
    let mut bytes = port.ifindex.to_ne_bytes().to_vec();
    bytes.extend(port.frame_bytes_max.to_ne_bytes());
    bytes.extend(port.mac.to_ne_bytes());
    bytes
}
