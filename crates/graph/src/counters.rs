//! Counters that one worker writes and anyone reads: plain relaxed atomics, no lock, no read-modify-write.
//! What holds them is aligned to two cache lines (processors fetch lines in pairs), so that nothing else is
//! in a line that a worker writes.

use core::sync::atomic::{AtomicU64, Ordering};

use wire::DropReason;

/// A counter with one writer, its worker. Readers may see it a little late, never torn.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`; only the owner calls this, which is why it needs no locked instruction.
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        let value = self.0.load(Ordering::Relaxed).wrapping_add(n);
        self.0.store(value, Ordering::Relaxed);
    }

    /// Replaces the value; only the owner calls this.
    #[inline]
    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Returns the value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// An edge's counter.
#[derive(Debug)]
#[repr(align(128))]
pub struct EdgeCounters {
    /// The edge's name.
    pub name: &'static str,
    /// The node that it leads to.
    pub to: String,
    /// Frames that went along it.
    pub pkts: Counter,
}

/// What a node did.
#[derive(Debug)]
#[repr(align(128))]
pub struct NodeCounters {
    /// The node's name.
    pub name: String,
    /// Frames that it was given.
    pub pkts: Counter,
    /// Calls, each with 1 to 64 frames.
    pub batches: Counter,
    /// Frames of the calls that were timed (one call in 64).
    pub timed_pkts: Counter,
    /// Time of the calls that were timed, nanoseconds.
    pub timed_ns: Counter,
    /// Frames that ended their way here.
    pub consumed_pkts: Counter,
    /// Its edges.
    pub edges: Vec<EdgeCounters>,
    drops: [Counter; DropReason::COUNT],
}

impl NodeCounters {
    pub(crate) fn new(name: &str, edges: Vec<EdgeCounters>) -> Self {
        Self {
            name: name.into(),
            pkts: Counter::default(),
            batches: Counter::default(),
            timed_pkts: Counter::default(),
            timed_ns: Counter::default(),
            consumed_pkts: Counter::default(),
            edges,
            drops: core::array::from_fn(|_| Counter::default()),
        }
    }

    pub(crate) fn count_drop(&self, reason: DropReason, pkts: u64) {
        self.drops[reason as usize].add(pkts);
    }

    /// Returns how many frames the node dropped for a reason.
    pub fn drops(&self, reason: DropReason) -> u64 {
        self.drops[reason as usize].get()
    }

    /// Returns the reasons for which the node dropped frames, with their numbers.
    pub fn all_drops(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL
            .iter()
            .map(|&reason| (reason, self.drops(reason)))
            .filter(|&(_, pkts)| pkts > 0)
    }

    /// Returns how many frames the node dropped.
    pub fn dropped_pkts(&self) -> u64 {
        self.drops.iter().map(Counter::get).sum()
    }
}

/// What one worker did; shared with the control side, which only reads.
#[derive(Debug)]
#[repr(align(128))]
pub struct WorkerCounters {
    /// What the worker does now: 0 polls, 1 naps, 2 waits for interrupts, 3 stopped.
    pub state: Counter,
    /// Time in which it polled or worked, nanoseconds.
    pub poll_ns: Counter,
    /// Time in nap state: napping, or working on what gathered in a nap, nanoseconds.
    pub nap_ns: Counter,
    /// Time in interrupt mode: asleep, or working on what an interrupt announced, nanoseconds.
    pub interrupt_ns: Counter,
    /// Until when the times above count, nanoseconds on the worker's clock: a sleeper adds its sleep when
    /// it wakes.
    pub accounted_until_ns: Counter,
    /// CPU time of the thread, nanoseconds.
    pub cpu_ns: Counter,
    /// Passes over all queues.
    pub polls: Counter,
    /// Passes that found nothing.
    pub empty_polls: Counter,
    /// Times that it armed the interrupts to sleep, and found work in the recheck.
    pub arm_ready: Counter,
    /// Sleeps that an interrupt of a queue ended.
    pub wakeups_packet: Counter,
    /// Sleeps that a timer ended.
    pub wakeups_timer: Counter,
    /// Sleeps that the control side or another worker ended.
    pub wakeups_message: Counter,
    /// Timed naps.
    pub naps: Counter,
    /// Changes of state of the idle machines.
    pub flips: Counter,
    /// Bursts by size: 1, 2, 3-4, 5-8, 9-16, 17-32, 33-64.
    pub bursts: [Counter; 7],
    /// Packets received.
    pub rx_pkts: Counter,
    /// Packets sent.
    pub tx_pkts: Counter,
    /// Packets handed to other workers.
    pub handoff_out_pkts: Counter,
    /// Packets that other workers handed to it.
    pub handoff_in_pkts: Counter,
    /// Packets lost because the ring to another worker was full.
    pub handoff_full_pkts: Counter,
    /// Packets lost because the worker that they were for has ended.
    pub peer_gone_pkts: Counter,
    /// Doorbells rung for sleeping workers (a system call each).
    pub bells: Counter,
    /// Frames that it owns.
    pub frames: Counter,
    /// Frames of these that are free now.
    pub frames_free: Counter,
    /// Fewest free frames since the start.
    pub frames_free_min: Counter,
    /// Times that it wanted a frame and had none.
    pub exhausted: Counter,
    /// Number of the last message from the control side that it has acted on.
    pub acknowledged: Counter,
    /// Frames that were missing when it stopped: 0, or there is a mistake somewhere.
    pub frames_lost: Counter,
    /// Its ports.
    pub ports: Box<[PortCounters]>,
    /// Its nodes, in the order of execution.
    pub nodes: std::sync::Arc<[NodeCounters]>,
}

/// What one worker's queue of a port did.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct PortCounters {
    /// See [`io::QueueStats::rx_pkts`].
    pub rx_pkts: Counter,
    /// See [`io::QueueStats::rx_bytes`].
    pub rx_bytes: Counter,
    /// See [`io::QueueStats::rx_ring_full_pkts`].
    pub rx_ring_full_pkts: Counter,
    /// See [`io::QueueStats::rx_no_frame_pkts`].
    pub rx_no_frame_pkts: Counter,
    /// See [`io::QueueStats::rx_invalid_pkts`].
    pub rx_invalid_pkts: Counter,
    /// See [`io::QueueStats::tx_pkts`].
    pub tx_pkts: Counter,
    /// See [`io::QueueStats::tx_bytes`].
    pub tx_bytes: Counter,
    /// See [`io::QueueStats::tx_error_pkts`].
    pub tx_error_pkts: Counter,
    /// See [`io::QueueStats::syscalls`].
    pub syscalls: Counter,
    /// Packets that wait for room in the queue.
    pub tx_held_pkts: Counter,
    /// Packets dropped because the queue had no room.
    pub tx_full_pkts: Counter,
    /// State of the port's idle machine: 0 polls, 1 naps, 2 waits.
    pub state: Counter,
}

impl PortCounters {
    pub(crate) fn publish(&self, stats: &io::QueueStats) {
        self.rx_pkts.set(stats.rx_pkts);
        self.rx_bytes.set(stats.rx_bytes);
        self.rx_ring_full_pkts.set(stats.rx_ring_full_pkts);
        self.rx_no_frame_pkts.set(stats.rx_no_frame_pkts);
        self.rx_invalid_pkts.set(stats.rx_invalid_pkts);
        self.tx_pkts.set(stats.tx_pkts);
        self.tx_bytes.set(stats.tx_bytes);
        self.tx_error_pkts.set(stats.tx_error_pkts);
        self.syscalls.set(stats.syscalls);
    }
}

impl WorkerCounters {
    pub(crate) fn new(ports: usize, nodes: std::sync::Arc<[NodeCounters]>) -> Self {
        Self {
            state: Counter::default(),
            poll_ns: Counter::default(),
            nap_ns: Counter::default(),
            interrupt_ns: Counter::default(),
            accounted_until_ns: Counter::default(),
            cpu_ns: Counter::default(),
            polls: Counter::default(),
            empty_polls: Counter::default(),
            arm_ready: Counter::default(),
            wakeups_packet: Counter::default(),
            wakeups_timer: Counter::default(),
            wakeups_message: Counter::default(),
            naps: Counter::default(),
            flips: Counter::default(),
            bursts: Default::default(),
            rx_pkts: Counter::default(),
            tx_pkts: Counter::default(),
            handoff_out_pkts: Counter::default(),
            handoff_in_pkts: Counter::default(),
            handoff_full_pkts: Counter::default(),
            peer_gone_pkts: Counter::default(),
            bells: Counter::default(),
            frames: Counter::default(),
            frames_free: Counter::default(),
            frames_free_min: Counter::default(),
            exhausted: Counter::default(),
            acknowledged: Counter::default(),
            frames_lost: Counter::default(),
            ports: (0..ports).map(|_| PortCounters::default()).collect(),
            nodes,
        }
    }

    /// Counts a burst of 1 to 64 packets.
    #[inline]
    pub(crate) fn count_burst(&self, pkts: usize) {
        // 1 -> 0, 2 -> 1, 3..=4 -> 2, ..., 33..=64 -> 6
        let bucket = usize::BITS - pkts.saturating_sub(1).leading_zeros();
        self.bursts[(bucket as usize).min(6)].add(1);
    }

    /// Returns how many packets the worker dropped, all nodes, reasons and rings.
    pub fn dropped_pkts(&self) -> u64 {
        let nodes: u64 = self.nodes.iter().map(NodeCounters::dropped_pkts).sum();
        nodes + self.handoff_full_pkts.get() + self.peer_gone_pkts.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_fall_into_their_classes() {
        for (bucket, range) in [1..=1, 2..=2, 3..=4, 5..=8, 9..=16, 17..=32, 33..=64]
            .into_iter()
            .enumerate()
        {
            for pkts in range {
                let counters = WorkerCounters::new(0, std::sync::Arc::from([]));
                counters.count_burst(pkts);
                assert_eq!(counters.bursts[bucket].get(), 1, "burst of {pkts}");
            }
        }
    }
}
