//! A packet socket and the rings that it shares with the kernel (Linux `packet(7)`, `packet_mmap.rst`).

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::bpf::Program;

/// Every protocol, network order, as `sll_protocol` wants it.
const ALL_PROTOCOLS: u16 = (libc::ETH_P_ALL as u16).to_be();

/// Where a frame starts in a slot of a transmit ring: behind the aligned `tpacket2_hdr`.
const TX_DATA_OFFSET: usize = libc::TPACKET2_HDRLEN - size_of::<libc::sockaddr_ll>();

/// A raw packet socket.
#[derive(Debug)]
pub(super) struct PacketSocket(OwnedFd);

impl PacketSocket {
    /// Opens a socket that receives nothing yet.
    pub(super) fn new() -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: `socket` takes no pointers.
        let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and owned by nobody else.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Sets an option of the packet level.
    pub(super) fn set<T: Copy>(&self, option: libc::c_int, value: &T) -> io::Result<()> {
        self.set_at(libc::SOL_PACKET, option, value)
    }

    /// Sets an option of any level.
    pub(super) fn set_at<T: Copy>(
        &self,
        level: libc::c_int,
        option: libc::c_int,
        value: &T,
    ) -> io::Result<()> {
        // SAFETY: `value` is readable for its own size.
        let result = unsafe {
            libc::setsockopt(
                self.0.as_raw_fd(),
                level,
                option,
                core::ptr::from_ref(value).cast(),
                size_of::<T>() as libc::socklen_t,
            )
        };
        check(result)
    }

    /// Reads an integer option of the packet level.
    pub(super) fn get(&self, option: libc::c_int) -> io::Result<libc::c_int> {
        let mut value = [0 as libc::c_int; 1];
        self.get_ints(option, &mut value)?;
        Ok(value[0])
    }

    /// Reads an option of the packet level that consists of integers.
    fn get_ints(&self, option: libc::c_int, value: &mut [libc::c_int]) -> io::Result<()> {
        self.get_ints_at(libc::SOL_PACKET, option, value)
    }

    /// Reads an option of any level that consists of integers.
    fn get_ints_at(
        &self,
        level: libc::c_int,
        option: libc::c_int,
        value: &mut [libc::c_int],
    ) -> io::Result<()> {
        let mut len = size_of_val(value) as libc::socklen_t;
        // SAFETY: `value` is writable for `len` bytes, and any bytes are integers.
        let result = unsafe {
            libc::getsockopt(
                self.0.as_raw_fd(),
                level,
                option,
                value.as_mut_ptr().cast(),
                &raw mut len,
            )
        };
        check(result)
    }

    /// Forgets the socket's error, if it has one.
    pub(super) fn take_error(&self) {
        let mut error = [0];
        // What the error was does not matter: receiving and sending tell.
        let _ = self.get_ints_at(libc::SOL_SOCKET, libc::SO_ERROR, &mut error);
    }

    /// Returns how many frames the kernel dropped for want of a slot since the last call.
    pub(super) fn drops(&self) -> u64 {
        // `struct tpacket_stats`: received, dropped; reading clears them.
        let mut value = [0; 2];
        match self.get_ints(libc::PACKET_STATISTICS, &mut value) {
            Ok(()) => u64::from(value[1] as u32),
            Err(_) => 0,
        }
    }

    /// Makes the socket discard (or stop discarding) everything it receives.
    pub(super) fn discard(&self, discard: bool) -> io::Result<()> {
        if !discard {
            return self.set_at(libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0_i32);
        }
        // One instruction: return 0 bytes.
        let mut program = [libc::sock_filter {
            code: (libc::BPF_RET | libc::BPF_K) as u16,
            jt: 0,
            jf: 0,
            k: 0,
        }];
        let filter = libc::sock_fprog {
            len: 1,
            filter: program.as_mut_ptr(),
        };
        self.set_at(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter)
    }

    /// Receives what a program keeps; it takes the place of the filter before.
    pub(super) fn filter(&self, program: &Program) -> io::Result<()> {
        let fd = program.as_fd().as_raw_fd();
        self.set_at(libc::SOL_SOCKET, libc::SO_ATTACH_BPF, &fd)
    }

    /// Binds to an interface, to receive every protocol or (for sending only) none.
    pub(super) fn bind(&self, interface: u32, receive: bool) -> io::Result<()> {
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: if receive { ALL_PROTOCOLS } else { 0 },
            sll_ifindex: interface as libc::c_int,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        // SAFETY: `address` is a complete `sockaddr_ll`.
        let result = unsafe {
            libc::bind(
                self.0.as_raw_fd(),
                (&raw const address).cast(),
                size_of_val(&address) as libc::socklen_t,
            )
        };
        check(result)
    }

    /// Makes a ring and maps it. `option` is `PACKET_RX_RING` or `PACKET_TX_RING`.
    pub(super) fn ring(
        &self,
        option: libc::c_int,
        slot_bytes: u32,
        slots: u32,
    ) -> io::Result<Ring> {
        // A block holds whole slots, so that slot `i` is at `i * slot_bytes`: the kernel maps the blocks one
        // after the other.
        let block_bytes = slot_bytes.max(BLOCK_BYTES);
        let per_block = block_bytes / slot_bytes;
        let blocks = slots.div_ceil(per_block).max(1);
        let request = libc::tpacket_req {
            tp_block_size: block_bytes,
            tp_block_nr: blocks,
            tp_frame_size: slot_bytes,
            tp_frame_nr: blocks * per_block,
        };
        self.set(option, &request)?;
        let bytes = block_bytes as usize * blocks as usize;
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let address = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                self.0.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Ring {
            base: NonNull::new(address.cast()).ok_or(io::ErrorKind::AddrInUse)?,
            bytes,
            slot_bytes: slot_bytes as usize,
            slots: (blocks * per_block) as usize,
        })
    }

    /// Receives one frame that did not fit its slot; returns its full length.
    pub(super) fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        // SAFETY: `buffer` is writable for its length.
        let n = unsafe {
            libc::recv(
                self.0.as_raw_fd(),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                libc::MSG_DONTWAIT | libc::MSG_TRUNC,
            )
        };
        usize::try_from(n).map_err(|_| io::Error::last_os_error())
    }

    /// Tells the kernel to send what the transmit ring holds.
    pub(super) fn kick(&self) -> io::Result<()> {
        // SAFETY: no buffer and no address are passed.
        let n = unsafe {
            libc::sendto(
                self.0.as_raw_fd(),
                core::ptr::null(),
                0,
                libc::MSG_DONTWAIT,
                core::ptr::null(),
                0,
            )
        };
        if n < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Bytes that the kernel is asked to allocate in one piece; a multiple of every page size up to 64 KiB.
const BLOCK_BYTES: u32 = 64 << 10;

/// A mapped ring of slots of one size, each with a `tpacket2_hdr` at its start.
#[derive(Debug)]
pub(super) struct Ring {
    base: NonNull<u8>,
    bytes: usize,
    slot_bytes: usize,
    slots: usize,
}

// SAFETY: the mapping has no thread affinity, and only the owner of the `Ring` uses it.
unsafe impl Send for Ring {}

/// What the kernel wrote about a received frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct RxHeader {
    /// `TP_STATUS_*` bits.
    pub(super) status: u32,
    /// Length of the frame.
    pub(super) len: usize,
    /// How much of it is in the slot.
    pub(super) captured: usize,
    /// Where in the slot it starts.
    pub(super) offset: usize,
    /// When it was received, nanoseconds of the realtime clock.
    pub(super) timestamp_ns: u64,
    /// The VLAN tag that the kernel took out.
    pub(super) tag: Option<(u16, u16)>,
}

impl Ring {
    /// Returns the number of slots.
    pub(super) fn slots(&self) -> usize {
        self.slots
    }

    /// Returns the index of the slot after.
    #[inline]
    pub(super) fn after(&self, index: usize) -> usize {
        if index + 1 < self.slots { index + 1 } else { 0 }
    }

    /// Returns the index of the slot before.
    #[inline]
    pub(super) fn before(&self, index: usize) -> usize {
        index.checked_sub(1).unwrap_or(self.slots - 1)
    }

    /// Returns how many bytes of a frame a transmit slot holds.
    pub(super) fn tx_room(&self) -> usize {
        self.slot_bytes - TX_DATA_OFFSET
    }

    /// Returns the address of a slot.
    #[inline]
    fn slot(&self, index: usize) -> NonNull<u8> {
        assert!(index < self.slots, "slot {index} of {}", self.slots);
        // SAFETY: by the assertion the slot is inside the mapping.
        unsafe { self.base.add(index * self.slot_bytes) }
    }

    #[inline]
    fn status_word(&self, index: usize) -> &AtomicU32 {
        // SAFETY: a slot starts with `tp_status`, 4-byte aligned (slots are at multiples of 16); the kernel
        // and we access it as one word only.
        unsafe { self.slot(index).cast::<AtomicU32>().as_ref() }
    }

    /// Returns a slot's status.
    #[inline]
    pub(super) fn status(&self, index: usize) -> u32 {
        // Acquire: pairs with the kernel's barrier before it hands a slot over.
        self.status_word(index).load(Ordering::Acquire)
    }

    /// Hands a slot to the kernel.
    #[inline]
    pub(super) fn hand_over(&mut self, index: usize, status: u32) {
        // Release: the kernel sees what we wrote, and writes only after what we read.
        self.status_word(index).store(status, Ordering::Release);
    }

    /// Reads the header of a received frame; `None` if the slot is the kernel's.
    #[inline]
    pub(super) fn received(&self, index: usize) -> Option<RxHeader> {
        let status = self.status(index);
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: the slot is ours by its status, and starts with a `tpacket2_hdr`.
        let header = unsafe { self.slot(index).cast::<libc::tpacket2_hdr>().read() };
        let tag = (status & libc::TP_STATUS_VLAN_VALID != 0).then(|| {
            let tpid = if status & libc::TP_STATUS_VLAN_TPID_VALID != 0 {
                header.tp_vlan_tpid
            } else {
                0x8100
            };
            (tpid, header.tp_vlan_tci)
        });
        Some(RxHeader {
            status,
            len: header.tp_len as usize,
            captured: header.tp_snaplen as usize,
            offset: usize::from(header.tp_mac),
            timestamp_ns: u64::from(header.tp_sec) * 1_000_000_000 + u64::from(header.tp_nsec),
            tag,
        })
    }

    /// Returns bytes of a slot that is ours; `None` if they are not all inside it.
    #[inline]
    pub(super) fn bytes(&self, index: usize, offset: usize, len: usize) -> Option<&[u8]> {
        if offset > self.slot_bytes || len > self.slot_bytes - offset {
            return None;
        }
        // SAFETY: `offset` is inside the slot.
        let start = unsafe { self.slot(index).add(offset) };
        // SAFETY: `len` bytes from there are, too; the mapping is initialised by the kernel, which does not
        // write to a slot that is ours, and handing it over takes `&mut self`.
        Some(unsafe { core::slice::from_raw_parts(start.as_ptr(), len) })
    }

    /// Writes a frame, in two parts, to a free transmit slot and gives it to the kernel; tells whether it
    /// fits.
    #[inline]
    pub(super) fn send(&mut self, index: usize, head: &[u8], body: &[u8]) -> bool {
        let len = head.len() + body.len();
        if len > self.tx_room() {
            return false;
        }
        let slot = self.slot(index);
        // SAFETY: inside the slot by `tx_room`.
        let start = unsafe { slot.add(TX_DATA_OFFSET) };
        // SAFETY: `len` bytes from there are inside the slot, which is ours (the caller saw it available).
        let to = unsafe { core::slice::from_raw_parts_mut(start.as_ptr(), len) };
        let (to_head, to_body) = to.split_at_mut(head.len());
        to_head.copy_from_slice(head);
        to_body.copy_from_slice(body);
        let tp_len = core::mem::offset_of!(libc::tpacket2_hdr, tp_len);
        // SAFETY: the slot starts with a `tpacket2_hdr`, so that the field is inside it.
        let field = unsafe { slot.add(tp_len) }.cast::<u32>();
        // SAFETY: aligned, since slots are at multiples of 16; the slot is ours.
        unsafe { field.write(len as u32) };
        self.hand_over(index, libc::TP_STATUS_SEND_REQUEST);
        true
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that `PacketSocket::ring` made, and nothing borrows from it.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
