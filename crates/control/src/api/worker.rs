//! Workers and the stages that they run.

use serde::{Deserialize, Serialize};

/// One worker: a thread pinned to one CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerInfo {
    /// Its id, from 0.
    pub id: u16,
    /// The CPU that it is pinned to, if pinning was allowed.
    pub cpu: Option<u16>,
    /// What it does now.
    pub state: WorkerState,
    /// Time spent in each state since the start.
    pub time: StateTimes,
    /// CPU time of the thread, nanoseconds (system time included).
    pub cpu_ns: u64,
    /// Passes over all queues.
    pub polls: u64,
    /// Passes that found nothing.
    pub empty_polls: u64,
    /// Times that it armed the interrupts to sleep, and found packets in the recheck.
    pub arm_ready: u64,
    /// Sleeps that an interrupt of a queue ended.
    pub wakeups_packet: u64,
    /// Sleeps that a timer ended.
    pub wakeups_timer: u64,
    /// Sleeps that the control side or another worker ended.
    pub wakeups_message: u64,
    /// Timed naps.
    pub naps: u64,
    /// Changes between polling and interrupts, both ways.
    pub flips: u64,
    /// Sizes of the bursts received.
    pub bursts: BurstHistogram,
    /// Packets received by its queues.
    pub rx_pkts: u64,
    /// Packets sent by its queues.
    pub tx_pkts: u64,
    /// Packets that it dropped, all reasons.
    pub dropped_pkts: u64,
    /// Packets handed to other workers.
    pub handoff_out_pkts: u64,
    /// Packets that other workers handed to it.
    pub handoff_in_pkts: u64,
    /// Frames that it owns.
    pub frames: u32,
    /// Frames of these that are free now.
    pub frames_free: u32,
    /// Fewest free frames since the start.
    pub frames_free_min: u32,
}

/// What a worker does at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerState {
    /// Asks the queues again and again; interrupts are off.
    Poll,
    /// Sleeps for a bounded time, then asks the queues; interrupts are off.
    Nap,
    /// Sleeps until an interrupt, a timer or a message.
    Interrupt,
    /// Ended, or failed.
    Stopped,
}

impl WorkerState {
    /// Returns the snake_case name that JSON uses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Poll => "poll",
            Self::Nap => "nap",
            Self::Interrupt => "interrupt",
            Self::Stopped => "stopped",
        }
    }
}

/// Time that a worker spent in each state, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateTimes {
    /// With interrupts off, asking the queues or working on packets.
    pub poll_ns: u64,
    /// In timed naps.
    pub nap_ns: u64,
    /// In interrupt mode: asleep, or working on what an interrupt announced.
    pub interrupt_ns: u64,
}

/// How many bursts were received of each size. `buckets[0]` counts bursts of 1 packet, `buckets[i]`
/// bursts of 2^(i-1)+1 to 2^i packets: 1, 2, 3-4, 5-8, 9-16, 17-32, 33-64.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BurstHistogram {
    /// Bursts of each size class.
    pub buckets: [u64; 7],
}

impl BurstHistogram {
    /// The size classes, as shown to people.
    pub const LABELS: [&'static str; 7] = ["1", "2", "3-4", "5-8", "9-16", "17-32", "33-64"];

    /// Returns the bucket that a burst of `pkts` packets falls into (0 and 1 fall into the first).
    pub const fn bucket(pkts: usize) -> usize {
        let mut bucket = 0;
        while bucket < 6 && (1 << bucket) < pkts {
            bucket += 1;
        }
        bucket
    }

    /// Counts a burst of `pkts` packets.
    pub fn record(&mut self, pkts: usize) {
        if let Some(bucket) = self.buckets.get_mut(Self::bucket(pkts)) {
            *bucket += 1;
        }
    }

    /// Returns how many bursts were counted.
    pub fn total(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

/// A stage of the packet graph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GraphNodeInfo {
    /// Its name, e.g. `ip4-forward`.
    pub name: String,
    /// Batches that it worked on.
    pub batches: u64,
    /// Packets in them.
    pub pkts: u64,
    /// Packets that it dropped.
    pub dropped_pkts: u64,
    /// Where the others went.
    pub edges: Vec<EdgeInfo>,
}

/// An outgoing edge of a stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgeInfo {
    /// Its name.
    pub name: String,
    /// Packets that took it.
    pub pkts: u64,
}

#[cfg(test)]
mod tests {
    use super::BurstHistogram;

    #[test]
    fn bucket_matches_the_labels() {
        for (label, (low, high)) in BurstHistogram::LABELS.iter().zip([
            (1, 1),
            (2, 2),
            (3, 4),
            (5, 8),
            (9, 16),
            (17, 32),
            (33, 64),
        ]) {
            for pkts in low..=high {
                assert_eq!(
                    BurstHistogram::LABELS[BurstHistogram::bucket(pkts)],
                    *label,
                    "burst of {pkts}"
                );
            }
        }
        assert_eq!(BurstHistogram::bucket(10_000), 6);
    }
}
