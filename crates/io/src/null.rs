//! Driver `null`: an endless source that is also a sink, for benches.
//!
//! Receiving takes frames from the pool and gives them the templates' lengths; sending returns them. It
//! costs about what DPDK's `net_null` does, so that what is measured is the code between two ports.

use std::sync::Arc;

use crate::batch::Batch;
use crate::ids::PortId;
use crate::interface::Link;
use crate::pool::{Pool, Region};
use crate::port::{OpenError, OpenPort, PortSpec};
use crate::queue::{Arm, Capabilities, Interrupt, Queue, QueueStats};

/// What a `null` port receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NullSpec {
    /// The frames that it receives, one after the other, again and again.
    pub templates: Vec<Vec<u8>>,
    /// Write the template into each frame (`net_null` with `copy=1`); else only when a slot is received
    /// into for the first time, so that a frame may show what the node wrote into its slot before.
    pub copy: bool,
    /// Frames a burst, at most.
    pub burst: usize,
}

impl Default for NullSpec {
    /// 60 zero bytes (64 with FCS), not copied, in bursts of 32.
    fn default() -> Self {
        Self {
            templates: vec![vec![0; 60]],
            copy: false,
            burst: 32,
        }
    }
}

/// Opens a null port: a queue for each worker.
pub(crate) fn open(
    spec: &PortSpec,
    null: &NullSpec,
    region: &Arc<Region>,
    workers: u16,
) -> Result<OpenPort, OpenError> {
    let room = region.room_bytes() as usize;
    if null.templates.is_empty() || null.templates.iter().any(|t| t.len() > room) {
        return Err(OpenError::unusable(
            &spec.name,
            format!("a null port needs templates of at most {room} bytes"),
        ));
    }
    let mode = if null.copy { "copy" } else { "no copy" };
    let queues = (0..workers)
        .map(|_| {
            Box::new(NullQueue {
                port: spec.id,
                templates: null.templates.clone(),
                next: 0,
                copy: null.copy,
                burst: null.burst.max(1),
                written: vec![0; region.frames().div_ceil(64) as usize],
                region: Arc::clone(region),
                capabilities: Capabilities {
                    driver: "null",
                    mode: mode.into(),
                    interrupt: Interrupt::None,
                    max_frame_bytes: room as u16,
                    zero_copy: true,
                    rss: false,
                    offloads: crate::Offloads::empty(),
                    refused: Vec::new(),
                },
                stats: QueueStats::default(),
            }) as Box<dyn Queue>
        })
        .collect();
    Ok(OpenPort {
        id: spec.id,
        name: spec.name.clone(),
        queues,
        mac: [0x02, b't', b'g', 2, 0, spec.id.0 as u8],
        mtu: (room - 14) as u16,
        link: Link::Up,
        interface: None,
        driver: "null",
        mode: mode.into(),
        refused: Vec::new(),
    })
}

/// A queue of a `null` port.
#[derive(Debug)]
#[repr(align(128))]
struct NullQueue {
    port: PortId,
    templates: Vec<Vec<u8>>,
    next: usize,
    copy: bool,
    burst: usize,
    /// One bit a slot: a template has been written to it.
    written: Vec<u64>,
    region: Arc<Region>,
    capabilities: Capabilities,
    stats: QueueStats,
}

impl Queue for NullQueue {
    #[inline]
    fn rx(&mut self, pool: &mut Pool, batch: &mut Batch) -> usize {
        let wanted = self.burst.min(batch.room());
        let before = batch.len();
        let got = pool.alloc_batch(wanted, batch);
        let mut bytes = 0;
        for frame in &mut batch[before..] {
            let template = &self.templates[self.next];
            self.next += 1;
            if self.next == self.templates.len() {
                self.next = 0;
            }
            frame.rx_port = self.port;
            // It fits: checked when the port was opened.
            frame.set_len(template.len());
            bytes += template.len() as u64;
            let index = self.region.index_of(frame.slot()).map_or(0, |i| i.index());
            let bit = 1 << (index % 64);
            if self.copy || self.written[index / 64] & bit == 0 {
                self.written[index / 64] |= bit;
                frame.data_mut().copy_from_slice(template);
            }
        }
        self.stats.rx_pkts += got as u64;
        self.stats.rx_bytes += bytes;
        self.stats.rx_no_frame_pkts += (wanted - got) as u64;
        got
    }

    #[inline]
    fn tx(&mut self, pool: &mut Pool, batch: &mut Batch) -> usize {
        let sent = batch.len();
        self.stats.tx_pkts += sent as u64;
        for frame in batch.drain() {
            self.stats.tx_bytes += frame.len() as u64;
            pool.free(frame);
        }
        sent
    }

    fn arm(&mut self) -> Arm<'_> {
        Arm::Ready
    }

    fn disarm(&mut self) {}

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn stats(&self) -> QueueStats {
        self.stats
    }

    fn close(&mut self, _pool: &mut Pool) -> usize {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::DriverSpec;
    use crate::{HugePages, port};

    fn open(pool: &Pool, null: NullSpec) -> Result<OpenPort, OpenError> {
        let spec = PortSpec::new(PortId(3), "null", DriverSpec::Null(null));
        port::open(&spec, pool.region(), 1)
    }

    #[test]
    fn templates_come_in_turn_and_frames_go_back() {
        let mut pool = Pool::new(8, 2048, HugePages::Never).unwrap();
        let spec = NullSpec {
            templates: vec![vec![1; 60], vec![2; 100]],
            copy: true,
            burst: 6,
        };
        let mut port = open(&pool, spec).unwrap();
        let queue = &mut port.queues[0];
        let mut batch = Batch::new();
        for _ in 0..3 {
            assert_eq!(queue.rx(&mut pool, &mut batch), 6);
            for (i, frame) in batch.iter_mut().enumerate() {
                let len = if i % 2 == 0 { 60 } else { 100 };
                assert_eq!(frame.data(), vec![1 + (i % 2) as u8; len]);
                assert_eq!(frame.rx_port, PortId(3));
                frame.data_mut().fill(9);
            }
            assert_eq!(queue.tx(&mut pool, &mut batch), 6);
            assert_eq!(pool.available(), 8);
        }
        assert_eq!(queue.stats().rx_pkts, 18);
        assert_eq!(queue.stats().rx_bytes, 18 * 80);
        assert_eq!(queue.stats().tx_bytes, 18 * 80);
    }

    #[test]
    fn an_empty_pool_is_counted() {
        let mut pool = Pool::new(4, 2048, HugePages::Never).unwrap();
        let mut port = open(&pool, NullSpec::default()).unwrap();
        let mut batch = Batch::new();
        assert_eq!(port.queues[0].rx(&mut pool, &mut batch), 4);
        assert_eq!(port.queues[0].rx(&mut pool, &mut batch), 0);
        assert_eq!(port.queues[0].stats().rx_no_frame_pkts, 28 + 32);
        pool.free_batch(&mut batch);
    }

    #[test]
    fn a_template_that_does_not_fit_is_refused() {
        let pool = Pool::new(1, 2048, HugePages::Never).unwrap();
        let spec = NullSpec {
            templates: vec![vec![0; 1793]],
            ..NullSpec::default()
        };
        assert!(open(&pool, spec).is_err());
    }
}
