//! Lines that `log` statements of rules write, in the words of the kernel's log.

use std::fmt::Write;
use std::sync::atomic::Ordering;

use filter::packet::InterfaceId;
use filter::pipeline::Logged;
use wire::ip_protocol;

use super::FileRules;
use super::hub::Hub;
use super::sessions::address;

/// Lines that are written a second, at most, so that a flood of packets is no flood of lines.
const LINES_PER_S: u32 = 100;

/// Writes lines, up to a rate.
#[derive(Debug, Default)]
pub(super) struct RuleLog {
    second: u64,
    written: u32,
    /// Suppressed lines that were told.
    told: u64,
}

impl RuleLog {
    /// Writes the line of a packet, at the statement's level.
    pub(super) fn write(&mut self, hub: &Hub, line: &Logged, rules: &FileRules) {
        let Some(statement) = rules.ruleset.log(line.statement) else {
            return;
        };
        let second = line.at.as_ns() / 1_000_000_000;
        if second != self.second {
            (self.second, self.written) = (second, 0);
        }
        if self.written >= LINES_PER_S {
            hub.suppress(1);
            return;
        }
        self.written += 1;
        hub.log_lines[0].fetch_add(1, Ordering::Relaxed);
        let text = describe(&statement.prefix, line, |id| rules.interface_name(id));
        // Syslog: 0 to 3 are errors, 4 a warning, 5 and 6 (and 8, audit) informational, 7 debugging.
        match statement.level {
            0..=3 => tracing::error!(target: "rules", "{text}"),
            4 => tracing::warn!(target: "rules", "{text}"),
            7 => tracing::debug!(target: "rules", "{text}"),
            _ => tracing::info!(target: "rules", "{text}"),
        }
    }

    /// Says how many lines were not written, once they are.
    pub(super) fn say_suppressed(&mut self, hub: &Hub) {
        let suppressed = hub.log_lines[1].load(Ordering::Relaxed);
        let now = io::cpu::now().as_ns() / 1_000_000_000;
        if suppressed > self.told && now > self.second {
            tracing::warn!(
                target: "rules",
                lines = suppressed - self.told,
                "log lines suppressed: more than {LINES_PER_S} a second"
            );
            self.told = suppressed;
        }
    }
}

/// Writes a packet as the kernel's log does: `PREFIXIN=a OUT=b SRC=... DST=... LEN=... PROTO=TCP SPT=... DPT=...`.
fn describe<'a>(
    prefix: &str,
    line: &Logged,
    name: impl Fn(InterfaceId) -> Option<&'a str>,
) -> String {
    let mut out = format!(
        "{prefix}IN={} OUT={} SRC={} DST={} LEN={} TTL={}",
        name(line.iif).unwrap_or_default(),
        name(line.oif).unwrap_or_default(),
        address(line.key.source),
        address(line.key.destination),
        line.bytes,
        line.ttl,
    );
    let (source, destination) = (line.key.source_port, line.key.destination_port);
    // A string takes all that is written.
    let _ = match line.key.protocol {
        ip_protocol::TCP => write!(out, " PROTO=TCP SPT={source} DPT={destination}"),
        ip_protocol::UDP => write!(out, " PROTO=UDP SPT={source} DPT={destination}"),
        ip_protocol::ICMP => write!(out, " PROTO=ICMP ID={source}"),
        ip_protocol::ICMPV6 => write!(out, " PROTO=ICMPv6 ID={source}"),
        other => write!(out, " PROTO={other}"),
    };
    if let Some(flags) = line.tcp_flags {
        for (bit, name) in ["FIN", "SYN", "RST", "PSH", "ACK", "URG"]
            .iter()
            .enumerate()
        {
            if flags & 1 << bit != 0 {
                let _ = write!(out, " {name}");
            }
        }
    }
    if line.mark != 0 {
        let _ = write!(out, " MARK={:#x}", line.mark);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use filter::packet::Hook;
    use wire::{FlowKey, Instant};

    #[test]
    fn lines_read_like_the_kernels() {
        let mapped = |last: u8| [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 0, 0, last];
        let line = Logged {
            statement: 0,
            hook: Hook::Forward,
            iif: InterfaceId(1),
            oif: InterfaceId(2),
            key: FlowKey {
                source: mapped(1),
                destination: mapped(2),
                source_port: 4000,
                destination_port: 22,
                protocol: 6,
            },
            bytes: 60,
            ttl: 63,
            tcp_flags: Some(0x12),
            mark: 16,
            at: Instant::ZERO,
        };
        let names = |id: InterfaceId| ["", "lan", "wan"].get(usize::from(id.0)).copied();
        assert_eq!(
            describe("drop: ", &line, names),
            "drop: IN=lan OUT=wan SRC=10.0.0.1 DST=10.0.0.2 LEN=60 TTL=63 PROTO=TCP SPT=4000 \
             DPT=22 SYN ACK MARK=0x10"
        );
    }
}
