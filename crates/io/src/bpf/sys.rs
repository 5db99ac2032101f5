//! The `bpf(2)` system call: maps, programs, links, test runs. No libbpf, no ELF, no BTF.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use super::asm::Insn;

/// Commands of `enum bpf_cmd`.
mod cmd {
    pub(super) const MAP_CREATE: i32 = 0;
    pub(super) const MAP_LOOKUP_ELEM: i32 = 1;
    pub(super) const MAP_UPDATE_ELEM: i32 = 2;
    pub(super) const MAP_DELETE_ELEM: i32 = 3;
    pub(super) const PROG_LOAD: i32 = 5;
    pub(super) const PROG_TEST_RUN: i32 = 10;
    pub(super) const PROG_GET_FD_BY_ID: i32 = 13;
    pub(super) const OBJ_GET_INFO_BY_FD: i32 = 15;
    pub(super) const LINK_CREATE: i32 = 28;
    pub(super) const LINK_GET_FD_BY_ID: i32 = 30;
    pub(super) const LINK_GET_NEXT_ID: i32 = 31;
}

/// `BPF_PROG_TYPE_SOCKET_FILTER`
const PROG_TYPE_SOCKET_FILTER: u32 = 1;
/// `BPF_PROG_TYPE_SCHED_CLS`
const PROG_TYPE_CLASSIFIER: u32 = 3;
/// `BPF_PROG_TYPE_XDP`
const PROG_TYPE_XDP: u32 = 6;
/// `BPF_TCX_INGRESS`, the attach type.
const ATTACH_TCX_INGRESS: u32 = 46;
/// `BPF_XDP`, the attach type.
const ATTACH_XDP: u32 = 37;
/// `BPF_LINK_TYPE_XDP`
const LINK_TYPE_XDP: u32 = 6;
/// `BPF_F_MMAPABLE`
const MMAPABLE: u32 = 1 << 10;
/// Room for the packet of a test run, bytes; the kernel gives a frame one page.
const TEST_PACKET_BYTES: usize = 4096;
/// `BPF_F_TEST_XDP_LIVE_FRAMES`
const TEST_LIVE_FRAMES: u32 = 1 << 1;
/// Room for the verifier's log, bytes.
const LOG_BYTES: usize = 256 << 10;

/// Why the kernel did not do what a BPF call asked.
#[derive(Debug, thiserror::Error)]
pub enum BpfError {
    /// A call failed.
    #[error("bpf {command}: {source}{}", remedy(.source))]
    Call {
        /// What was asked.
        command: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The verifier refused a program; its log says why.
    #[error("the kernel's verifier refused program {name}: {source}{}\n{log}", remedy(.source))]
    Verifier {
        /// The program's name.
        name: String,
        /// The kernel's answer.
        source: io::Error,
        /// What the verifier wrote.
        log: String,
    },
    /// The program could not be assembled.
    #[error("cannot assemble program {name}: {source}")]
    Assemble {
        /// The program's name.
        name: &'static str,
        /// What is wrong with it.
        source: super::asm::AsmError,
    },
}

impl BpfError {
    /// Returns the kernel's error number, if the kernel was asked.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Call { source, .. } | Self::Verifier { source, .. } => source.raw_os_error(),
            Self::Assemble { .. } => None,
        }
    }
}

/// Says what to do about the answers that have one usual cause.
fn remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EPERM) => " (needs root, or CAP_BPF and CAP_NET_ADMIN)",
        Some(libc::ENOSYS) => " (this kernel has no bpf(2); it needs CONFIG_BPF_SYSCALL)",
        _ => "",
    }
}

/// Calls `bpf(2)` with an attribute block of the kernel's layout.
fn bpf<T>(command: i32, name: &'static str, attribute: &mut T) -> Result<i64, BpfError> {
    // SAFETY: every attribute type of this module is `repr(C)` after `union bpf_attr`, fully
    // initialised, and its pointers refer to memory that outlives the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            core::ptr::from_mut(attribute),
            core::mem::size_of::<T>(),
        )
    };
    if result < 0 {
        return Err(BpfError::Call {
            command: name,
            source: io::Error::last_os_error(),
        });
    }
    Ok(result)
}

/// Takes ownership of a descriptor that `bpf(2)` returned.
fn owned(result: i64) -> OwnedFd {
    // SAFETY: the kernel returned a new descriptor (always close-on-exec) that nobody else owns.
    unsafe { OwnedFd::from_raw_fd(result as RawFd) }
}

/// The name as the kernel takes it: 15 bytes of letters, digits, `_` and `.`.
fn object_name(name: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    for (to, from) in bytes[..15].iter_mut().zip(name.bytes()) {
        *to = from;
    }
    bytes
}

/// The maps that the node's programs use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapKind {
    /// Values by index.
    Array = 2,
    /// Programs by index, for tail calls.
    ProgramArray = 3,
    /// Values by index, one for each processor.
    PerCpuArray = 6,
    /// AF_XDP sockets by receive queue.
    XskMap = 17,
}

/// A map: what a program and user space share. Keys are 32-bit indices.
#[derive(Debug)]
pub struct Map {
    fd: OwnedFd,
    value_bytes: usize,
}

#[repr(C)]
#[derive(Default)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
    inner_map_fd: u32,
    numa_node: u32,
    map_name: [u8; 16],
}

#[repr(C)]
struct MapElement {
    map_fd: u32,
    _pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

impl Map {
    /// Creates a map of `entries` values of `value_bytes`.
    ///
    /// # Errors
    /// The kernel's answer.
    pub fn create(
        kind: MapKind,
        name: &str,
        value_bytes: u32,
        entries: u32,
    ) -> Result<Self, BpfError> {
        Self::create_with(kind, name, value_bytes, entries, 0)
    }

    /// Creates an array map that can be mapped into memory by its descriptor ([`AsFd`]): value after value, each
    /// of `value_bytes` rounded up to 8.
    ///
    /// # Errors
    /// The kernel's answer.
    pub fn create_mappable(name: &str, value_bytes: u32, entries: u32) -> Result<Self, BpfError> {
        Self::create_with(MapKind::Array, name, value_bytes, entries, MMAPABLE)
    }

    fn create_with(
        kind: MapKind,
        name: &str,
        value_bytes: u32,
        entries: u32,
        flags: u32,
    ) -> Result<Self, BpfError> {
        let mut attribute = MapCreate {
            map_type: kind as u32,
            key_size: 4,
            value_size: value_bytes,
            max_entries: entries,
            map_flags: flags,
            map_name: object_name(name),
            ..MapCreate::default()
        };
        let fd = owned(bpf(cmd::MAP_CREATE, "map create", &mut attribute)?);
        let value_bytes = match kind {
            // One value a processor, each rounded up to 8 bytes.
            MapKind::PerCpuArray => value_bytes.next_multiple_of(8) as usize * possible_cpus(),
            MapKind::Array | MapKind::ProgramArray | MapKind::XskMap => value_bytes as usize,
        };
        Ok(Self { fd, value_bytes })
    }

    fn element(&self, key: &u32, value: *const u8) -> MapElement {
        MapElement {
            map_fd: self.fd.as_raw_fd() as u32,
            _pad: 0,
            key: core::ptr::from_ref(key) as u64,
            value: value as u64,
            flags: 0,
        }
    }

    /// Stores a 32-bit value (a counter, or the descriptor of a socket).
    ///
    /// # Errors
    /// The kernel's answer.
    pub fn set_u32(&self, key: u32, value: u32) -> Result<(), BpfError> {
        self.check_length(4, "map update")?;
        let mut attribute = self.element(&key, core::ptr::from_ref(&value).cast());
        bpf(cmd::MAP_UPDATE_ELEM, "map update", &mut attribute).map(drop)
    }

    /// Stores a value.
    ///
    /// # Errors
    /// `EINVAL` if it has not the length of the map's values; else the kernel's answer.
    pub fn set(&self, key: u32, value: &[u8]) -> Result<(), BpfError> {
        self.check_length(value.len(), "map update")?;
        let mut attribute = self.element(&key, value.as_ptr());
        bpf(cmd::MAP_UPDATE_ELEM, "map update", &mut attribute).map(drop)
    }

    /// Sums a 64-bit value of a map over all processors.
    ///
    /// # Errors
    /// The kernel's answer.
    pub fn sum_u64(&self, key: u32) -> Result<u64, BpfError> {
        let mut value = vec![0_u64; self.value_bytes.div_ceil(8)];
        let mut attribute = self.element(&key, value.as_mut_ptr().cast());
        bpf(cmd::MAP_LOOKUP_ELEM, "map lookup", &mut attribute)?;
        Ok(value.iter().sum())
    }

    fn check_length(&self, length: usize, command: &'static str) -> Result<(), BpfError> {
        if length == self.value_bytes {
            return Ok(());
        }
        Err(BpfError::Call {
            command,
            source: io::Error::from_raw_os_error(libc::EINVAL),
        })
    }

    /// Reads a 64-bit value of an array map whose values are 64 bits.
    ///
    /// # Errors
    /// The kernel's answer.
    pub fn get_u64(&self, key: u32) -> Result<u64, BpfError> {
        self.check_length(8, "map lookup")?;
        let mut value = 0u64;
        let mut attribute = self.element(&key, core::ptr::from_mut(&mut value).cast());
        bpf(cmd::MAP_LOOKUP_ELEM, "map lookup", &mut attribute)?;
        Ok(value)
    }

    /// Removes an entry; an array map has none to remove and refuses.
    ///
    /// # Errors
    /// The kernel's answer.
    pub fn remove(&self, key: u32) -> Result<(), BpfError> {
        let mut attribute = self.element(&key, core::ptr::null());
        bpf(cmd::MAP_DELETE_ELEM, "map delete", &mut attribute).map(drop)
    }

    /// Returns the descriptor's number, for [`super::asm::Asm::load_map`].
    pub fn raw_fd(&self) -> i32 {
        self.fd.as_raw_fd()
    }
}

impl AsFd for Map {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Returns how many processors this machine may have, as the kernel counts the values of a per-CPU map
/// (`/sys/devices/system/cpu/possible`: ranges like `0-3,8`).
fn possible_cpus() -> usize {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let last = text.trim().rsplit(['-', ',']).next();
    last.and_then(|last| last.parse::<usize>().ok())
        .map_or(1, |last| last + 1)
}

/// What a test run did to a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestRunResult {
    /// The verdict (the value of [`super::asm::XdpAction`]).
    pub verdict: u32,
    /// The packet afterwards.
    pub packet: Vec<u8>,
    /// What one run took, ns, on average.
    pub run_ns: u32,
}

/// What a program is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramKind {
    /// Frames as a driver receives them.
    Xdp,
    /// Socket buffers that a device has received, before the stack.
    Ingress,
    /// What a socket is to receive.
    SocketFilter,
}

/// A loaded program.
#[derive(Debug)]
pub struct Program {
    fd: OwnedFd,
}

#[repr(C)]
#[derive(Default)]
struct ProgLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
}

#[repr(C)]
#[derive(Default)]
struct TestRun {
    prog_fd: u32,
    retval: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    ctx_size_in: u32,
    ctx_size_out: u32,
    ctx_in: u64,
    ctx_out: u64,
    flags: u32,
    cpu: u32,
    batch_size: u32,
    _pad: u32,
}

/// `struct xdp_md`
#[repr(C)]
#[derive(Default)]
struct XdpMd {
    data: u32,
    data_end: u32,
    data_meta: u32,
    ingress_ifindex: u32,
    rx_queue_index: u32,
    egress_ifindex: u32,
}

impl Program {
    /// Loads an XDP program. If the verifier refuses it, it runs once more with the log on.
    ///
    /// # Errors
    /// The verifier's log, or the kernel's answer.
    pub fn load_xdp(name: &str, insns: &[Insn]) -> Result<Self, BpfError> {
        Self::load(ProgramKind::Xdp, name, insns)
    }

    /// Loads a program; else as [`Program::load_xdp`].
    ///
    /// # Errors
    /// The verifier's log, or the kernel's answer.
    pub fn load(kind: ProgramKind, name: &str, insns: &[Insn]) -> Result<Self, BpfError> {
        match Self::try_load(kind, name, insns, &mut []) {
            Ok(program) => Ok(program),
            Err(error) if matches!(error.errno(), Some(libc::EPERM | libc::ENOSYS)) => Err(error),
            Err(_) => {
                let mut log = vec![0; LOG_BYTES];
                Self::try_load(kind, name, insns, &mut log).map_err(|error| match error {
                    BpfError::Call { source, .. } => BpfError::Verifier {
                        name: name.to_owned(),
                        source,
                        log: text(&log),
                    },
                    other => other,
                })
            }
        }
    }

    fn try_load(
        kind: ProgramKind,
        name: &str,
        insns: &[Insn],
        log: &mut [u8],
    ) -> Result<Self, BpfError> {
        let (prog_type, expected_attach_type) = match kind {
            ProgramKind::Xdp => (PROG_TYPE_XDP, ATTACH_XDP),
            ProgramKind::Ingress => (PROG_TYPE_CLASSIFIER, 0),
            ProgramKind::SocketFilter => (PROG_TYPE_SOCKET_FILTER, 0),
        };
        let mut attribute = ProgLoad {
            prog_type,
            insn_cnt: insns.len() as u32,
            insns: insns.as_ptr() as u64,
            license: c"Dual MIT/GPL".as_ptr() as u64,
            log_level: u32::from(!log.is_empty()),
            log_size: log.len() as u32,
            log_buf: if log.is_empty() {
                0
            } else {
                log.as_mut_ptr() as u64
            },
            prog_name: object_name(name),
            expected_attach_type,
            ..ProgLoad::default()
        };
        let fd = owned(bpf(cmd::PROG_LOAD, "program load", &mut attribute)?);
        Ok(Self { fd })
    }

    /// Runs the program once on a packet, without any device, and returns its verdict (the value of
    /// [`super::asm::XdpAction`]).
    ///
    /// # Errors
    /// The kernel's answer; it wants at least 14 bytes.
    pub fn run_once(&self, packet: &[u8]) -> Result<u32, BpfError> {
        let mut attribute = TestRun {
            prog_fd: self.fd.as_raw_fd() as u32,
            data_size_in: packet.len() as u32,
            data_in: packet.as_ptr() as u64,
            repeat: 1,
            ..TestRun::default()
        };
        bpf(cmd::PROG_TEST_RUN, "program test run", &mut attribute)?;
        Ok(attribute.retval)
    }

    /// Runs the program `repeat` times on the same memory, in which a packet is at first, as if loopback of the
    /// caller's namespace had received it.
    ///
    /// # Errors
    /// The kernel's answer; `EINTR` if a signal came.
    pub fn run(&self, packet: &[u8], repeat: u32) -> Result<TestRunResult, BpfError> {
        let mut out = vec![0; TEST_PACKET_BYTES];
        let mut attribute = TestRun {
            prog_fd: self.fd.as_raw_fd() as u32,
            data_size_in: packet.len() as u32,
            data_in: packet.as_ptr() as u64,
            data_size_out: out.len() as u32,
            data_out: out.as_mut_ptr() as u64,
            repeat,
            ..TestRun::default()
        };
        bpf(cmd::PROG_TEST_RUN, "program test run", &mut attribute)?;
        out.truncate(attribute.data_size_out as usize);
        Ok(TestRunResult {
            verdict: attribute.retval,
            packet: out,
            run_ns: attribute.duration,
        })
    }

    /// Makes `repeat` copies of a packet and runs the program on each as if it had been received,
    /// following its redirects: the fastest source of packets that the kernel has. Runs on the
    /// calling thread's CPU; costs tens of milliseconds a call besides the packets. Returns the time
    /// that the packets took, each, without those.
    ///
    /// # Errors
    /// The kernel's answer; `EINTR` if a signal came.
    pub fn run_live(
        &self,
        packet: &[u8],
        ingress_ifindex: u32,
        repeat: u32,
        batch: u32,
    ) -> Result<Duration, BpfError> {
        let mut context = XdpMd {
            data_end: packet.len() as u32,
            ingress_ifindex,
            ..XdpMd::default()
        };
        let mut attribute = TestRun {
            prog_fd: self.fd.as_raw_fd() as u32,
            data_size_in: packet.len() as u32,
            data_in: packet.as_ptr() as u64,
            repeat,
            ctx_size_in: core::mem::size_of::<XdpMd>() as u32,
            ctx_in: core::ptr::from_mut(&mut context) as u64,
            flags: TEST_LIVE_FRAMES,
            batch_size: batch,
            ..TestRun::default()
        };
        bpf(cmd::PROG_TEST_RUN, "program live run", &mut attribute)?;
        Ok(Duration::from_nanos(u64::from(attribute.duration)))
    }

    /// Attaches the program to an interface as a BPF link: it is detached when the returned value is
    /// dropped or the process ends, however it ends.
    ///
    /// # Errors
    /// The kernel's answer: `EBUSY` or `EEXIST` if there is a program already, `EOPNOTSUPP` if the
    /// driver has no native XDP, `ERANGE` if the MTU is too large for it.
    pub fn attach_xdp(&self, ifindex: u32, mode: AttachMode) -> Result<Link, BpfError> {
        let mut attribute = LinkCreate {
            prog_fd: self.fd.as_raw_fd() as u32,
            target_ifindex: ifindex,
            attach_type: ATTACH_XDP,
            flags: mode as u32,
        };
        let fd = owned(bpf(cmd::LINK_CREATE, "link create", &mut attribute)?);
        Ok(Link { _fd: fd })
    }

    /// Attaches a program of [`ProgramKind::Ingress`] behind those that the interface has; else as
    /// [`Program::attach_xdp`].
    ///
    /// # Errors
    /// The kernel's answer: `EINVAL` before Linux 6.6.
    pub fn attach_ingress(&self, ifindex: u32) -> Result<Link, BpfError> {
        let mut attribute = LinkCreate {
            prog_fd: self.fd.as_raw_fd() as u32,
            target_ifindex: ifindex,
            attach_type: ATTACH_TCX_INGRESS,
            flags: 0,
        };
        let fd = owned(bpf(cmd::LINK_CREATE, "link create", &mut attribute)?);
        Ok(Link { _fd: fd })
    }
}

impl Program {
    /// Returns how often the program ran and what that took, ns, while `kernel.bpf_stats_enabled` was set
    /// (`struct bpf_prog_info`: `run_time_ns` at byte 192, `run_cnt` at 200).
    ///
    /// # Errors
    /// The kernel's answer.
    pub fn runs(&self) -> Result<(u64, u64), BpfError> {
        let block = info::<208>(&self.fd)?;
        let number =
            |at: usize| u64::from(u32_at(&block, at)) | u64::from(u32_at(&block, at + 4)) << 32;
        Ok((number(200), number(192)))
    }
}

impl AsFd for Program {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// An XDP program that sees the frames of a port before another one of the port: it gives those that it leaves alone
/// to the program at `key` of its array, by a tail call.
#[derive(Clone, Debug)]
pub struct Front {
    /// The program that is attached.
    pub program: Arc<Program>,
    /// The array ([`MapKind::ProgramArray`]) that it calls into.
    pub next: Arc<Map>,
    /// The port's entry there.
    pub key: u32,
}

impl Front {
    /// Puts `next` behind this program, as long as the result lives.
    ///
    /// # Errors
    /// The kernel's answer.
    pub fn before(&self, next: &Program) -> Result<FrontEntry, BpfError> {
        self.next.set_u32(self.key, next.fd.as_raw_fd() as u32)?;
        Ok(FrontEntry(self.clone()))
    }
}

impl PartialEq for Front {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.program, &other.program)
            && Arc::ptr_eq(&self.next, &other.next)
            && self.key == other.key
    }
}

impl Eq for Front {}

/// A port's program behind a [`Front`]; dropping it takes the program out.
#[derive(Debug)]
pub struct FrontEntry(Front);

impl Drop for FrontEntry {
    fn drop(&mut self) {
        // Without an entry the kernel's stack gets the frames.
        let _ = self.0.next.remove(self.0.key);
    }
}

/// Where in the kernel an XDP program runs (`XDP_FLAGS_*_MODE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachMode {
    /// After the kernel has made an skb; works with every driver.
    Generic = 1 << 1,
    /// In the driver, before any skb.
    Native = 1 << 2,
}

#[repr(C)]
struct LinkCreate {
    prog_fd: u32,
    target_ifindex: u32,
    attach_type: u32,
    flags: u32,
}

/// An attachment; dropping it detaches the program.
#[derive(Debug)]
pub struct Link {
    _fd: OwnedFd,
}

#[repr(C)]
#[derive(Default)]
struct GetId {
    id: u32,
    next_id: u32,
    open_flags: u32,
}

#[repr(C)]
struct GetInfo {
    bpf_fd: u32,
    info_len: u32,
    info: u64,
}

/// Reads the start of an object's information block.
fn info<const N: usize>(fd: &OwnedFd) -> Result<[u8; N], BpfError> {
    let mut block = [0u8; N];
    let mut attribute = GetInfo {
        bpf_fd: fd.as_raw_fd() as u32,
        info_len: N as u32,
        info: block.as_mut_ptr() as u64,
    };
    bpf(cmd::OBJ_GET_INFO_BY_FD, "object info", &mut attribute)?;
    Ok(block)
}

fn u32_at(block: &[u8], offset: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&block[offset..offset + 4]);
    u32::from_ne_bytes(bytes)
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// Returns the name of a loaded program (`struct bpf_prog_info`: `name` at byte 64).
///
/// # Errors
/// The kernel's answer: `ENOENT` if there is no such program.
pub fn program_name(id: u32) -> Result<String, BpfError> {
    let mut attribute = GetId {
        id,
        ..GetId::default()
    };
    let fd = owned(bpf(
        cmd::PROG_GET_FD_BY_ID,
        "program by id",
        &mut attribute,
    )?);
    let block = info::<80>(&fd)?;
    Ok(text(&block[64..80]))
}

/// Tells whether the program on an interface is held there by a BPF link (`struct bpf_link_info`:
/// `type` at 0, `prog_id` at 8, `xdp.ifindex` at 16), and not by netlink.
///
/// # Errors
/// The kernel's answer.
pub fn is_link_attached(ifindex: u32, program_id: u32) -> Result<bool, BpfError> {
    let mut id = 0;
    loop {
        let mut next = GetId {
            id,
            ..GetId::default()
        };
        match bpf(cmd::LINK_GET_NEXT_ID, "next link", &mut next) {
            Ok(_) => id = next.next_id,
            Err(error) if error.errno() == Some(libc::ENOENT) => return Ok(false),
            Err(error) => return Err(error),
        }
        let mut attribute = GetId {
            id,
            ..GetId::default()
        };
        // A link may go between the two calls.
        let Ok(fd) = bpf(cmd::LINK_GET_FD_BY_ID, "link by id", &mut attribute) else {
            continue;
        };
        let block = info::<64>(&owned(fd))?;
        let is_it = u32_at(&block, 0) == LINK_TYPE_XDP
            && u32_at(&block, 8) == program_id
            && u32_at(&block, 16) == ifindex;
        if is_it {
            return Ok(true);
        }
    }
}
