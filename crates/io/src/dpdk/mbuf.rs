//! The fields of an `rte_mbuf` that pass between a driver of DPDK and a [`Frame`], read and written here rather than
//! through the shim: a call for each frame would cost more than the fields.

use core::ptr::NonNull;

use crate::frame::{Frame, FrameFlags};
use crate::ids::PortId;

/// Bytes of an `rte_mbuf`, behind which a frame's buffer is.
const MBUF_BYTES: usize = 128;
/// Marks an mbuf whose slot is not with DPDK: `TG_OUT` in shim.c.
const OUT: u16 = 0xa5a5;
/// The card has looked at the transport checksum: `RTE_MBUF_F_RX_L4_CKSUM_MASK`.
const RX_L4_CHECKSUM: u64 = 1 << 3 | 1 << 8;
/// And it is right: `RTE_MBUF_F_RX_L4_CKSUM_GOOD`.
const RX_L4_GOOD: u64 = 1 << 8;

/// The first cache line of an `rte_mbuf`; shim.c refuses to compile where the fields lie elsewhere.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Mbuf {
    buf_addr: *mut u8,
    buf_iova: u64,
    data_off: u16,
    refcnt: u16,
    nb_segs: u16,
    port: u16,
    pub(super) ol_flags: u64,
    packet_type: u32,
    pkt_len: u32,
    data_len: u16,
    vlan_tci: u16,
    hash: [u32; 2],
    vlan_tci_outer: u16,
    buf_len: u16,
    pool: *mut core::ffi::c_void,
}

const _: () = assert!(size_of::<Mbuf>() == 64);

/// Makes the handle of a received frame whose buffer has `capacity` bytes; `None` if it is not in one piece in its
/// slot.
///
/// # Safety
/// A driver over mempools of ours gave `mbuf` just now, and nobody else has it.
#[inline]
pub(super) unsafe fn received(
    mut mbuf: NonNull<Mbuf>,
    capacity: u16,
    port: PortId,
) -> Option<Frame> {
    // SAFETY: by this function's contract.
    let fields = unsafe { mbuf.as_mut() };
    // SAFETY: the buffer follows the mbuf in the same slot.
    let slot = unsafe { mbuf.cast::<u8>().add(MBUF_BYTES) };
    let (offset, len) = (fields.data_off, fields.data_len);
    let fits = u32::from(offset) + u32::from(len) <= u32::from(capacity);
    if fields.nb_segs != 1 || fields.buf_addr != slot.as_ptr() || !fits {
        return None;
    }
    fields.vlan_tci_outer = OUT;
    let good = fields.ol_flags & RX_L4_CHECKSUM == RX_L4_GOOD;
    // SAFETY: the slot's `Frame` was consumed when it was given to the drivers; the range is in it.
    let mut frame = unsafe { Frame::received(slot, capacity, offset, len, port) };
    if good {
        frame.flags |= FrameFlags::CHECKSUM_GOOD;
    }
    Some(frame)
}

/// Writes what a driver needs to know to send the frame, and returns its mbuf.
///
/// # Safety
/// The frame is a slot of a region that has mempools.
#[inline]
pub(super) unsafe fn describe(frame: &Frame) -> NonNull<Mbuf> {
    // SAFETY: the mbuf is in front of the buffer, in the same slot.
    let mut mbuf = unsafe { frame.slot().sub(MBUF_BYTES) }.cast::<Mbuf>();
    // SAFETY: who has the frame has its mbuf, which the mempool has initialised.
    let fields = unsafe { mbuf.as_mut() };
    fields.data_off = frame.offset() as u16;
    fields.data_len = frame.len() as u16;
    fields.pkt_len = frame.len() as u32;
    fields.ol_flags = 0;
    fields.vlan_tci_outer = 0;
    mbuf
}

/// Takes the mbuf of a frame back that no driver took.
///
/// # Safety
/// [`describe`] returned it, and no driver has it.
#[inline]
pub(super) unsafe fn keep(mut mbuf: NonNull<Mbuf>) {
    // SAFETY: by this function's contract.
    let fields = unsafe { mbuf.as_mut() };
    fields.vlan_tci_outer = OUT;
}
