//! What systemd is told (sd_notify(3)); nothing happens where it does not listen.

use std::time::Duration;

use control::api::Stats;
use sd_notify::NotifyState;

/// The node is ready, for the first time or after a reload.
pub(super) fn ready(stats: &Stats) {
    let ports: Vec<_> = stats
        .ports
        .iter()
        .map(|port| format!("{} {}", port.name, port.driver))
        .collect();
    let status = format!("{} workers; {}", stats.workers.len(), ports.join(", "));
    send(&[NotifyState::Ready, NotifyState::Status(&status)]);
}

/// A reload begins; both fields in one datagram, as sd_notify(3) asks.
pub(super) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => send(&[NotifyState::Reloading, now]),
        Err(_) => send(&[NotifyState::Reloading]),
    }
}

/// The end begins.
pub(super) fn stopping() {
    send(&[NotifyState::Stopping]);
}

/// The workers live.
pub(super) fn alive() {
    send(&[NotifyState::Watchdog]);
}

/// Returns how often [`alive`] is to be called: half of what systemd waits for.
pub(super) fn watchdog_interval() -> Option<Duration> {
    sd_notify::watchdog_enabled().map(|interval| interval / 2)
}

fn send(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "systemd cannot be told");
    }
}
