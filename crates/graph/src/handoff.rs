//! Frames from worker to worker: bounded rings one way for the work, the other way for the memory.
//!
//! For each pair of workers there is a ring of frames handed over, and one by which frames that another
//! worker has sent or dropped go back to the pool that owns them. A full ring never blocks: what does
//! not fit is a counted drop. The doorbell rings only for a worker that sleeps.

use std::io;
use std::sync::Arc;

use ::io::{Batch, CompactFrame, Doorbell, Frame, FrameFlags, Pool, WorkerId};
use tables::ring::{Consumer, Producer, spsc};
use wire::{DropReason, FlowKey, FlowSecret};

/// What a frame is handed over for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum For {
    /// To enter the graph at its port's input.
    Input,
    /// To be sent by a queue that the other worker owns.
    Transmit,
}

/// A frame and why it comes.
#[derive(Debug)]
struct Handed {
    frame: Frame,
    what: For,
}

/// One worker's ends of the rings to and from all others.
#[derive(Debug)]
pub struct Mesh {
    id: WorkerId,
    to: Vec<Producer<Handed>>,
    from: Vec<Consumer<Handed>>,
    home: Vec<Producer<CompactFrame>>,
    back: Vec<Consumer<CompactFrame>>,
    bells: Arc<[Doorbell]>,
    staged: Vec<Vec<Handed>>,
}

/// What a flush of handed-over frames did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flushed {
    pub(crate) sent_pkts: u64,
    pub(crate) bells: u64,
}

/// Makes the rings between `workers` workers, each for `depth` frames, and a doorbell a worker.
///
/// # Errors
/// The kernel has no descriptor left for a doorbell.
pub fn mesh(workers: u16, depth: usize) -> io::Result<Vec<Mesh>> {
    let count = usize::from(workers.max(1));
    let bells: Arc<[Doorbell]> = (0..count)
        .map(|_| Doorbell::new())
        .collect::<io::Result<_>>()?;
    let mut meshes: Vec<Mesh> = (0..count)
        .map(|id| Mesh {
            id: WorkerId(id as u16), // less than `workers`
            to: Vec::new(),
            from: Vec::new(),
            home: Vec::new(),
            back: Vec::new(),
            bells: Arc::clone(&bells),
            staged: (0..count)
                .map(|_| Vec::with_capacity(4 * ::io::BATCH_MAX))
                .collect(),
        })
        .collect();
    // A worker has rings to itself too, which stay empty: indices stay simple.
    for source in 0..count {
        for target in 0..count {
            let depth = if source == target { 1 } else { depth.max(1) };
            let (to, from) = spsc(depth);
            let (home, back) = spsc(depth);
            meshes[source].to.push(to);
            meshes[target].from.push(from);
            meshes[source].home.push(home);
            meshes[target].back.push(back);
        }
    }
    Ok(meshes)
}

impl Mesh {
    /// Returns the worker's id.
    pub fn id(&self) -> WorkerId {
        self.id
    }

    /// Returns how many workers there are.
    pub fn workers(&self) -> u16 {
        self.to.len() as u16 // made from a u16
    }

    /// Returns all workers' doorbells.
    pub fn bells(&self) -> &Arc<[Doorbell]> {
        &self.bells
    }

    /// Returns the worker's own doorbell.
    pub(crate) fn bell(&self) -> &Doorbell {
        &self.bells[self.id.index()]
    }

    /// Tells whether there are other workers.
    pub(crate) fn is_alone(&self) -> bool {
        self.to.len() < 2
    }

    /// Puts a frame aside for another worker; [`Mesh::flush`] sends it. Gives it back if there is no such
    /// worker, or it is this one.
    pub(crate) fn stage(&mut self, worker: WorkerId, frame: Frame, what: For) -> Result<(), Frame> {
        match self.staged.get_mut(worker.index()) {
            Some(staged) if worker != self.id => {
                staged.push(Handed { frame, what });
                Ok(())
            }
            _ => Err(frame),
        }
    }

    /// Sends what was put aside; gives what cannot be sent to `dropped`, with the reason.
    pub(crate) fn flush(&mut self, mut dropped: impl FnMut(Frame, DropReason)) -> Flushed {
        let mut flushed = Flushed::default();
        for (worker, staged) in self.staged.iter_mut().enumerate() {
            if staged.is_empty() {
                continue;
            }
            let mut items = staged.drain(..);
            if self.to[worker].is_closed() {
                items.for_each(|handed| dropped(handed.frame, DropReason::PeerWorkerGone));
                continue;
            }
            let sent = self.to[worker].push_batch(&mut items);
            items.for_each(|handed| dropped(handed.frame, DropReason::HandoffRingFull));
            if sent > 0 {
                flushed.sent_pkts += sent as u64;
                flushed.bells += u64::from(self.bells[worker].ring());
            }
        }
        flushed
    }

    /// Takes up to a batch of the frames that `worker` handed over, those to be sent into `transmit`, the
    /// others into `input` (both empty); returns how many.
    pub(crate) fn take(&mut self, worker: usize, input: &mut Batch, transmit: &mut Batch) -> usize {
        let mut taken = 0;
        for Handed { mut frame, what } in self.from[worker].pop_batch(input.room()) {
            taken += 1;
            let batch = match what {
                For::Input => {
                    frame.flags |= FrameFlags::HANDED_OFF;
                    &mut *input
                }
                For::Transmit => &mut *transmit,
            };
            // No more than fits either was popped.
            let _ = batch.push(frame);
        }
        taken
    }

    /// Takes back the pool's own frames; returns how many came.
    pub(crate) fn take_back(&mut self, pool: &mut Pool) -> usize {
        let mut frames = 0;
        for back in &mut self.back {
            for frame in back.pop_batch(usize::MAX) {
                pool.free(frame.expand(::io::PortId(0)));
                frames += 1;
            }
        }
        frames
    }

    /// Sends other workers' frames home; what does not fit stays with `pool` as a stray. Returns how many
    /// stayed.
    pub(crate) fn send_home(&mut self, pool: &mut Pool, kept: &mut Vec<Frame>) -> usize {
        let mut touched = 0_u128;
        let capacity = pool.capacity().max(1);
        let region = Arc::clone(pool.region());
        for frame in pool.take_strays() {
            let owner = region
                .index_of(frame.slot())
                .map_or(usize::MAX, |i| i.index() / capacity);
            match self.home.get_mut(owner) {
                Some(home) => match home.push(frame.compact()) {
                    Ok(()) => touched |= 1 << (owner & 127),
                    Err(frame) => kept.push(frame.expand(::io::PortId(0))),
                },
                None => kept.push(frame),
            }
        }
        for (owner, bell) in self.bells.iter().enumerate() {
            if touched >> (owner & 127) & 1 == 1 {
                bell.ring_hungry();
            }
        }
        let stayed = kept.len();
        for frame in kept.drain(..) {
            // The ring is full: its worker has to look.
            let owner = region
                .index_of(frame.slot())
                .map_or(usize::MAX, |i| i.index() / capacity);
            if let Some(bell) = self.bells.get(owner) {
                bell.ring();
            }
            pool.free(frame);
        }
        stayed
    }

    /// Tells whether anything waits from any worker.
    pub(crate) fn is_empty(&mut self) -> bool {
        self.from.iter_mut().all(|from| from.is_empty())
            && self.back.iter_mut().all(|back| back.is_empty())
    }
}

/// Spreads flows over workers in software, both directions of a connection to the same one.
#[derive(Debug)]
pub struct Spread {
    secret: FlowSecret,
    workers: u16,
}

impl Spread {
    /// Makes a spreader; all workers of a node share `secret`.
    pub fn new(secret: FlowSecret, workers: u16) -> Self {
        Self {
            secret,
            workers: workers.max(1),
        }
    }

    /// Returns the worker that a frame's flow belongs to, by the flow key; an ICMP error belongs to the flow
    /// that it quotes, and what has no key (ARP, other EtherTypes, malformed frames) to worker 0. Notes the
    /// hash in the frame.
    pub fn worker(&self, frame: &mut Frame) -> WorkerId {
        let data = frame.data();
        let key = wire::parse(data).ok().and_then(|layout| {
            FlowKey::from_icmp_quote(&layout, data).or_else(|| FlowKey::from_layout(&layout, data))
        });
        let Some(key) = key else {
            return WorkerId(0);
        };
        let hash = wire::flow_hash(&key, &self.secret);
        frame.flow_hash = hash as u32;
        frame.flags |= FrameFlags::FLOW_HASH;
        self.worker_of_hash(hash)
    }

    /// Returns the worker that a flow belongs to, whichever its direction.
    pub fn worker_of(&self, key: &FlowKey) -> WorkerId {
        self.worker_of_hash(wire::flow_hash(key, &self.secret))
    }

    fn worker_of_hash(&self, hash: u64) -> WorkerId {
        // Multiply and shift spreads the high bits without a division.
        WorkerId(((u64::from(hash as u32) * u64::from(self.workers)) >> 32) as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::io::{HugePages, Pool};

    #[test]
    fn a_full_ring_and_a_worker_that_is_gone_are_told_apart() {
        let mut pool = Pool::new(16, 2048, HugePages::Never).unwrap();
        let mut meshes = mesh(2, 4).unwrap();
        let peer = meshes.pop().unwrap();
        let mut own = meshes.pop().unwrap();
        let mut flush = |own: &mut Mesh, pkts: usize| {
            for _ in 0..pkts {
                let frame = pool.alloc().unwrap();
                own.stage(WorkerId(1), frame, For::Input).unwrap();
            }
            let mut reasons = Vec::new();
            let flushed = own.flush(|frame, reason| {
                pool.free(frame);
                reasons.push(reason);
            });
            (flushed.sent_pkts, reasons)
        };
        assert_eq!(flush(&mut own, 5), (4, vec![DropReason::HandoffRingFull]));
        drop(peer);
        let (sent, reasons) = flush(&mut own, 2);
        assert_eq!((sent, reasons), (0, vec![DropReason::PeerWorkerGone; 2]));
    }
}
