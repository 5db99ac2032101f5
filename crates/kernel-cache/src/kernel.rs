//! The program in the kernel: maps, loading, ports, counters.

use std::os::fd::AsFd;
use std::sync::Arc;

use io::af_packet::PacketFilter;
use io::bpf::sys::program_name;
use io::bpf::{
    AttachMode, BpfError, Front, Link, Map, MapKind, Program, ProgramKind, TestRunResult,
};

use crate::cache::Cache;
use crate::memory::{Array, Arrays, Sizes};
use crate::object::{self, ObjectError};
use crate::shared::answer::{OUTCOMES, Scratch, port_row};
use crate::shared::layout::{Bucket, Config, Node, PORT_ROWS, PortRow, Slab};

const NAME: &str = "tg_kernel_cache";

/// Where in the packet path a program stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// In the driver, before the kernel makes a socket buffer.
    Native,
    /// XDP on socket buffers, for drivers without it. Replies grow only into the room that a buffer has.
    Generic,
    /// TC at the device's ingress (Linux 6.6): on every device, and with room for every reply.
    Ingress,
}

impl Hook {
    /// Returns its name: `xdp`, `xdp generic` or `tc`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Native => "xdp",
            Self::Generic => "xdp generic",
            Self::Ingress => "tc",
        }
    }
}

/// A compiled program: the object, its section and kind.
type Compiled = (&'static [u8], &'static str, ProgramKind);

/// The program that tells a packet socket what the one at ingress answers.
const FILTER: Compiled = (
    include_bytes!("../bpf/filter.o"),
    "filter",
    ProgramKind::SocketFilter,
);

impl Hook {
    /// The compiled program, for all processors of little-endian order, its section and kind.
    fn object(self) -> Compiled {
        match self {
            Self::Native | Self::Generic => {
                let object = include_bytes!("../bpf/xdp.o");
                (object, "xdp", ProgramKind::Xdp)
            }
            Self::Ingress => {
                let object = include_bytes!("../bpf/tc.o");
                (object, "tc", ProgramKind::Ingress)
            }
        }
    }
}

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
    /// The program was not loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The kernel refused.
    #[error(transparent)]
    Bpf(#[from] BpfError),
    /// Somebody else's XDP program is there.
    #[error(
        "another XDP program is attached: {name}, id {id}; stop who holds it, or attach at ingress"
    )]
    Taken {
        /// Its name.
        name: String,
        /// The kernel's id of it.
        id: u32,
    },
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

/// The maps that a program refers to, by their names in the object.
#[derive(Debug)]
struct Maps(Vec<(&'static str, Map)>);

impl Maps {
    fn get(&self, name: &str) -> Option<&Map> {
        self.0
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, map)| map)
    }
}

/// A cache in the kernel's packet path. Everything goes with it, or with the process.
#[derive(Debug)]
pub struct KernelCache {
    maps: Maps,
    xdp: Option<Arc<Program>>,
    ingress: Option<Arc<Program>>,
    filter: Option<Arc<Program>>,
    ports: Map,
    rows: Vec<u32>,
    outcomes: Map,
    next: Arc<Map>,
}

/// A port on which the cache answers; dropping it detaches the program.
#[derive(Debug)]
pub struct Port {
    _link: Link,
}

impl KernelCache {
    /// Makes a cache of these sizes in the kernel, and returns it with what fills it. A program is loaded when it is
    /// first needed.
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
        let cache = Self {
            maps: Maps(vec![
                ("kc_config", configs),
                ("kc_buckets", buckets),
                ("kc_nodes", nodes),
                ("kc_slabs", slabs),
                ("kc_scratch", scratch),
            ]),
            xdp: None,
            ingress: None,
            filter: None,
            ports,
            rows: vec![0; PORT_ROWS],
            outcomes,
            next: Arc::new(next),
        };
        Ok((cache, Cache::new(arrays)))
    }

    /// Returns a program; loads it if it is not there yet.
    fn program(&mut self, (file, section, kind): Compiled) -> Result<&Arc<Program>, LoadError> {
        let loaded = match kind {
            ProgramKind::Xdp => &mut self.xdp,
            ProgramKind::Ingress => &mut self.ingress,
            ProgramKind::SocketFilter => &mut self.filter,
        };
        match loaded {
            Some(program) => Ok(program),
            None => {
                let insns = object::program(file, section, |name| {
                    let map = match name {
                        "kc_ports" => Some(&self.ports),
                        "kc_outcomes" => Some(&self.outcomes),
                        "kc_next" => Some(&*self.next),
                        _ => self.maps.get(name),
                    };
                    map.map(Map::raw_fd)
                })?;
                Ok(loaded.insert(Arc::new(Program::load(kind, NAME, &insns)?)))
            }
        }
    }

    /// Answers what comes in by a port, as soon as a program is there.
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

    /// Attaches the program to a port of the caller's network namespace.
    ///
    /// # Errors
    /// As [`KernelCache::add_port`], [`Program::attach_xdp`] and [`Program::attach_ingress`].
    pub fn attach(&mut self, port: &PortRow, hook: Hook) -> Result<Port, AttachError> {
        self.add_port(port)?;
        let program = self.program(hook.object())?;
        let attached = match hook {
            Hook::Native => program.attach_xdp(port.ifindex, AttachMode::Native),
            Hook::Generic => program.attach_xdp(port.ifindex, AttachMode::Generic),
            Hook::Ingress => program.attach_ingress(port.ifindex),
        };
        match attached {
            Ok(link) => Ok(Port { _link: link }),
            Err(error) if matches!(error.errno(), Some(libc::EBUSY | libc::EEXIST)) => {
                Err(who_is_there(port.ifindex).unwrap_or(AttachError::Bpf(error)))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Answers on a port whose frames otherwise go to another XDP program, and returns what that one attaches with
    /// ([`io::af_xdp::AfXdpSpec::front`]): one attachment, both jobs.
    ///
    /// # Errors
    /// As [`KernelCache::add_port`]; the kernel's refusal.
    pub fn front(&mut self, port: &PortRow) -> Result<Front, AttachError> {
        self.add_port(port)?;
        let program = Arc::clone(self.program(Hook::Native.object())?);
        Ok(Front {
            program,
            next: Arc::clone(&self.next),
            key: port_row(port.ifindex),
        })
    }

    /// Returns the filter for packet sockets on a port that has the program at [`Hook::Ingress`]
    /// ([`io::af_packet::AfPacketSpec::filter`]): they see a frame before that program does, and do not get what it
    /// will answer. An entry that goes in between costs the Interest, which is sent again in time.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn packet_filter(&mut self) -> Result<PacketFilter, LoadError> {
        Ok(PacketFilter(Arc::clone(self.program(FILTER)?)))
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

    /// Returns how often the programs ran and what that took, ns ([`Program::runs`]).
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn runs(&self) -> Result<(u64, u64), BpfError> {
        let mut sum = (0, 0);
        for program in [&self.xdp, &self.ingress].into_iter().flatten() {
            let (runs, ns) = program.runs()?;
            sum = (sum.0 + runs, sum.1 + ns);
        }
        Ok(sum)
    }

    /// Runs a program on a packet without a device; see [`Program::run`].
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn test_run(
        &mut self,
        hook: Hook,
        packet: &[u8],
        repeat: u32,
    ) -> Result<TestRunResult, LoadError> {
        Ok(self.program(hook.object())?.run(packet, repeat)?)
    }
}

/// Names the XDP program that an interface has.
fn who_is_there(ifindex: u32) -> Option<AttachError> {
    let attached = io::af_xdp::attached_xdp(ifindex).ok()??;
    let id = attached.program_id;
    let name = program_name(id).unwrap_or_else(|_| "of unknown name".into());
    Some(AttachError::Taken { name, id })
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
