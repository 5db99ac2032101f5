//! The port that no frame comes by: it lets a worker wait for the forwarder's kernel sockets and for other workers
//! as it waits for packets, and runs the node when something is there.

use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};

use io::{Arm, Batch, Capabilities, Interrupt, Pool, PortId, Queue, QueueStats};
use nix::sys::epoll::{Epoll, EpollEvent, EpollTimeout};

use super::message::Ears;

/// Sockets that one look finds ready at most.
const READY_MAX: usize = 64;

/// The sockets that are ready, for the node of the same worker.
pub(super) type Ready = Arc<Mutex<Vec<EpollEvent>>>;

/// The queue of that port.
#[derive(Debug)]
pub(super) struct SignalQueue {
    port: PortId,
    epoll: Arc<Epoll>,
    ears: Arc<Ears>,
    ready: Ready,
    capabilities: Capabilities,
    stats: QueueStats,
}

impl SignalQueue {
    pub(super) fn new(port: PortId, epoll: Arc<Epoll>, ears: Arc<Ears>, ready: Ready) -> Self {
        Self {
            port,
            epoll,
            ears,
            ready,
            capabilities: Capabilities {
                driver: "ndn",
                mode: "kernel sockets".into(),
                interrupt: Interrupt::Level,
                max_frame_bytes: 0,
                zero_copy: false,
                rss: true,
                offloads: io::Offloads::empty(),
                refused: Vec::new(),
            },
            stats: QueueStats::default(),
        }
    }
}

impl Queue for SignalQueue {
    fn rx(&mut self, pool: &mut Pool, batch: &mut Batch) -> usize {
        let mut events = [EpollEvent::empty(); READY_MAX];
        self.stats.syscalls += 1;
        // Without a descriptor that is ready, or with an interrupted call, the next look finds out.
        let found = self
            .epoll
            .wait(&mut events, EpollTimeout::ZERO)
            .unwrap_or(0);
        if found == 0 && !self.ears.is_called() {
            return 0;
        }
        // A frame without bytes is the signal. Without a frame, what is ready stays ready.
        let Some(mut frame) = pool.alloc() else {
            return 0;
        };
        frame.rx_port = self.port;
        if let Err(frame) = batch.push(frame) {
            pool.free(frame);
            return 0;
        }
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        ready.clear();
        ready.extend_from_slice(&events[..found]);
        1
    }

    fn tx(&mut self, pool: &mut Pool, batch: &mut Batch) -> usize {
        // Nothing is sent here.
        pool.free_batch(batch);
        0
    }

    fn arm(&mut self) -> Arm<'_> {
        self.ears.bell.prepare();
        if self.ears.is_called() {
            self.ears.bell.cancel();
            return Arm::Ready;
        }
        Arm::Armed(self.epoll.0.as_fd())
    }

    fn disarm(&mut self) {
        self.ears.bell.cancel();
    }

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
