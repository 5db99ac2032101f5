//! What processes that share DPDK agree on, and why they do not share it.

use std::path::PathBuf;

use tables::segment::SegmentError;

/// Frames and workers of the processes that share DPDK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedFrames {
    /// Frames that each worker has, and each guest.
    pub frames_per_worker: u32,
    /// Bytes of a frame's slot, a power of two from 2048 to 32768.
    pub frame_bytes: u32,
    /// Workers of the primary.
    pub workers: u16,
    /// Guests that may join.
    pub guests: u16,
}

/// Why DPDK is not shared.
#[derive(Debug, thiserror::Error)]
pub enum SharingError {
    /// DPDK runs already, with others or with none.
    #[error(
        "DPDK runs already in this process (say whom it is shared with before a port is opened)"
    )]
    Late,
    /// The program has no DPDK in it.
    #[error(
        "a program with DPDK in it is needed (`cargo build --release --features dpdk`, with libdpdk-dev)"
    )]
    Absent,
    /// DPDK does not start or refuses.
    #[error("{0}")]
    Dpdk(String),
    /// The sizes make no sense.
    #[error(
        "frames need slots of 2048 to 32768 bytes, a power of two, and at least one worker and one frame; got {0:?}"
    )]
    Geometry(SharedFrames),
    /// There are fewer guests.
    #[error(
        "the primary process takes {guests} guests, and this would be number {guest} (the first is 0)"
    )]
    NoGuest {
        /// The number asked for.
        guest: u16,
        /// How many there may be.
        guests: u64,
    },
    /// Another process is this guest.
    #[error("another process is guest {0} (choose another number)")]
    Taken(u16),
    /// Guests of an earlier primary live.
    #[error(
        "guests of an earlier primary process of `{0}` still run (end them first: their memory would be wiped)"
    )]
    Guests(String),
    /// A file beside DPDK's own cannot be made.
    #[error("cannot open {}: {source}", path.display())]
    Lock {
        /// Which.
        path: PathBuf,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// The memory is not what it should be.
    #[error(transparent)]
    Segment(#[from] SegmentError),
}
