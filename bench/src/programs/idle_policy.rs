//! Measures what waiting for packets costs and adds, by strategy and load:
//! `cargo run --release -p tidegate-bench -- idle_policy`.
//!
//! A source on one core sends stamped packets at independent times (Poisson) over a ring with an eventfd
//! doorbell; a worker on another core takes them. CPU is the worker thread's time on a core (schedstat),
//! latency runs from the source's stamp to the node that reads it. The static strategies are: always
//! poll, sleep whenever nothing is there, and naps of fixed lengths with interrupts off. Each cell is a
//! worker of its own, given time to settle; rounds are interleaved, cells are medians.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bench::load::{Latencies, Source, Target, ThreadClock, pair};
use bench::{Options, Plot, Report, Series, Table, median};
use clap::Parser;
use graph::idle::hybrid::HybridConfig;
use graph::{IdleConfig, Mode, Next, Worker, runner};
use io::Doorbell;
use io::wait::PollSet;
use serde_json::json;

/// Measures the idle policies.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    /// Latency budget, 99th percentile, microseconds.
    #[arg(long, default_value_t = 100)]
    budget_us: u64,
    /// Time that an adaptive strategy gets to settle, milliseconds.
    #[arg(long, default_value_t = 4000)]
    settle_ms: u64,
    /// Loads, packets a second; the highest is as fast as the ring takes.
    #[arg(long, value_delimiter = ',', default_values_t = [0.0, 1e3, 1e4, 1e5, 2.5e5, f64::INFINITY])]
    loads_pps: Vec<f64>,
    /// Steps of the load from nothing to 250 kpps and back.
    #[arg(long, default_value_t = 10)]
    steps: u32,
}

/// How a worker waits.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Strategy {
    Mode(Mode),
    /// Naps of fixed length.
    Nap(Duration),
}

impl Strategy {
    fn name(self) -> String {
        match self {
            Self::Mode(Mode::Poll) => "poll".into(),
            Self::Mode(Mode::Interrupt) => "interrupt".into(),
            Self::Mode(Mode::Paper) => "paper".into(),
            Self::Mode(Mode::Hybrid) => "hybrid".into(),
            Self::Nap(length) => format!("nap {} us", length.as_micros()),
        }
    }

    fn is_static(self) -> bool {
        !matches!(self, Self::Mode(Mode::Paper | Mode::Hybrid))
    }
}

const STRATEGIES: [Strategy; 8] = [
    Strategy::Mode(Mode::Poll),
    Strategy::Mode(Mode::Interrupt),
    Strategy::Nap(Duration::from_micros(25)),
    Strategy::Nap(Duration::from_micros(50)),
    Strategy::Nap(Duration::from_micros(75)),
    Strategy::Nap(Duration::from_micros(100)),
    Strategy::Mode(Mode::Paper),
    Strategy::Mode(Mode::Hybrid),
];

/// What one window showed.
#[derive(Clone, Copy, Debug)]
struct Cell {
    cpu_percent: f64,
    p50_us: f64,
    p99_us: f64,
    mpps: f64,
    flips_per_s: f64,
    wakeups_per_s: f64,
    lost_percent: f64,
}

/// A worker on its thread and the source that feeds it.
struct Running {
    source: Source,
    handle: graph::WorkerHandle,
    latencies: Arc<Latencies>,
    clock: ThreadClock,
    thread: std::thread::JoinHandle<()>,
}

/// The cores of source and worker: the first two that this process may use, asked before any pinning.
fn cores() -> (Option<u16>, Option<u16>) {
    static CORES: OnceLock<(Option<u16>, Option<u16>)> = OnceLock::new();
    *CORES.get_or_init(|| {
        let cpus = io::cpu::allowed().unwrap_or_default();
        (cpus.first().copied(), cpus.get(1).copied())
    })
}

fn start(strategy: Strategy, budget: Duration) -> Running {
    let mode = match strategy {
        Strategy::Mode(mode) => mode,
        Strategy::Nap(_) => Mode::Interrupt,
    };
    let idle = IdleConfig {
        hybrid: HybridConfig {
            latency_budget: budget,
            ..HybridConfig::default()
        },
        ..IdleConfig::default()
    };
    let (source, target) = pair(mode, idle);
    let Target {
        worker,
        handle,
        latencies,
    } = target;
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let name = format!("idle-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    let thread = std::thread::Builder::new()
        .name(name.clone())
        .spawn(move || {
            if let Some(cpu) = cores().1 {
                // Unpinned, the figures are those of an unpinned worker.
                let _ = io::cpu::pin(cpu);
            }
            match strategy {
                Strategy::Mode(_) => {
                    runner::run(worker);
                }
                Strategy::Nap(length) => run_napping(worker, length),
            }
        })
        .expect("a thread");
    Running {
        source,
        handle,
        latencies,
        clock: ThreadClock::of(&name),
        thread,
    }
}

/// Sleeps a fixed time whenever a pass finds nothing, with interrupts off.
fn run_napping(mut worker: Worker, length: Duration) {
    // Without it, naps are up to 50 us later.
    let _ = io::cpu::set_timer_slack_ns(1);
    loop {
        match worker.step(io::cpu::now()) {
            Next::Again => {}
            Next::Nap(_) | Next::Block(_) => std::thread::sleep(length),
            Next::Stopped => return,
        }
    }
}

impl Running {
    /// Measures one window at `rate_pps`, after `settle` at the same rate.
    fn measure(&mut self, rate_pps: f64, settle: Duration, window: Duration) -> Cell {
        let counters = Arc::clone(self.handle.counters());
        self.source.send(rate_pps, settle / 2);
        // Flips are few: they are counted over half of the settling time too.
        let (flips, flips_from) = (counters.flips.get(), io::cpu::now());
        self.source.send(rate_pps, settle / 2);
        self.latencies.reset();
        let wakeups = || {
            counters.wakeups_packet.get()
                + counters.wakeups_message.get()
                + counters.wakeups_timer.get()
                + counters.naps.get()
        };
        let wakeups_before = wakeups();
        let (sent, refused) = (self.source.sent, self.source.refused);
        let (start, cpu) = (io::cpu::now(), self.clock.read());
        self.source.send(rate_pps, window);
        let cpu = self.clock.read() - cpu;
        let seconds = (io::cpu::now() - start).as_secs_f64();
        std::thread::sleep(Duration::from_millis(5)); // what is under way arrives; counters are published
        let lost = (self.source.refused - refused) as f64;
        let offered = (self.source.sent - sent) as f64 + lost;
        Cell {
            cpu_percent: cpu.as_secs_f64() / seconds * 100.0,
            p50_us: self.latencies.quantile_us(0.5),
            p99_us: self.latencies.quantile_us(0.99),
            mpps: self.latencies.count() as f64 / seconds / 1e6,
            flips_per_s: (counters.flips.get() - flips) as f64
                / (io::cpu::now() - flips_from).as_secs_f64(),
            wakeups_per_s: (wakeups() - wakeups_before) as f64 / seconds,
            lost_percent: lost / offered.max(1.0) * 100.0,
        }
    }

    fn stop(mut self) {
        self.handle.drain().expect("the worker reads its mailbox");
        self.thread.join().expect("the worker ends");
    }
}

/// Measures steps of the load from nothing to 250 kpps and back; returns the most flips at one of them.
fn flips_per_step(budget: Duration, steps: u32) -> f64 {
    let mut running = start(Strategy::Mode(Mode::Hybrid), budget);
    let counters = Arc::clone(running.handle.counters());
    running.source.send(0.0, Duration::from_millis(300));
    let mut worst = 0;
    for _ in 0..steps {
        for rate_pps in [2.5e5, 0.0] {
            let before = counters.flips.get();
            running.source.send(rate_pps, Duration::from_millis(400));
            worst = worst.max(counters.flips.get() - before);
        }
    }
    running.stop();
    worst as f64
}

/// Measures how long a thread takes to wake by an eventfd when it is rung at independent times, about
/// `rate` a second; returns the median, microseconds.
fn raw_wake_us(rate: f64, window: Duration) -> f64 {
    let shared = Arc::new((Doorbell::new().expect("an eventfd"), AtomicU64::new(0)));
    let over = Arc::new(AtomicBool::new(false));
    let (tell, told) = std::sync::mpsc::channel();
    let (ringer, ended) = (Arc::clone(&shared), Arc::clone(&over));
    let sleeper = std::thread::spawn(move || {
        if let Some(cpu) = cores().1 {
            let _ = io::cpu::pin(cpu);
        }
        // The ringer waits for it: it may have the core to itself.
        let _ = tell.send(());
        let mut samples = Vec::new();
        let mut set = PollSet::with_capacity(1);
        while !ended.load(Ordering::Relaxed) {
            set.clear();
            set.add(std::os::fd::AsFd::as_fd(&shared.0));
            shared.0.prepare();
            set.wait(Some(Duration::from_millis(20)));
            let now = io::cpu::now().as_ns();
            let stamp = shared.1.swap(0, Ordering::AcqRel);
            shared.0.cancel();
            if stamp != 0 {
                samples.push(now.saturating_sub(stamp) as f64 / 1e3);
            }
        }
        samples
    });
    let _ = told.recv();
    let start = std::time::Instant::now();
    while start.elapsed() < window {
        let next = std::time::Instant::now() + Duration::from_secs_f64(1.0 / rate);
        while std::time::Instant::now() < next {
            std::hint::spin_loop();
        }
        ringer.1.store(io::cpu::now().as_ns(), Ordering::Release);
        ringer.0.ring();
    }
    over.store(true, Ordering::Relaxed);
    median(&sleeper.join().expect("the sleeper ends"))
}

pub(crate) fn main() {
    let arguments = bench::parse::<Arguments>();
    let options = &arguments.options;
    let budget = Duration::from_micros(arguments.budget_us);
    if let Some(cpu) = cores().0 {
        let _ = io::cpu::pin(cpu);
    }
    let loads = &arguments.loads_pps;
    let mut cells = vec![vec![Vec::new(); loads.len()]; STRATEGIES.len()];
    let mut raw_wake = Vec::new();
    for _ in 0..options.rounds {
        raw_wake.push(raw_wake_us(1e3, options.window()));
        for (load, &rate_pps) in loads.iter().enumerate() {
            for (index, &strategy) in STRATEGIES.iter().enumerate() {
                let settle = if strategy.is_static() {
                    Duration::from_millis(50)
                } else {
                    Duration::from_millis(arguments.settle_ms)
                };
                let mut running = start(strategy, budget);
                cells[index][load].push(running.measure(rate_pps, settle, options.window()));
                running.stop();
            }
        }
    }
    let medians: Vec<Vec<Cell>> = cells
        .iter()
        .map(|loads| loads.iter().map(|cells| middle(cells)).collect())
        .collect();
    let mut report = Report::new("idle_policy");
    tabulate(&mut report, loads, &medians);
    figures(&mut report, &arguments, &medians, median(&raw_wake));
    let steps = flips_per_step(budget, arguments.steps);
    report.figure("worst_flips_per_step", steps);
    report.print(options);
}

/// Returns the medians of all fields.
fn middle(cells: &[Cell]) -> Cell {
    let field = |f: fn(&Cell) -> f64| median(&cells.iter().map(f).collect::<Vec<_>>());
    Cell {
        cpu_percent: field(|c| c.cpu_percent),
        p50_us: field(|c| c.p50_us),
        p99_us: field(|c| c.p99_us),
        mpps: field(|c| c.mpps),
        flips_per_s: field(|c| c.flips_per_s),
        wakeups_per_s: field(|c| c.wakeups_per_s),
        lost_percent: field(|c| c.lost_percent),
    }
}

fn load_name(rate_pps: f64) -> String {
    if rate_pps.is_finite() {
        format!("{rate_pps} pps")
    } else {
        "highest".into()
    }
}

fn tabulate(report: &mut Report, loads: &[f64], medians: &[Vec<Cell>]) {
    let columns = [
        "load",
        "strategy",
        "CPU %",
        "p50 us",
        "p99 us",
        "Mpps",
        "lost %",
        "flips/s",
        "wake-ups/s",
    ];
    let mut table = Table::new("Waiting for packets: cost and latency", &columns);
    for (load, &rate_pps) in loads.iter().enumerate() {
        for (strategy, cells) in STRATEGIES.iter().zip(medians) {
            let cell = cells[load];
            table.rows.push(vec![
                json!(load_name(rate_pps)),
                json!(strategy.name()),
                json!(cell.cpu_percent),
                json!(cell.p50_us),
                json!(cell.p99_us),
                json!(cell.mpps),
                json!(cell.lost_percent),
                json!(cell.flips_per_s),
                json!(cell.wakeups_per_s.round()),
            ]);
        }
    }
    report.table(table);
    type Field = fn(&Cell) -> f64;
    let plots: [(&str, &str, Field); 2] = [
        ("CPU by load", "CPU, % of a core", |c| c.cpu_percent),
        ("99th percentile latency by load", "p99, us", |c| c.p99_us),
    ];
    for (title, y, field) in plots {
        let series = STRATEGIES
            .iter()
            .zip(medians)
            .map(|(strategy, cells)| Series {
                name: strategy.name(),
                points: loads
                    .iter()
                    .zip(cells)
                    .filter(|(rate, _)| rate.is_finite() && **rate > 0.0)
                    .map(|(&rate, cell)| (rate / 1e3, field(cell)))
                    .collect(),
            })
            .collect();
        report.plot(Plot {
            title: title.into(),
            x: "load, kpps".into(),
            y: y.into(),
            log_x: true,
            log_y: true,
            series,
        });
    }
}

fn figures(report: &mut Report, arguments: &Arguments, medians: &[Vec<Cell>], raw_wake_us: f64) {
    let loads = &arguments.loads_pps;
    let Some(hybrid) = medians.last() else { return };
    let (mut worst_cpu, mut worst_flips, mut over_budget) = (0.0_f64, 0.0_f64, 0.0_f64);
    for (load, &rate_pps) in loads.iter().enumerate() {
        let ours = hybrid[load];
        worst_flips = worst_flips.max(ours.flips_per_s);
        if rate_pps == 0.0 {
            report.figure("idle_cpu_percent", ours.cpu_percent);
            report.figure("idle_wakeups_per_s", ours.wakeups_per_s);
            continue;
        }
        if !rate_pps.is_finite() {
            continue; // every strategy polls, and the ring is always full
        }
        over_budget = over_budget.max(ours.p99_us / arguments.budget_us as f64);
        let cheapest = STRATEGIES
            .iter()
            .zip(medians)
            .filter(|(strategy, cells)| {
                strategy.is_static() && cells[load].p99_us <= arguments.budget_us as f64
            })
            .map(|(strategy, cells)| (strategy.name(), cells[load].cpu_percent))
            .min_by(|a, b| a.1.total_cmp(&b.1));
        match cheapest {
            Some((name, cpu_percent)) => {
                let ratio = ours.cpu_percent / cpu_percent;
                worst_cpu = worst_cpu.max(ratio);
                report.figure(&format!("cpu_ratio_{rate_pps}_pps"), ratio);
                report.note(format!(
                    "{}: the cheapest static strategy in the budget is {name}, {cpu_percent:.1} %; hybrid {:.1} %, p99 {:.0} us",
                    load_name(rate_pps),
                    ours.cpu_percent,
                    ours.p99_us
                ));
            }
            None => report.note(format!(
                "{}: no static strategy meets the budget; hybrid {:.1} %, p99 {:.0} us",
                load_name(rate_pps),
                ours.cpu_percent,
                ours.p99_us
            )),
        }
        if rate_pps == 1e3 {
            report.figure("wake_p50_ratio", ours.p50_us / raw_wake_us);
        }
    }
    report.figure("raw_wake_p50_us", raw_wake_us);
    report.figure("worst_cpu_ratio", worst_cpu);
    report.figure("worst_flips_per_s", worst_flips);
    report.figure("worst_p99_to_budget", over_budget);
}
