//! The counters, written to the log.

use control::api::Stats;
use tracing::info;

/// Writes one line a port, a worker and a drop reason.
pub(super) fn to_log(stats: &Stats) {
    for port in &stats.ports {
        let c = &port.counters;
        info!(
            port = port.name,
            driver = port.driver,
            mode = port.mode,
            up = port.up,
            rx_pkts = c.rx_pkts,
            rx_bytes = c.rx_bytes,
            rx_ring_full_pkts = c.rx_ring_full_pkts,
            rx_no_frame_pkts = c.rx_no_frame_pkts,
            rx_invalid_pkts = c.rx_invalid_pkts,
            tx_pkts = c.tx_pkts,
            tx_bytes = c.tx_bytes,
            tx_error_pkts = c.tx_error_pkts,
            "port"
        );
    }
    for worker in &stats.workers {
        info!(
            worker = worker.id,
            state = worker.state.name(),
            poll_ns = worker.time.poll_ns,
            nap_ns = worker.time.nap_ns,
            interrupt_ns = worker.time.interrupt_ns,
            cpu_ns = worker.cpu_ns,
            polls = worker.polls,
            empty_polls = worker.empty_polls,
            wakeups_packet = worker.wakeups_packet,
            naps = worker.naps,
            flips = worker.flips,
            frames_free = worker.frames_free,
            "worker"
        );
    }
    for drop in &stats.drops {
        info!(reason = drop.reason, pkts = drop.pkts, "drops");
    }
}
