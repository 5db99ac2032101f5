//! How counters are shown: totals for `stats`, rates for `top` and the demo.

use control::api::{
    BurstHistogram, DropSeverity, FirewallInfo, GuardAttack, GuardInfo, LinkInfo, NdnInfo,
    PortInfo, StateTimes, Stats, WorkerInfo,
};

use crate::output::{self, BAD, FAINT, GOOD, HEADING, Table, WARN};

/// Writes all totals.
pub(crate) fn totals(stats: &Stats) -> String {
    let node = &stats.node;
    let mut out = format!(
        "{HEADING}{}{HEADING:#}  tidegate {}, process {}, up {}, configuration {} ({})\n\
         idle mode {}, budget {} us; {} frames of {} bytes a worker; pages: {}\n",
        node.name,
        node.version,
        node.pid,
        output::duration(node.uptime_ns),
        node.config_generation,
        node.config_file
            .as_ref()
            .map_or_else(|| "no file".into(), |file| file.display().to_string()),
        node.idle_mode,
        node.latency_budget_us,
        node.frames.per_worker,
        node.frames.frame_bytes,
        node.frames.pages,
    );
    out.push('\n');
    out.push_str(&ports(&stats.ports));
    out.push('\n');
    if !stats.links.is_empty() {
        out.push_str(&links(&stats.links));
        out.push('\n');
    }
    if let Some(info) = &stats.firewall {
        out.push_str(&firewall(info));
        out.push('\n');
    }
    out.push_str(&workers(&stats.workers));
    out.push('\n');
    out.push_str(&stages(stats));
    out.push('\n');
    out.push_str(&drops(stats));
    if let Some(ndn) = &stats.ndn {
        out.push('\n');
        out.push_str(&named_data(ndn));
    }
    out
}

/// Shows the named-data forwarder.
pub(crate) fn named_data(ndn: &NdnInfo) -> String {
    let store = &ndn.store;
    let mut table = Table::new(&["named data", ">in", ">out"]);
    for (name, received, sent) in [
        ("Interests", ndn.in_interests, ndn.out_interests),
        ("Data", ndn.in_data, ndn.out_data),
        ("Nacks", ndn.in_nacks, ndn.out_nacks),
    ] {
        table.row([name.to_owned(), received.to_string(), sent.to_string()]);
    }
    let mut out = table.render(0);
    out.push_str(&format!(
        "faces {}, routes {}, FIB prefixes {}, pending Interests {} ({} satisfied, {} not)\n\
         content store ({}): {} of {} packets, {}; {} hits, {} misses\n",
        ndn.faces,
        ndn.routes,
        ndn.fib_prefixes,
        ndn.pit_entries,
        ndn.satisfied,
        ndn.unsatisfied,
        store.policy,
        store.packets,
        store.capacity_packets,
        output::bytes(store.bytes),
        store.hits,
        store.misses,
    ));
    if let Some(disk) = &store.disk {
        out.push_str(&format!(
            "disk tier: {} packets found at start, {} written, {} not; {} reads found theirs, {} not; {} failures\n",
            disk.recovered, disk.written, disk.dropped, disk.found, disk.lost, disk.failed,
        ));
    }
    for drop in &ndn.drops {
        out.push_str(&format!(
            "  {:>10}  {}: {}\n",
            drop.pkts, drop.reason, drop.text
        ));
    }
    out
}

fn ports(ports: &[PortInfo]) -> String {
    let mut table = Table::new(&[
        "port",
        "link",
        ">rx pkts",
        ">rx bytes",
        ">rx lost",
        ">tx pkts",
        ">tx bytes",
        ">tx errors",
        "driver and mode",
    ]);
    for port in ports {
        let c = &port.counters;
        let lost = c.rx_ring_full_pkts + c.rx_no_frame_pkts + c.rx_invalid_pkts;
        table.styled([
            (port.name.clone(), HEADING),
            if port.up {
                ("up".into(), GOOD)
            } else {
                ("down".into(), BAD)
            },
            (c.rx_pkts.to_string(), PLAIN),
            (output::bytes(c.rx_bytes), PLAIN),
            alarm(lost),
            (c.tx_pkts.to_string(), PLAIN),
            (output::bytes(c.tx_bytes), PLAIN),
            alarm(c.tx_error_pkts),
            (format!("{} {}", port.driver, port.mode), PLAIN),
        ]);
    }
    let mut out = table.render(0);
    for port in ports {
        out.push_str(&refusals(port, "  "));
    }
    out.push_str(&driver_counters(ports));
    out
}

/// Writes what the drivers count by names of their own, as far as they have counted anything.
fn driver_counters(ports: &[PortInfo]) -> String {
    let mut table = Table::new(&["port", "counter of the driver", ">value"]);
    for port in ports {
        for counter in port.driver_counters.iter().filter(|c| c.value > 0) {
            table.row([
                port.name.clone(),
                counter.name.clone(),
                counter.value.to_string(),
            ]);
        }
    }
    match table.is_empty() {
        true => String::new(),
        false => format!("\n{}", table.render(0)),
    }
}

fn links(links: &[LinkInfo]) -> String {
    let mut table = Table::new(&[
        "link",
        "direction",
        ">offered",
        ">delivered",
        ">on the way",
        ">dropped",
        ">full",
        ">too long",
        ">duplicated",
        ">corrupted",
        ">reordered",
    ]);
    for link in links {
        for direction in &link.directions {
            table.row([
                link.name.clone(),
                format!("{} to {}", direction.from, direction.to),
                direction.offered_pkts.to_string(),
                direction.delivered_pkts.to_string(),
                direction.in_flight_pkts.to_string(),
                direction.dropped_pkts.to_string(),
                direction.overflowed_pkts.to_string(),
                direction.too_long_pkts.to_string(),
                direction.duplicated_pkts.to_string(),
                direction.corrupted_pkts.to_string(),
                direction.reordered_pkts.to_string(),
            ]);
        }
    }
    table.render(0)
}

fn firewall(info: &FirewallInfo) -> String {
    let mut out = format!(
        "firewall     {} of {} connections, {} port mappings; {} opened, {} ended, {} refused\n\
         packets      {} of connections (verdict known for {}), {} of none\n",
        info.connections,
        info.connections_max,
        info.mappings,
        info.opened,
        info.ended,
        info.refused,
        info.hit_pkts,
        output::percent(share(info.replayed_pkts, info.hit_pkts)),
        info.invalid_pkts,
    );
    if info.log_lines + info.log_lines_suppressed > 0 {
        out.push_str(&format!(
            "log lines    {} of the rules written, {} suppressed\n",
            info.log_lines, info.log_lines_suppressed
        ));
    }
    if let Some(guard) = &info.guard {
        out.push_str(&self::guard(guard));
    }
    if let Some(state) = &info.state {
        out.push_str(&format!("kept in      {}", state.file.display()));
        if let Some(found) = &state.taken_over {
            out.push_str(&format!(
                "; took over {} connections and {} mappings in {}",
                found.connections,
                found.mappings,
                output::duration(found.took_ns)
            ));
            let mended = [
                (found.unfinished, "unfinished records freed"),
                (found.counts_corrected, "numbers of users corrected"),
                (found.mappings_restored, "mappings restored"),
                (found.mappings_removed, "half mappings removed"),
                (found.connections_ended, "connections ended"),
                (found.torn, "torn records freed"),
            ];
            for (count, what) in mended.into_iter().filter(|(count, _)| *count > 0) {
                out.push_str(&format!(", {count} {what}"));
            }
        }
        out.push('\n');
        if let Some(reason) = &state.refused {
            out.push_str(&format!("{WARN}nothing was taken over: {reason}{WARN:#}\n"));
        }
    }
    out
}

/// Says what the guard saw: a line an attack.
fn guard(guard: &GuardInfo) -> String {
    let mut out = format!(
        "guard        {} prefixes blocked, {} attacks seen\n",
        guard.blocklist_prefixes, guard.attacks_total
    );
    for attack in &guard.attacks {
        let at = attack.first_at.strftime("%FT%TZ");
        out.push_str(&format!("  {WARN}{at} {}{WARN:#}\n", attack_line(attack)));
    }
    out
}

/// One attack: which threshold, what was measured, who, what is done.
pub(crate) fn attack_line(attack: &GuardAttack) -> String {
    let sources: Vec<_> = attack.sources.iter().map(ToString::to_string).collect();
    let action = match attack.action.as_str() {
        "drop" => "more is dropped",
        "challenge" => "SYNs must come twice",
        "cookie" => "SYNs are answered by cookies",
        "hold_off" => "the source is held off",
        other => other,
    };
    format!(
        "{} {} (measured {}): {} to {}; {action}",
        attack.threshold,
        attack.limit,
        attack.measured,
        sources.join(", "),
        attack.destination,
    )
}

/// Says why better modes were refused to a port: a line each.
pub(crate) fn refusals(port: &PortInfo, indent: &str) -> String {
    port.refused
        .iter()
        .map(|refused| format!("{indent}{WARN}{}: refused {refused}{WARN:#}\n", port.name))
        .collect()
}

fn workers(workers: &[WorkerInfo]) -> String {
    let mut table = Table::new(&[
        "worker",
        "cpu",
        "state",
        ">poll",
        ">nap",
        ">interrupt",
        ">cpu time",
        ">polls",
        ">empty",
        ">wake-ups",
        ">naps",
        ">flips",
        ">frames free",
    ]);
    for worker in workers {
        let time = &worker.time;
        table.row([
            worker.id.to_string(),
            worker
                .cpu
                .map_or_else(|| "any".into(), |cpu| cpu.to_string()),
            worker.state.name().into(),
            output::duration(time.poll_ns),
            output::duration(time.nap_ns),
            output::duration(time.interrupt_ns),
            output::duration(worker.cpu_ns),
            output::si(worker.polls as f64),
            output::percent(share(worker.empty_polls, worker.polls)),
            output::si(wakeups(worker) as f64),
            output::si(worker.naps as f64),
            worker.flips.to_string(),
            format!("{} of {}", worker.frames_free, worker.frames),
        ]);
    }
    let mut out = table.render(0);
    let mut bursts = BurstHistogram::default();
    for worker in workers {
        for (sum, count) in bursts.buckets.iter_mut().zip(worker.bursts.buckets) {
            *sum += count;
        }
    }
    let total = bursts.total();
    if total > 0 {
        let classes: Vec<_> = BurstHistogram::LABELS
            .iter()
            .zip(bursts.buckets)
            .filter(|(_, count)| *count > 0)
            .map(|(label, count)| format!("{label}: {}", output::percent(share(count, total))))
            .collect();
        out.push_str(&format!("burst sizes  {}\n", classes.join(", ")));
    }
    out
}

fn stages(stats: &Stats) -> String {
    let mut table = Table::new(&[
        "stage",
        ">pkts",
        ">batches",
        ">pkts/batch",
        ">dropped",
        "edges",
    ]);
    for stage in stats.stages.iter().filter(|stage| stage.batches > 0) {
        let edges: Vec<_> = stage
            .edges
            .iter()
            .filter(|edge| edge.pkts > 0)
            .map(|edge| format!("{} {}", edge.name, edge.pkts))
            .collect();
        table.row([
            stage.name.clone(),
            stage.pkts.to_string(),
            stage.batches.to_string(),
            format!("{:.1}", stage.pkts as f64 / stage.batches as f64),
            stage.dropped_pkts.to_string(),
            edges.join(", "),
        ]);
    }
    table.render(0)
}

/// Writes the drops by reason, or that there are none.
pub(crate) fn drops(stats: &Stats) -> String {
    if stats.drops.is_empty() {
        return "no drops\n".to_owned();
    }
    let mut table = Table::new(&["drop reason", ">pkts", "what happened"]);
    for drop in &stats.drops {
        let style = match drop.severity {
            DropSeverity::Info => FAINT,
            DropSeverity::Warning => WARN,
            DropSeverity::Error => BAD,
        };
        table.styled([
            (drop.reason.clone(), style),
            (drop.pkts.to_string(), PLAIN),
            (format!("{} ({})", drop.text, drop.source), PLAIN),
        ]);
    }
    table.render(0)
}

const PLAIN: anstyle::Style = anstyle::Style::new();

fn alarm(pkts: u64) -> (String, anstyle::Style) {
    (pkts.to_string(), if pkts == 0 { PLAIN } else { BAD })
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

fn wakeups(worker: &WorkerInfo) -> u64 {
    worker.wakeups_packet + worker.wakeups_timer + worker.wakeups_message
}

/// What happened between two readings, by second.
#[derive(Clone, Debug)]
pub(crate) struct Rates {
    /// Length of the interval, seconds.
    pub(crate) seconds: f64,
    /// The ports, in order.
    pub(crate) ports: Vec<PortRate>,
    /// The workers, in order.
    pub(crate) workers: Vec<WorkerRate>,
    /// Drops by reason: name, packets a second, packets since the start.
    pub(crate) drops: Vec<(String, f64, u64)>,
}

/// A port's rates.
#[derive(Clone, Debug)]
pub(crate) struct PortRate {
    pub(crate) name: String,
    pub(crate) rx_pps: f64,
    pub(crate) rx_bytes_s: f64,
    pub(crate) tx_pps: f64,
    pub(crate) tx_bytes_s: f64,
    pub(crate) lost_pps: f64,
}

/// A worker's rates and shares of time.
#[derive(Clone, Debug)]
pub(crate) struct WorkerRate {
    pub(crate) id: u16,
    pub(crate) state: &'static str,
    pub(crate) time: StateTimes,
    pub(crate) cpu: f64,
    pub(crate) pps: f64,
    pub(crate) wakeups_s: f64,
    pub(crate) naps_s: f64,
    pub(crate) flips_s: f64,
    pub(crate) empty: f64,
    pub(crate) pkts_per_burst: f64,
}

impl Rates {
    /// Compares two readings of one node.
    pub(crate) fn between(before: &Stats, now: &Stats) -> Self {
        let ns = now
            .node
            .uptime_ns
            .saturating_sub(before.node.uptime_ns)
            .max(1);
        let seconds = ns as f64 / 1e9;
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
        let ports = now.ports.iter().zip(&before.ports).map(|(now, before)| {
            let (n, b) = (&now.counters, &before.counters);
            let lost = |c: &control::api::PortCounters| {
                c.rx_ring_full_pkts + c.rx_no_frame_pkts + c.rx_invalid_pkts + c.tx_error_pkts
            };
            PortRate {
                name: now.name.clone(),
                rx_pps: rate(n.rx_pkts, b.rx_pkts),
                rx_bytes_s: rate(n.rx_bytes, b.rx_bytes),
                tx_pps: rate(n.tx_pkts, b.tx_pkts),
                tx_bytes_s: rate(n.tx_bytes, b.tx_bytes),
                lost_pps: rate(lost(n), lost(b)),
            }
        });
        let workers = now
            .workers
            .iter()
            .zip(&before.workers)
            .map(|(now, before)| WorkerRate::between(before, now, ns));
        let drops = now.drops.iter().map(|drop| {
            let earlier = before
                .drops
                .iter()
                .find(|other| other.reason == drop.reason);
            let earlier = earlier.map_or(0, |other| other.pkts);
            (drop.reason.clone(), rate(drop.pkts, earlier), drop.pkts)
        });
        Self {
            seconds,
            ports: ports.collect(),
            workers: workers.collect(),
            drops: drops.collect(),
        }
    }

    /// Writes the rates as tables.
    pub(crate) fn render(&self) -> String {
        let mut ports = Table::new(&["port", ">rx pkt/s", ">rx", ">tx pkt/s", ">tx", ">lost/s"]);
        for port in &self.ports {
            ports.styled([
                (port.name.clone(), HEADING),
                (output::si(port.rx_pps), PLAIN),
                (output::bits_per_second(port.rx_bytes_s), PLAIN),
                (output::si(port.tx_pps), PLAIN),
                (output::bits_per_second(port.tx_bytes_s), PLAIN),
                (
                    output::si(port.lost_pps),
                    if port.lost_pps > 0.0 { BAD } else { PLAIN },
                ),
            ]);
        }
        let mut workers = Table::new(&[
            "worker",
            "state",
            "time in poll/nap/interrupt",
            ">cpu",
            ">pkt/s",
            ">pkt/burst",
            ">empty polls",
            ">wake-ups/s",
            ">naps/s",
            ">flips/s",
        ]);
        for worker in &self.workers {
            workers.row([
                worker.id.to_string(),
                worker.state.to_owned(),
                format!("{} {}", bar(&worker.time, 12), shares(&worker.time)),
                output::percent(worker.cpu),
                output::si(worker.pps),
                format!("{:.1}", worker.pkts_per_burst),
                output::percent(worker.empty),
                output::si(worker.wakeups_s),
                output::si(worker.naps_s),
                output::si(worker.flips_s),
            ]);
        }
        let mut drops = Table::new(&["drop reason", ">pkt/s", ">pkts"]);
        for (reason, rate, total) in &self.drops {
            drops.row([reason.clone(), output::si(*rate), total.to_string()]);
        }
        let mut out = format!("{}\n{}", ports.render(0), workers.render(0));
        if !drops.is_empty() {
            out.push_str(&format!("\n{}", drops.render(0)));
        }
        out
    }
}

impl WorkerRate {
    fn between(before: &WorkerInfo, now: &WorkerInfo, ns: u64) -> Self {
        let seconds = ns as f64 / 1e9;
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
        let grown = |of: fn(&StateTimes) -> u64| of(&now.time).saturating_sub(of(&before.time));
        let bursts = now.bursts.total().saturating_sub(before.bursts.total());
        let rx_pkts = now.rx_pkts.saturating_sub(before.rx_pkts);
        let polls = now.polls.saturating_sub(before.polls);
        Self {
            id: now.id,
            state: now.state.name(),
            time: StateTimes {
                poll_ns: grown(|time| time.poll_ns),
                nap_ns: grown(|time| time.nap_ns),
                interrupt_ns: grown(|time| time.interrupt_ns),
            },
            cpu: share(now.cpu_ns.saturating_sub(before.cpu_ns), ns),
            pps: rx_pkts as f64 / seconds,
            wakeups_s: rate(wakeups(now), wakeups(before)),
            naps_s: rate(now.naps, before.naps),
            flips_s: rate(now.flips, before.flips),
            empty: share(now.empty_polls.saturating_sub(before.empty_polls), polls),
            pkts_per_burst: if bursts == 0 {
                0.0
            } else {
                rx_pkts as f64 / bursts as f64
            },
        }
    }
}

/// Writes the shares of time as "poll 12 %, nap 80 %, interrupt 8 %", the small ones left out.
pub(crate) fn shares(time: &StateTimes) -> String {
    let all = (time.poll_ns + time.nap_ns + time.interrupt_ns).max(1);
    let parts: Vec<_> = [
        ("poll", time.poll_ns),
        ("nap", time.nap_ns),
        ("interrupt", time.interrupt_ns),
    ]
    .into_iter()
    .map(|(name, ns)| (name, share(ns, all)))
    .filter(|(_, share)| *share >= 0.005)
    .map(|(name, share)| format!("{name} {}", output::percent(share)))
    .collect();
    parts.join(", ")
}

/// Draws the shares of time: `#` polling, `=` naps, `.` waiting for interrupts.
pub(crate) fn bar(time: &StateTimes, width: usize) -> String {
    let all = (time.poll_ns + time.nap_ns + time.interrupt_ns).max(1);
    let cells = |ns: u64| (share(ns, all) * width as f64).round() as usize;
    let poll = cells(time.poll_ns).min(width);
    let nap = cells(time.nap_ns).min(width - poll);
    format!(
        "{}{}{}",
        "#".repeat(poll),
        "=".repeat(nap),
        ".".repeat(width - poll - nap)
    )
}

#[cfg(test)]
mod tests {
    use control::api::{
        DriverCounter, DropInfo, EdgeInfo, FramesInfo, GraphNodeInfo, InterruptKind, NodeInfo,
        PortCounters, QueueInfo, Timestamp, WorkerState,
    };
    use wire::DropReason;

    use super::*;

    /// A node after `seconds` at `pps` packets a second through one worker.
    fn stats(seconds: u64, pps: u64) -> Stats {
        let ns = seconds * 1_000_000_000;
        let pkts = seconds * pps;
        let counters = PortCounters {
            rx_pkts: pkts,
            rx_bytes: pkts * 100,
            tx_pkts: pkts,
            tx_bytes: pkts * 100,
            rx_ring_full_pkts: seconds,
            ..PortCounters::default()
        };
        let port = PortInfo {
            id: 0,
            name: "wan".into(),
            driver: "af_xdp".into(),
            driver_asked: "auto".into(),
            mode: "native copy".into(),
            refused: vec!["native zero-copy: the driver has none".into()],
            interface: Some("eth0".into()),
            mac: "02:00:00:00:00:01".into(),
            mtu: 1500,
            addresses: vec!["192.0.2.1/24".into()],
            bridge: None,
            link: None,
            idle_mode: "hybrid".into(),
            up: true,
            counters,
            queues: vec![QueueInfo {
                id: 0,
                worker: 0,
                interrupt: InterruptKind::Level,
                zero_copy: false,
                rss: false,
                counters,
            }],
            driver_counters: ["rx_q0_errors", "rx_good_packets"]
                .into_iter()
                .zip([0, pkts])
                .map(|(name, value)| DriverCounter {
                    name: name.into(),
                    value,
                })
                .collect(),
        };
        let worker = WorkerInfo {
            id: 0,
            cpu: Some(1),
            state: WorkerState::Nap,
            time: StateTimes {
                poll_ns: ns / 4,
                nap_ns: ns / 2,
                interrupt_ns: ns / 4,
            },
            cpu_ns: ns / 5,
            polls: 40 * pkts,
            empty_polls: 30 * pkts,
            arm_ready: 1,
            wakeups_packet: 100 * seconds,
            wakeups_timer: seconds,
            wakeups_message: 0,
            naps: 10_000 * seconds,
            flips: seconds,
            bursts: BurstHistogram {
                buckets: [pkts / 10, pkts / 10, 0, 0, 0, 0, 0],
            },
            rx_pkts: pkts,
            tx_pkts: pkts,
            dropped_pkts: 3 * seconds,
            handoff_out_pkts: 0,
            handoff_in_pkts: 0,
            frames: 8192,
            frames_free: 4000,
            frames_free_min: 3900,
        };
        Stats {
            firewall: None,
            at: Timestamp::UNIX_EPOCH,
            node: NodeInfo {
                name: "edge".into(),
                version: "0.1.0".into(),
                pid: 42,
                started_at: Timestamp::UNIX_EPOCH,
                uptime_ns: ns,
                config_file: Some("/etc/tidegate/node.toml".into()),
                config_generation: 1,
                idle_mode: "hybrid".into(),
                latency_budget_us: 100,
                frames: FramesInfo {
                    per_worker: 8192,
                    frame_bytes: 2048,
                    pages: "huge 2 MiB".into(),
                    refused: None,
                },
            },
            workers: vec![worker],
            ports: vec![port],
            links: Vec::new(),
            stages: vec![GraphNodeInfo {
                name: "ip4-forward".into(),
                batches: pkts / 4,
                pkts,
                dropped_pkts: 3 * seconds,
                edges: vec![EdgeInfo {
                    name: "tx".into(),
                    pkts: pkts - 3 * seconds,
                }],
            }],
            drops: vec![DropInfo::new(DropReason::NoRoute, 3 * seconds)],
            ndn: None,
        }
    }

    fn plain(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    #[test]
    fn totals_are_as_recorded() {
        insta::assert_snapshot!(plain(&totals(&stats(60, 20_000))));
    }

    #[test]
    fn rates_are_as_recorded() {
        let rates = Rates::between(&stats(60, 20_000), &stats(62, 20_000));
        insta::assert_snapshot!(plain(&rates.render()));
    }

    #[test]
    fn node_that_did_nothing_divides_by_nothing() {
        let mut idle = stats(0, 0);
        idle.drops.clear();
        let rates = Rates::between(&idle, &idle);
        assert!(!plain(&rates.render()).contains("NaN"));
        assert!(plain(&totals(&idle)).contains("no drops"));
    }

    #[test]
    fn bar_is_as_long_as_asked() {
        for (poll_ns, nap_ns, interrupt_ns) in
            [(1, 1, 1), (0, 0, 0), (7, 0, 0), (1, 999, 0), (33, 33, 34)]
        {
            let time = StateTimes {
                poll_ns,
                nap_ns,
                interrupt_ns,
            };
            assert_eq!(bar(&time, 10).len(), 10, "{time:?}");
        }
    }
}
