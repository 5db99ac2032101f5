//! One AF_XDP socket: its options, its binding, its system calls.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use super::ring::RingKind;
use crate::pool::Region;

/// Kernel 6.17: most skbs that one send call makes (`XDP_MAX_TX_SKB_BUDGET`).
const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;
const SO_PREFER_BUSY_POLL: libc::c_int = 69;
const SO_BUSY_POLL_BUDGET: libc::c_int = 70;

/// How long a queue may stay taken by a socket that is being closed: the kernel gives a umem up some
/// 10 to 20 ms after its last socket.
const BUSY_LIMIT: Duration = Duration::from_millis(200);
const BUSY_PAUSE: Duration = Duration::from_millis(2);

/// A socket.
#[derive(Debug)]
pub(super) struct Socket {
    fd: OwnedFd,
}

/// What became of a call to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kick {
    /// The kernel went through the ring, or will.
    Done,
    /// The kernel stopped before the end of the ring: budget, send buffer, or a full queue behind it.
    Again,
    /// The kernel dropped the frame at the ring's head; the rest is to be tried again.
    Dropped,
    /// The interface is down or gone: nothing moves until it is back.
    Down,
}

impl Socket {
    /// Makes a socket in the network namespace of the calling thread.
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: makes a new socket; no memory is passed.
        let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and nobody else's.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd })
    }

    fn set<T>(&self, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
        // SAFETY: passes an initialised value of the option's type, with its size.
        let result = unsafe {
            libc::setsockopt(
                self.fd.as_raw_fd(),
                level,
                option,
                core::ptr::from_ref(value).cast(),
                size_of::<T>() as libc::socklen_t,
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    fn get<T>(&self, level: libc::c_int, option: libc::c_int, mut value: T) -> io::Result<T> {
        let mut length = size_of::<T>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes of plain numbers over `value`.
        let result = unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                level,
                option,
                core::ptr::from_mut(&mut value).cast(),
                &raw mut length,
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(value)
    }

    /// Registers a region as this socket's umem.
    pub(super) fn register(&self, region: &Region) -> io::Result<()> {
        let umem = libc::xdp_umem_reg {
            addr: region.base().as_ptr() as u64,
            len: u64::from(region.frames()) * u64::from(region.frame_bytes()),
            chunk_size: region.frame_bytes(),
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        self.set(libc::SOL_XDP, libc::XDP_UMEM_REG, &umem)
    }

    /// Sets the size of a ring, entries.
    pub(super) fn set_ring(&self, kind: RingKind, entries: u32) -> io::Result<()> {
        let option = match kind {
            RingKind::Rx => libc::XDP_RX_RING,
            RingKind::Tx => libc::XDP_TX_RING,
            RingKind::Fill => libc::XDP_UMEM_FILL_RING,
            RingKind::Completion => libc::XDP_UMEM_COMPLETION_RING,
        };
        self.set(libc::SOL_XDP, option, &entries)
    }

    /// Returns where the parts of the rings are.
    pub(super) fn ring_offsets(&self) -> io::Result<libc::xdp_mmap_offsets> {
        const NONE: libc::xdp_ring_offset = libc::xdp_ring_offset {
            producer: 0,
            consumer: 0,
            desc: 0,
            flags: 0,
        };
        let offsets = libc::xdp_mmap_offsets {
            rx: NONE,
            tx: NONE,
            fr: NONE,
            cr: NONE,
        };
        self.get(libc::SOL_XDP, libc::XDP_MMAP_OFFSETS, offsets)
    }

    /// Lets one call send up to `pkts` frames, where the kernel knows that option; and lets as many be
    /// on their way as a ring holds.
    pub(super) fn raise_send_limits(&self, pkts: u32) {
        // Both are improvements only: without them the driver calls more often.
        let _ = self.set(libc::SOL_XDP, XDP_MAX_TX_SKB_BUDGET, &pkts);
        let bytes = pkts.saturating_mul(SKB_BYTES).min(1 << 30) as libc::c_int;
        let _ = self.set(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &bytes);
    }

    /// Binds to a queue; `flags` as of `sockaddr_xdp`. Waits a while for a queue that is being given up.
    pub(super) fn bind(
        &self,
        ifindex: u32,
        queue: u32,
        flags: u16,
        shared_with: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: flags,
            sxdp_ifindex: ifindex,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: shared_with.map_or(0, |fd| fd.as_raw_fd() as u32),
        };
        retry_busy(&[libc::EBUSY], || {
            // SAFETY: passes an initialised address of the family's type, with its size.
            let result = unsafe {
                libc::bind(
                    self.fd.as_raw_fd(),
                    core::ptr::from_ref(&address).cast(),
                    size_of::<libc::sockaddr_xdp>() as libc::socklen_t,
                )
            };
            if result < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        })
    }

    /// Returns the id of the NAPI context that feeds the queue; 0 if the kernel does not know it, and
    /// then busy polling has no effect.
    pub(super) fn napi_id(&self) -> u32 {
        self.get(libc::SOL_SOCKET, libc::SO_INCOMING_NAPI_ID, 0u32)
            .unwrap_or(0)
    }

    /// Asks for busy polling of up to `budget_us` microseconds and 64 frames a call.
    pub(super) fn prefer_busy_poll(&self, budget_us: u32) -> io::Result<()> {
        let budget_us = budget_us as libc::c_int;
        self.set(libc::SOL_SOCKET, SO_PREFER_BUSY_POLL, &1)?;
        self.set(libc::SOL_SOCKET, libc::SO_BUSY_POLL, &budget_us)?;
        self.set(libc::SOL_SOCKET, SO_BUSY_POLL_BUDGET, &64)
    }

    /// Returns the kernel's counters of this socket.
    pub(super) fn statistics(&self) -> io::Result<libc::xdp_statistics> {
        let zero = libc::xdp_statistics {
            rx_dropped: 0,
            rx_invalid_descs: 0,
            tx_invalid_descs: 0,
            rx_ring_full: 0,
            rx_fill_ring_empty_descs: 0,
            tx_ring_empty_descs: 0,
        };
        self.get(libc::SOL_XDP, libc::XDP_STATISTICS, zero)
    }

    /// Makes the kernel go on sending from the TX ring.
    pub(super) fn kick_tx(&self) -> Kick {
        // SAFETY: an empty message: no memory is passed.
        let result = unsafe {
            libc::sendto(
                self.fd.as_raw_fd(),
                core::ptr::null(),
                0,
                libc::MSG_DONTWAIT,
                core::ptr::null(),
                0,
            )
        };
        if result >= 0 {
            return Kick::Done;
        }
        match io::Error::last_os_error().raw_os_error() {
            Some(libc::EBUSY) => Kick::Dropped,
            Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV | libc::EBADF) => Kick::Down,
            _ => Kick::Again,
        }
    }

    /// Makes the kernel go on receiving into frames of the fill ring.
    pub(super) fn kick_rx(&self) {
        // SAFETY: an empty message: no memory is passed.
        let _ = unsafe {
            libc::recvfrom(
                self.fd.as_raw_fd(),
                core::ptr::null_mut(),
                0,
                libc::MSG_DONTWAIT,
                core::ptr::null_mut(),
                core::ptr::null_mut(),
            )
        };
    }
}

/// What one frame on its way counts against a socket's send buffer: skb, its data and headroom, bytes.
const SKB_BYTES: u32 = 2560;

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Repeats a call for a while as long as it fails with one of these errors.
pub(super) fn retry_busy<T, E: Errno>(
    busy: &[i32],
    mut call: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    let start = Instant::now();
    loop {
        match call() {
            Err(error)
                if error.errno().is_some_and(|errno| busy.contains(&errno))
                    && start.elapsed() < BUSY_LIMIT =>
            {
                std::thread::sleep(BUSY_PAUSE);
            }
            result => return result,
        }
    }
}

/// An error that may have the kernel's error number.
pub(super) trait Errno {
    /// Returns it.
    fn errno(&self) -> Option<i32>;
}

impl Errno for io::Error {
    fn errno(&self) -> Option<i32> {
        self.raw_os_error()
    }
}

impl Errno for crate::bpf::BpfError {
    fn errno(&self) -> Option<i32> {
        Self::errno(self)
    }
}
