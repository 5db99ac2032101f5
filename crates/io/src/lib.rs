//! Frame pool, batches and the packet drivers of the Tidegate data plane.
//!
//! A worker owns a [`Pool`] of frames and one [`Queue`] a port. It receives a burst into a [`Batch`],
//! works on it, and sends it; a [`Frame`] has exactly one owner at any moment. [`port::open`] opens the
//! queues of a port for all workers.

pub mod af_packet;
pub mod af_xdp;
#[expect(
    unsafe_code,
    reason = "moves frames out of slots that it does not clear"
)]
pub mod batch;
pub mod bpf;
#[expect(unsafe_code, reason = "asks the kernel about the calling thread")]
pub mod cpu;
#[expect(unsafe_code, reason = "makes an eventfd")]
pub mod doorbell;
pub mod dpdk;
#[expect(unsafe_code, reason = "puts ethtool requests to the kernel")]
pub mod ethtool;
#[expect(
    unsafe_code,
    reason = "frames are raw memory that one owner at a time reads and writes"
)]
pub mod frame;
pub mod ids;
#[expect(unsafe_code, reason = "puts interface requests to the kernel")]
pub mod interface;
pub mod mem;
pub mod null;
pub mod offload;
pub mod pcap;
pub mod pcapng;
#[expect(
    unsafe_code,
    reason = "maps the memory that frames live in and hands out its slots"
)]
pub mod pool;
pub mod port;
pub mod queue;
pub mod raw;
mod segment;
pub mod tap;
#[expect(unsafe_code, reason = "ppoll")]
pub mod wait;

pub use batch::{BATCH_MAX, Batch, Drain};
pub use doorbell::Doorbell;
pub use frame::{CompactFrame, Frame, FrameFlags};
pub use ids::{FrameIdx, PortId, QueueId, WorkerId};
pub use interface::{Interface, Link, MacAddress};
pub use pool::{HugePages, PageKind, Pool, Region, RegionError};
pub use queue::{Arm, Capabilities, Interrupt, Offloads, Queue, QueueStats};
