//! What the demo shows: a live table on a terminal, a report a phase elsewhere.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use control::api::{DemoPhase, DemoReport, DemoResult, PortInfo, Stats};
use crossterm::event::{self, Event};

use super::phases::Phase;
use super::terminal::RawMode;
use crate::exit::Failure;
use crate::output::{self, FAINT, GOOD, HEADING, WARN};
use crate::view::{self, Rates};

/// Between two pictures on a terminal.
const REDRAW: Duration = Duration::from_millis(500);
/// Phases that stay in sight on a terminal.
const PHASES_SHOWN: usize = 9;
const LEGEND: &str = "worker's time: # polling, = napping, . waiting for an interrupt";

/// Where the demo is shown.
#[derive(Debug)]
pub(super) struct Screen {
    kind: Kind,
    end: Arc<AtomicBool>,
    opening: String,
    phase: Option<Phase>,
    done: Vec<String>,
    last: Option<(Instant, Stats)>,
}

#[derive(Debug)]
enum Kind {
    /// Nothing but the report at the end.
    Silent,
    /// Lines.
    Plain,
    /// A picture that is drawn again and again.
    Live {
        /// Ends with this.
        _raw: RawMode,
    },
}

impl Screen {
    /// Finds out what there is to show on, and listens for SIGINT and SIGTERM.
    pub(super) fn new(silent: bool) -> Result<Self, Failure> {
        let end = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&end))?;
        }
        let kind = if silent {
            Kind::Silent
        } else if std::io::stdout().is_terminal() && std::io::stdin().is_terminal() {
            Kind::Live {
                _raw: RawMode::enter()?,
            }
        } else {
            Kind::Plain
        };
        Ok(Self {
            kind,
            end,
            opening: String::new(),
            phase: None,
            done: Vec::new(),
            last: None,
        })
    }

    /// Tells whether it is a terminal.
    pub(super) fn is_live(&self) -> bool {
        matches!(self.kind, Kind::Live { .. })
    }

    /// Tells whether a key was pressed or a signal came.
    pub(super) fn wants_to_end(&self) -> bool {
        self.end.load(Ordering::Relaxed)
    }

    /// Writes a line of talk to stderr.
    pub(super) fn line(&self, text: &str) -> Result<(), Failure> {
        if matches!(self.kind, Kind::Plain) {
            anstream::eprintln!("{FAINT}{text}{FAINT:#}");
        }
        Ok(())
    }

    /// Shows what was built and which modes the kernel allowed.
    pub(super) fn opening(
        &mut self,
        stats: &Stats,
        first_packet_ms: u64,
        user_namespace: bool,
    ) -> Result<(), Failure> {
        let who = if user_namespace {
            "as an ordinary user, inside a user namespace"
        } else {
            "as root"
        };
        let mut text = format!(
            "{HEADING}tidegate demo{HEADING:#}: real programs' packets through a node, {who}\n\n\
             \x20 client 10.1.0.2 ──── left {HEADING}[ node ]{HEADING:#} right ──── server 10.2.0.2\n\n"
        );
        text.push_str(&modes(&stats.ports));
        for worker in &stats.workers {
            let cpu = worker
                .cpu
                .map_or_else(|| "any CPU".into(), |cpu| format!("CPU {cpu}"));
            text.push_str(&format!(
                "  worker {} on {cpu}; idle mode {}, latency budget {} us\n",
                worker.id, stats.node.idle_mode, stats.node.latency_budget_us
            ));
        }
        text.push_str(&format!(
            "  first packet crossed {first_packet_ms} ms after the start\n"
        ));
        if matches!(self.kind, Kind::Plain) {
            output::print(&format!("{text}\n{FAINT}{LEGEND}{FAINT:#}\n\n"))?;
        }
        self.opening = text;
        Ok(())
    }

    /// Names the phase that runs from now on.
    pub(super) fn phase_begins(&mut self, phase: Phase) {
        self.phase = Some(phase);
    }

    /// Lets time pass: waits for `pause` or a key, and draws.
    pub(super) fn tick(&mut self, pause: Duration, stats: &Stats) -> Result<(), Failure> {
        if !self.is_live() {
            std::thread::sleep(pause);
            return Ok(());
        }
        if event::poll(pause)? && matches!(event::read()?, Event::Key(_)) {
            self.end.store(true, Ordering::Relaxed);
        }
        match &self.last {
            Some((at, before)) if at.elapsed() >= REDRAW => {
                let rates = Rates::between(before, stats);
                self.draw(stats, &rates)?;
                self.last = Some((Instant::now(), stats.clone()));
            }
            Some(_) => {}
            None => self.last = Some((Instant::now(), stats.clone())),
        }
        Ok(())
    }

    fn draw(&self, stats: &Stats, rates: &Rates) -> Result<(), Failure> {
        let mut text = format!("{FAINT}press any key to end{FAINT:#}\n{}\n", self.opening);
        if let Some(phase) = self.phase {
            text.push_str(&format!(
                "now {HEADING}{}{HEADING:#}: {}\n\n",
                phase.name(),
                phase.text()
            ));
        }
        text.push_str(&rates.render());
        if stats.drops.is_empty() {
            text.push_str("\nno drops so far\n");
        }
        text.push('\n');
        for line in self.done.iter().rev().take(PHASES_SHOWN).rev() {
            text.push_str(line);
        }
        text.push_str(&format!(
            "\n{FAINT}{LEGEND}\npress any key to end{FAINT:#}\n"
        ));
        // raw mode does not return the carriage by itself
        output::print(&text.replace('\n', "\r\n"))
    }

    /// Shows what a phase came to.
    pub(super) fn phase_done(&mut self, phase: &DemoPhase) -> Result<(), Failure> {
        let text = describe(phase);
        if matches!(self.kind, Kind::Plain) {
            output::print(&text)?;
        }
        self.done.push(text);
        Ok(())
    }

    /// Leaves the terminal as it was and shows the summary.
    pub(super) fn close(self, report: &DemoReport) -> Result<(), Failure> {
        let live = self.is_live();
        let silent = matches!(self.kind, Kind::Silent);
        drop(self.kind);
        if silent {
            return Ok(());
        }
        let mut text = String::new();
        if live {
            text.push_str(&format!("\x1b[H\x1b[J{}\n", self.opening));
            self.done.iter().for_each(|line| text.push_str(line));
        }
        text.push('\n');
        text.push_str(&summary(report));
        output::print(&text)
    }
}

/// Says which driver and mode each port got, and why better ones were refused; ports that are alike
/// share a line.
fn modes(ports: &[PortInfo]) -> String {
    let alike = |a: &PortInfo, b: &PortInfo| {
        a.driver == b.driver && a.mode == b.mode && a.refused == b.refused
    };
    let mut text = String::new();
    for (index, port) in ports.iter().enumerate() {
        if ports[..index].iter().any(|earlier| alike(earlier, port)) {
            continue;
        }
        let names: Vec<_> = ports
            .iter()
            .filter(|other| alike(port, other))
            .map(|other| other.name.as_str())
            .collect();
        text.push_str(&format!(
            "  {}: {GOOD}{}{GOOD:#} {}\n",
            names.join(", "),
            port.driver,
            port.mode
        ));
        for reason in &port.refused {
            text.push_str(&format!("    {WARN}refused{WARN:#} {reason}\n"));
        }
    }
    text
}

fn summary(report: &DemoReport) -> String {
    let sum = |of: fn(&control::api::PortCounters) -> u64| -> u64 {
        report
            .stats
            .ports
            .iter()
            .map(|port| of(&port.counters))
            .sum()
    };
    let dropped: u64 = report.stats.drops.iter().map(|drop| drop.pkts).sum();
    let lost =
        sum(|c| c.rx_ring_full_pkts + c.rx_no_frame_pkts + c.rx_invalid_pkts + c.tx_error_pkts);
    let mut attacks = String::new();
    let guard = report.stats.firewall.as_ref();
    for attack in guard
        .iter()
        .filter_map(|info| info.guard.as_ref())
        .flat_map(|guard| &guard.attacks)
    {
        attacks.push_str(&format!(
            "{WARN}stopped{WARN:#} {}\n",
            view::attack_line(attack)
        ));
    }
    format!(
        "{attacks}in all  {} packets received, {} sent, {} dropped with a reason, {} lost by drivers\n\n{}\n\
         {FAINT}The node, its programs and its namespaces are gone; nothing is left on this machine.\n\
         Next: `tidegate doctor`, then `tidegate run -c node.toml` (files to start from: examples/).{FAINT:#}\n",
        sum(|c| c.rx_pkts),
        sum(|c| c.tx_pkts),
        dropped,
        lost,
        view::drops(&report.stats),
    )
}

fn describe(phase: &DemoPhase) -> String {
    let seconds = (phase.duration_ns as f64 / 1e9).max(1e-9);
    let outcome = match phase.result {
        DemoResult::Quiet => "nobody sends".to_owned(),
        DemoResult::Ping {
            answered,
            rtt_p50_ns,
            rtt_max_ns,
        } => format!(
            "{answered} answers; round trip p50 {}, longest {}",
            output::duration(rtt_p50_ns),
            output::duration(rtt_max_ns)
        ),
        DemoResult::Download { bytes } => format!(
            "{} by HTTP over TCP, {}; masqueraded, every byte compared",
            output::bytes(bytes),
            output::bits_per_second(bytes as f64 / seconds)
        ),
        DemoResult::Stream {
            sent_pkts,
            received_pkts,
            reordered_pkts,
        } => format!(
            "{received_pkts} of {sent_pkts} UDP datagrams arrived, {reordered_pkts} out of order"
        ),
        DemoResult::Scan {
            sent_pkts,
            stopped_pkts,
        } => format!(
            "{sent_pkts} SYNs to the client's ports from outside: {} stopped by the firewall",
            stopped_pkts.min(sent_pkts)
        ),
        DemoResult::Flood {
            sent_pkts,
            stopped_pkts,
            bytes,
        } => format!(
            "{sent_pkts} forged SYNs from outside: {} stopped, no state; the client downloaded {} meanwhile",
            stopped_pkts.min(sent_pkts),
            output::bytes(bytes)
        ),
        DemoResult::Strays { sent_pkts } => format!(
            "{sent_pkts} packets without a route or with TTL 1: {} dropped, with reasons below",
            phase.dropped_pkts
        ),
    };
    format!(
        "{HEADING}{:<9}{HEADING:#} {outcome}\n\
         \x20         node {} pkt/s in, {} pkt/s out; worker [{}] {}, CPU {}, {} wake-ups/s, {}\n",
        phase.name,
        output::si(phase.rx_pkts as f64 / seconds),
        output::si(phase.tx_pkts as f64 / seconds),
        view::bar(&phase.time, 10),
        view::shares(&phase.time),
        output::percent(phase.cpu_ns as f64 / phase.duration_ns.max(1) as f64),
        output::si(phase.wakeups as f64 / seconds),
        match phase.flips {
            1 => "1 flip".to_owned(),
            n => format!("{n} flips"),
        },
    )
}
