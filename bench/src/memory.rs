//! In-memory forwarders of one core, for the programs that compare them: each forwards frames for a given
//! time and tells how many.

use std::hint::black_box;
use std::time::{Duration, Instant};

use io::port::{self, DriverSpec, PortSpec};
use io::{BATCH_MAX, Batch, HugePages, Pool, PortId, Queue, mem, null};

/// Bytes of a frame without FCS: 64 on the wire.
pub const FRAME_BYTES: usize = 60;
/// Bytes of a slot.
const SLOT_BYTES: usize = 2048;

/// Something that forwards frames for a given time and returns how many.
pub trait Forwarder {
    /// Forwards until `until`; returns how many frames.
    fn run(&mut self, until: Instant) -> u64;
}

/// Calls `burst` in blocks of a thousand between two looks at the clock.
fn clocked(until: Instant, mut burst: impl FnMut() -> usize) -> u64 {
    let mut frames = 0;
    while Instant::now() < until {
        for _ in 0..256 {
            frames += burst() as u64;
        }
    }
    frames
}

fn swap_macs(bytes: &mut [u8]) {
    if let Some((destination, rest)) = bytes.split_first_chunk_mut::<6>()
        && let Some(source) = rest.first_chunk_mut::<6>()
    {
        core::mem::swap(destination, source);
    }
}

/// What is done with a batch before it is sent.
pub type Work = Box<dyn FnMut(&Batch) + Send>;

/// Two queues and what is done in between.
pub struct Queues {
    rx: Box<dyn Queue>,
    tx: Option<Box<dyn Queue>>,
    pool: Pool,
    batch: Batch,
    swap: bool,
    work: Option<Work>,
}

impl core::fmt::Debug for Queues {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Queues")
            .field("rx", &self.rx)
            .field("tx", &self.tx)
            .finish_non_exhaustive()
    }
}

impl Forwarder for Queues {
    fn run(&mut self, until: Instant) -> u64 {
        clocked(until, || {
            self.rx.rx(&mut self.pool, &mut self.batch);
            if let Some(work) = &mut self.work {
                work(&self.batch);
            }
            if self.swap {
                for frame in self.batch.iter_mut() {
                    swap_macs(frame.data_mut());
                }
            }
            let tx = self.tx.as_mut().unwrap_or(&mut self.rx);
            let sent = tx.tx(&mut self.pool, &mut self.batch);
            self.pool.free_batch(&mut self.batch);
            sent
        })
    }
}

impl Drop for Queues {
    fn drop(&mut self) {
        self.rx.close(&mut self.pool);
        if let Some(tx) = &mut self.tx {
            tx.close(&mut self.pool);
        }
    }
}

fn open(pool: &Pool, id: u16, driver: DriverSpec) -> Box<dyn Queue> {
    let spec = PortSpec::new(PortId(id), "bench", driver);
    port::open(&spec, pool.region(), 1)
        .map(|mut port| port.queues.remove(0))
        .expect("an in-memory port opens")
}

impl Queues {
    /// Returns the kind of pages that the frames live in.
    pub fn pages(&self) -> String {
        format!("{:?}", self.pool.region().pages()).to_lowercase()
    }
}

fn new_pool(frames: u32) -> Pool {
    Pool::new(frames, SLOT_BYTES as u32, HugePages::Auto).expect("memory for frames")
}

/// All frames circle: what is sent on one end of a link is received on the other.
pub fn mem_forward(frames: u32) -> Queues {
    let mut pool = new_pool(frames);
    let (left, right) = mem::link(mem::LinkSpec {
        depth: frames as usize,
        ..mem::LinkSpec::default()
    });
    let rx = open(&pool, 0, DriverSpec::Mem(left));
    let mut tx = open(&pool, 1, DriverSpec::Mem(right));
    let mut batch = Batch::new();
    while pool.alloc_batch(BATCH_MAX, &mut batch) > 0 {
        for frame in batch.iter_mut() {
            frame.set_len(FRAME_BYTES);
        }
        tx.tx(&mut pool, &mut batch);
    }
    Queues {
        rx,
        tx: Some(tx),
        pool,
        batch,
        swap: true,
        work: None,
    }
}

/// The same between two devices of DPDK, e.g. `net_null_a` and `net_null_b`.
#[cfg(feature = "dpdk")]
pub fn dpdk_forward(devices: [&str; 2], frames: u32, swap: bool) -> Queues {
    let pool = new_pool(frames);
    let [rx, tx] = [(0, devices[0]), (1, devices[1])].map(|(id, device)| {
        let spec = io::dpdk::DpdkSpec {
            descriptors: 512,
            ..io::dpdk::DpdkSpec::new(device)
        };
        open(&pool, id, DriverSpec::Dpdk(spec))
    });
    Queues {
        rx,
        tx: Some(tx),
        pool,
        batch: Batch::new(),
        swap,
        work: None,
    }
}

/// Frames come from nowhere and go nowhere: what is between two ports is all that costs.
pub fn null_forward(frames: u32, burst: usize, copy: bool, swap: bool) -> Queues {
    let pool = new_pool(frames);
    let spec = null::NullSpec {
        templates: vec![vec![0; FRAME_BYTES]],
        copy,
        burst,
    };
    Queues {
        rx: open(&pool, 0, DriverSpec::Null(spec)),
        tx: None,
        pool,
        batch: Batch::new(),
        swap,
        work: None,
    }
}

/// Frames that are copies of `templates` come from nowhere, are looked at by `work`, change their MAC addresses and go
/// nowhere.
pub fn working_forward(frames: u32, templates: Vec<Vec<u8>>, work: Work) -> Queues {
    let pool = new_pool(frames);
    let spec = null::NullSpec {
        templates,
        copy: true,
        burst: BATCH_MAX,
    };
    Queues {
        rx: open(&pool, 0, DriverSpec::Null(spec)),
        tx: None,
        pool,
        batch: Batch::new(),
        swap: true,
        work: Some(work),
    }
}

/// The same circle on bare indices.
#[derive(Debug)]
pub struct Limit {
    slots: Vec<[u8; SLOT_BYTES]>,
    ring: Vec<u32>,
    head: usize,
    burst: usize,
}

impl Limit {
    /// Makes a circle of `frames` slots that `burst` frames go round at a time.
    pub fn new(frames: u32, burst: usize) -> Self {
        Self {
            slots: vec![[0; SLOT_BYTES]; frames as usize],
            ring: (0..frames.next_power_of_two())
                .map(|i| i % frames)
                .collect(),
            head: 0,
            burst,
        }
    }
}

impl Forwarder for Limit {
    fn run(&mut self, until: Instant) -> u64 {
        let mask = self.ring.len() - 1;
        clocked(until, || {
            for i in 0..self.burst {
                // Out of the ring and into it again, at the same place.
                let place = &mut self.ring[(self.head + i) & mask];
                let index = black_box(*place);
                swap_macs(&mut self.slots[index as usize]);
                *place = index;
            }
            self.head += self.burst;
            self.burst
        })
    }
}

/// Measures a forwarder for `window`; returns millions of frames a second.
pub fn measure_mpps(forwarder: &mut dyn Forwarder, window: Duration) -> f64 {
    let start = Instant::now();
    let frames = forwarder.run(start + window);
    frames as f64 / start.elapsed().as_secs_f64() / 1e6
}
