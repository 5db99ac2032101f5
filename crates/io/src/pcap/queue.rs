//! The queue over a capture file.

use std::fs::File;
use std::io::{self, BufWriter};
use std::os::fd::AsFd;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::{Capture, Pace, PcapSpec};
use crate::batch::Batch;
use crate::doorbell::Doorbell;
use crate::ids::PortId;
use crate::offload;
use crate::pcapng::{Direction, Packet, Writer};
use crate::pool::Pool;
use crate::queue::{Arm, Capabilities, Queue, QueueStats};

/// Writes what is sent.
#[derive(Debug)]
pub(super) struct Recorder {
    writer: Writer<BufWriter<File>>,
    /// Something has been written since the last flush.
    dirty: bool,
}

impl Recorder {
    pub(super) fn new(writer: Writer<BufWriter<File>>) -> Self {
        Self {
            writer,
            dirty: true,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.dirty = false;
        self.writer.flush()
    }
}

/// The queue of a `pcap` port.
#[derive(Debug)]
pub(super) struct PcapQueue {
    port: PortId,
    capture: Capture,
    next: usize,
    /// Rounds left, this one included; `None`: without end.
    rounds: Option<u32>,
    pace: Pace,
    /// When this round began.
    start: Option<Instant>,
    recorder: Option<Recorder>,
    /// What an idle worker sleeps on once the file is at its end: it never rings.
    silence: Doorbell,
    capabilities: Capabilities,
    stats: QueueStats,
}

impl PcapQueue {
    pub(super) fn new(
        port: PortId,
        capture: Capture,
        settings: &PcapSpec,
        recorder: Option<Recorder>,
        capabilities: Capabilities,
    ) -> io::Result<Self> {
        Ok(Self {
            port,
            capture,
            next: 0,
            rounds: (settings.loops > 0).then_some(settings.loops),
            pace: settings.pace,
            start: None,
            recorder,
            silence: Doorbell::new()?,
            capabilities,
            stats: QueueStats::default(),
        })
    }

    /// Tells whether packets are left; starts the next round at the end of one.
    fn has_next(&mut self) -> bool {
        if self.capture.is_empty() {
            return false;
        }
        if self.next < self.capture.len() {
            return self.rounds != Some(0);
        }
        if let Some(rounds) = &mut self.rounds {
            *rounds = rounds.saturating_sub(1);
            if *rounds == 0 {
                return false;
            }
        }
        self.next = 0;
        self.start = None;
        true
    }

    /// Returns how far into the file the clock is, nanoseconds; without pacing, past everything.
    fn elapsed_ns(&mut self) -> u64 {
        match self.pace {
            Pace::Unpaced => u64::MAX,
            Pace::Timestamps => {
                let start = *self.start.get_or_insert_with(Instant::now);
                u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
            }
        }
    }

    /// Tells whether the next packet is due.
    fn is_due(&self, elapsed_ns: u64) -> bool {
        let due = |index| self.capture.get(index).map_or(0, |p| p.timestamp_ns);
        due(self.next).saturating_sub(due(0)) <= elapsed_ns
    }
}

impl Queue for PcapQueue {
    fn rx(&mut self, pool: &mut Pool, batch: &mut Batch) -> usize {
        let before = batch.len();
        // Each packet counts against the burst, so that it is bounded even if all are unusable.
        for _ in 0..batch.room() {
            if !self.has_next() {
                break;
            }
            let elapsed_ns = self.elapsed_ns();
            if !self.is_due(elapsed_ns) {
                break;
            }
            // A file waits: without a frame to put it in, the packet stays for the next call.
            let Some(mut frame) = pool.alloc() else {
                break;
            };
            let Some(packet) = self.capture.get(self.next) else {
                pool.free(frame);
                break;
            };
            self.next += 1;
            if !frame.fill(packet.data) {
                self.stats.rx_invalid_pkts += 1;
                pool.free(frame);
                continue;
            }
            frame.rx_port = self.port;
            frame.timestamp_ns = packet.timestamp_ns;
            self.stats.rx_pkts += 1;
            self.stats.rx_bytes += packet.data.len() as u64;
            if let Err(frame) = batch.push(frame) {
                // Not reached: the loop looks for room.
                pool.free(frame);
            }
        }
        batch.len() - before
    }

    fn tx(&mut self, pool: &mut Pool, batch: &mut Batch) -> usize {
        let taken = batch.len();
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = since_epoch.unwrap_or(Duration::ZERO).as_nanos() as u64;
        for mut frame in batch.drain() {
            offload::finish_checksum(&mut frame);
            let written = self.recorder.as_mut().map_or(Ok(()), |recorder| {
                recorder.dirty = true;
                recorder.writer.write_packet(&Packet {
                    direction: Some(Direction::Outbound),
                    ..Packet::new(0, now, frame.data())
                })
            });
            match written {
                Ok(()) => {
                    self.stats.tx_pkts += 1;
                    self.stats.tx_bytes += frame.len() as u64;
                }
                Err(_) => self.stats.tx_error_pkts += 1,
            }
            pool.free(frame);
        }
        taken
    }

    fn arm(&mut self) -> Arm<'_> {
        if let Some(recorder) = &mut self.recorder
            && recorder.dirty
        {
            // An idle worker has the time, and who looks at the file wants to see all.
            self.stats.tx_error_pkts += u64::from(recorder.flush().is_err());
        }
        if !self.has_next() {
            return Arm::Armed(self.silence.as_fd());
        }
        let elapsed_ns = self.elapsed_ns();
        if self.is_due(elapsed_ns) {
            Arm::Ready
        } else {
            Arm::Unsupported
        }
    }

    fn disarm(&mut self) {}

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn stats(&self) -> QueueStats {
        self.stats
    }

    fn close(&mut self, _pool: &mut Pool) -> usize {
        self.rounds = Some(0);
        if let Some(mut recorder) = self.recorder.take() {
            self.stats.tx_error_pkts += u64::from(recorder.flush().is_err());
        }
        0
    }
}
