//! Measures what waiting for packets costs and adds, by strategy and load:
//! `cargo run --release -p tidegate-bench -- idle_policy`.
//!
//! A source on one core sends stamped packets at independent times (Poisson) over a ring with an eventfd
//! doorbell; a worker on another core takes them. CPU is the worker thread's time on a core (schedstat),
//! latency runs from the source's stamp to the node that reads it. The static strategies are: always
//! poll, sleep whenever nothing is there, and naps of fixed lengths with interrupts off. The hybrid policy
//! runs with two latency budgets, which follow from how late sleeps end on this machine in this minute: one
//! that sleeping meets, and one that it does not. Each cell is a worker of its own, given time to settle.
//!
//! A host that takes the worker's core away for a few milliseconds spoils the 99th percentile of a window,
//! whatever the strategy. So the windows are short and many, in interleaved rounds that run through the
//! strategies forwards and backwards; a cell is the median of its windows, and the worst ratios are taken
//! over these medians. A window in which the host took more than 1 % of the worker's core (steal in
//! `/proc/stat`) is measured again once, for every strategy alike; how many were is said, and so is the
//! steal of the windows that count. All takes about five minutes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bench::load::{Latencies, Source, Target, ThreadClock, pair};
use bench::{Options, Plot, Report, Series, Table, median};
use clap::Parser;
use graph::{IdleConfig, Mode, Next, Worker, runner};
use io::Doorbell;
use io::wait::PollSet;
use serde_json::json;

/// Measures the idle policies.
#[derive(Debug, Parser)]
struct Arguments {
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
    /// Interleaved rounds; figures are medians over them.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Latency budgets, 99th percentile, microseconds, with commas; the first is for sleeping. By default
    /// 2.5 times the 99th percentile lateness of a sleep, and half of its median.
    #[arg(long, value_delimiter = ',')]
    budgets_us: Vec<u64>,
    /// Time that the hybrid policy gets to settle, milliseconds.
    #[arg(long, default_value_t = 1000)]
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
    Poll,
    Interrupt,
    /// Naps of fixed length.
    Nap(Duration),
    Paper,
    /// Within a latency budget.
    Hybrid(Duration),
}

impl Strategy {
    /// All of them, for these budgets.
    fn all(budgets: &[Duration]) -> Vec<Self> {
        let naps = [50, 100, 200].map(|us| Self::Nap(Duration::from_micros(us)));
        let mut all = vec![Self::Poll, Self::Interrupt];
        all.extend(naps);
        all.push(Self::Paper);
        all.extend(budgets.iter().map(|&budget| Self::Hybrid(budget)));
        all
    }

    fn name(self) -> String {
        match self {
            Self::Poll => "poll".into(),
            Self::Interrupt => "interrupt".into(),
            Self::Nap(length) => format!("nap {} us", length.as_micros()),
            Self::Paper => "paper".into(),
            Self::Hybrid(budget) => format!("hybrid, budget {} us", budget.as_micros()),
        }
    }

    fn mode(self) -> Mode {
        match self {
            Self::Poll => Mode::Poll,
            Self::Interrupt | Self::Nap(_) => Mode::Interrupt,
            Self::Paper => Mode::Paper,
            Self::Hybrid(_) => Mode::Hybrid,
        }
    }

    fn is_static(self) -> bool {
        !matches!(self, Self::Paper | Self::Hybrid(_))
    }

    /// Time to settle before a window.
    fn settle(self, hybrid: Duration) -> Duration {
        match self {
            // It polls soon.
            Self::Hybrid(budget) if budget < LOOSE => Duration::from_millis(250),
            Self::Hybrid(_) => hybrid,
            Self::Paper => Duration::from_millis(200),
            _ => Duration::from_millis(50),
        }
    }
}

/// Budgets from here on are met by sleeping.
const LOOSE: Duration = Duration::from_micros(100);
/// Share of the worker's core that the host may take in a window before it is measured again.
const STOLEN: f64 = 0.01;

/// Length of a window: long enough for a 99th percentile.
fn window(rate_pps: f64) -> Duration {
    Duration::from_millis(match rate_pps {
        0.0 => 300,
        ..5e3 => 600,
        ..5e4 => 400,
        _ => 300,
    })
}

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
    /// Share of the worker's core that the host took.
    stolen: f64,
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

/// Returns for how long the host has taken the worker's core so far, of all cores where the worker has none.
fn stolen() -> Duration {
    let line = cores().1.map_or("cpu ".into(), |cpu| format!("cpu{cpu} "));
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let times = stat.lines().find_map(|times| times.strip_prefix(&line));
    // proc_stat(5): user, nice, system, idle, iowait, irq, softirq, steal, in hundredths of a second.
    let steal = times.and_then(|times| times.split_whitespace().nth(7)?.parse().ok());
    Duration::from_millis(10 * steal.unwrap_or(0_u64))
}

fn start(strategy: Strategy) -> Running {
    let mut idle = IdleConfig::default();
    if let Strategy::Hybrid(budget) = strategy {
        idle.hybrid.latency_budget = budget;
    }
    let (source, target) = pair(strategy.mode(), idle);
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
                Strategy::Nap(length) => run_napping(worker, length),
                _ => {
                    runner::run(worker);
                }
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
        let (start, cpu, stolen_before) = (io::cpu::now(), self.clock.read(), stolen());
        self.source.send(rate_pps, window);
        let cpu = self.clock.read() - cpu;
        let seconds = (io::cpu::now() - start).as_secs_f64();
        let stolen = (stolen() - stolen_before).as_secs_f64() / seconds;
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
            stolen,
        }
    }

    fn stop(mut self) {
        self.handle.drain().expect("the worker reads its mailbox");
        self.thread.join().expect("the worker ends");
    }
}

/// Lets the loads, each in turn, be steady for a while; returns the most flips a second of any of them,
/// after the time in which the policy learns what sleeping costs here.
fn flips_at_steady_load(strategy: Strategy, loads: &[f64]) -> f64 {
    const LEARNED: Duration = Duration::from_secs(3);
    const COUNTED: Duration = Duration::from_secs(3);
    let mut worst = 0.0_f64;
    for &rate_pps in loads.iter().filter(|rate| rate.is_finite()) {
        let mut running = start(strategy);
        let counters = Arc::clone(running.handle.counters());
        running.source.send(rate_pps, LEARNED);
        let before = counters.flips.get();
        running.source.send(rate_pps, COUNTED);
        let flips = (counters.flips.get() - before) as f64;
        worst = worst.max(flips / COUNTED.as_secs_f64());
        running.stop();
    }
    worst
}

/// Measures steps of the load from nothing to 250 kpps and back; returns the most flips at one of them.
fn flips_per_step(strategy: Strategy, steps: u32) -> f64 {
    let mut running = start(strategy);
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
/// `rate` a second; returns all times, microseconds.
fn raw_wakes_us(rate: f64, window: Duration) -> Vec<f64> {
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
    sleeper.join().expect("the sleeper ends")
}

/// Returns a quantile of samples.
fn quantile(mut samples: Vec<f64>, quantile: f64) -> f64 {
    samples.sort_by(f64::total_cmp);
    let last = samples.len().saturating_sub(1);
    let index = (samples.len() as f64 * quantile) as usize;
    samples.get(index.min(last)).copied().unwrap_or(f64::NAN)
}

/// Chooses the budgets from wakes of a raw thread: one that sleeping meets, and one that it does not.
fn budgets(arguments: &Arguments) -> Vec<Duration> {
    if !arguments.budgets_us.is_empty() {
        let us = arguments.budgets_us.iter();
        return us.map(|&us| Duration::from_micros(us)).collect();
    }
    let wakes: Vec<f64> = (0..3)
        .flat_map(|_| raw_wakes_us(2e3, Duration::from_millis(600)))
        .collect();
    let tens = |us: f64| Duration::from_micros((us / 10.0).ceil() as u64 * 10);
    let loose = tens(2.5 * quantile(wakes.clone(), 0.99));
    let tight = tens(0.5 * quantile(wakes, 0.5));
    vec![loose.max(LOOSE), tight]
}

pub(crate) fn main() {
    let arguments = bench::parse::<Arguments>();
    if let Some(cpu) = cores().0 {
        let _ = io::cpu::pin(cpu);
    }
    let mut report = Report::new("idle_policy");
    let budgets = budgets(&arguments);
    let strategies = Strategy::all(&budgets);
    let loads = &arguments.loads_pps;
    let settle = Duration::from_millis(arguments.settle_ms);
    let mut cells = vec![vec![Vec::new(); loads.len()]; strategies.len()];
    let mut raw_wakes = Vec::new();
    let mut repeated = 0;
    for round in 0..arguments.rounds {
        raw_wakes.extend(raw_wakes_us(1e3, window(1e3)));
        for (load, &rate_pps) in loads.iter().enumerate() {
            let mut order: Vec<usize> = (0..strategies.len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for index in order {
                let strategy = strategies[index];
                let measure = || {
                    let mut running = start(strategy);
                    let cell = running.measure(rate_pps, strategy.settle(settle), window(rate_pps));
                    running.stop();
                    cell
                };
                let mut cell = measure();
                if cell.stolen > STOLEN {
                    repeated += 1;
                    cell = measure();
                }
                cells[index][load].push(cell);
            }
        }
    }
    let all: Vec<Cell> = cells.iter().flatten().flatten().copied().collect();
    let stolen = all.iter().filter(|cell| cell.stolen > STOLEN).count();
    let mean = all.iter().map(|cell| cell.stolen).sum::<f64>() / all.len().max(1) as f64;
    report.note(format!(
        "the host took more than {:.0} % of the worker's core in {repeated} windows, which were measured again, \
         and in {stolen} of the {} that count; {:.2} % in the mean of these",
        STOLEN * 100.0,
        all.len(),
        mean * 100.0
    ));
    let measured = Measured {
        strategies,
        loads: loads.clone(),
        cells: cells
            .iter()
            .map(|loads| loads.iter().map(|cells| middle(cells)).collect())
            .collect(),
        raw_wake_us: median(&raw_wakes),
    };
    measured.tabulate(&mut report);
    measured.plot(&mut report);
    measured.figures(&mut report);
    if let Some(&budget) = budgets.first() {
        let flips = flips_at_steady_load(Strategy::Hybrid(budget), loads);
        report.figure("worst_flips_per_s", flips);
        let steps = flips_per_step(Strategy::Hybrid(budget), arguments.steps);
        report.figure("worst_flips_per_step", steps);
    }
    report.print(&Options {
        json: arguments.json,
        ..Options::default()
    });
}

/// Names a load.
fn load_name(rate_pps: f64) -> String {
    if rate_pps.is_finite() {
        format!("{rate_pps} pps")
    } else {
        "highest".into()
    }
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
        stolen: field(|c| c.stolen),
    }
}

/// The medians of all rounds.
struct Measured {
    strategies: Vec<Strategy>,
    loads: Vec<f64>,
    /// By strategy and load.
    cells: Vec<Vec<Cell>>,
    raw_wake_us: f64,
}

impl Measured {
    fn tabulate(&self, report: &mut Report) {
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
        for (load, &rate_pps) in self.loads.iter().enumerate() {
            for (strategy, cells) in self.strategies.iter().zip(&self.cells) {
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
    }

    fn plot(&self, report: &mut Report) {
        type Field = fn(&Cell) -> f64;
        let plots: [(&str, &str, Field); 3] = [
            ("CPU by load", "CPU, % of a core", |c| c.cpu_percent),
            ("Median latency by load", "p50, us", |c| c.p50_us),
            ("99th percentile latency by load", "p99, us", |c| c.p99_us),
        ];
        for (title, y, field) in plots {
            let series = self.strategies.iter().zip(&self.cells);
            let series = series.map(|(strategy, cells)| Series {
                name: strategy.name(),
                points: self
                    .loads
                    .iter()
                    .zip(cells)
                    .filter(|(rate, _)| rate.is_finite() && **rate > 0.0)
                    .map(|(&rate, cell)| (rate / 1e3, field(cell)))
                    .collect(),
            });
            report.plot(Plot {
                title: title.into(),
                x: "load, kpps".into(),
                y: y.into(),
                log_x: true,
                log_y: true,
                series: series.collect(),
            });
        }
    }

    /// Finds the cheapest static strategy whose 99th percentile is in the budget.
    fn cheapest(&self, load: usize, budget: Duration) -> Option<(Strategy, f64)> {
        let budget_us = budget.as_secs_f64() * 1e6;
        self.strategies
            .iter()
            .zip(&self.cells)
            .filter(|(strategy, cells)| strategy.is_static() && cells[load].p99_us <= budget_us)
            .map(|(&strategy, cells)| (strategy, cells[load].cpu_percent))
            .min_by(|a, b| a.1.total_cmp(&b.1))
    }

    fn figures(&self, report: &mut Report) {
        let mut worst = Worst::default();
        for (strategy, cells) in self.strategies.iter().zip(&self.cells) {
            let Strategy::Hybrid(budget) = *strategy else {
                continue;
            };
            for (load, (&rate_pps, cell)) in self.loads.iter().zip(cells).enumerate() {
                if rate_pps == 0.0 {
                    worst.idle_cpu = worst.idle_cpu.max(cell.cpu_percent);
                    worst.idle_wakeups = worst.idle_wakeups.max(cell.wakeups_per_s);
                } else if rate_pps.is_finite() {
                    // At the highest load every strategy polls, and the ring is always full.
                    let cheapest = self.cheapest(load, budget);
                    worst.compare(report, (*strategy, rate_pps), cell, cheapest);
                }
            }
        }
        report.figure("raw_wake_p50_us", self.raw_wake_us);
        // A worker that sleeps by interrupt, as the hybrid policy does in Wait: the same sleep.
        let interrupt = self.strategies.iter().position(|&s| s == Strategy::Interrupt);
        let slow = self.loads.iter().position(|&rate_pps| rate_pps == 1e3);
        if let Some((strategy, load)) = interrupt.zip(slow) {
            let p50_us = self.cells[strategy][load].p50_us;
            report.figure("wake_p50_ratio", p50_us / self.raw_wake_us);
        }
        report.figure("idle_cpu_percent", worst.idle_cpu);
        report.figure("idle_wakeups_per_s", worst.idle_wakeups);
        report.figure("worst_cpu_ratio", worst.cpu_ratio);
        report.figure("worst_p99_to_budget", worst.p99_to_budget);
        report.figure("compared", worst.compared);
    }
}

/// The worst of all loads and budgets.
#[derive(Debug, Default)]
struct Worst {
    idle_cpu: f64,
    idle_wakeups: f64,
    cpu_ratio: f64,
    p99_to_budget: f64,
    /// Loads and budgets of which there is something to say.
    compared: f64,
}

impl Worst {
    /// Holds the hybrid policy against the cheapest static strategy that meets the budget. Where none does,
    /// not even polling, the machine was too busy for it: that is said, and shows nothing of the policy.
    fn compare(
        &mut self,
        report: &mut Report,
        (strategy, rate_pps): (Strategy, f64),
        cell: &Cell,
        cheapest: Option<(Strategy, f64)>,
    ) {
        let Strategy::Hybrid(budget) = strategy else {
            return;
        };
        let ours = format!(
            "{}, {}: {:.1} %, p99 {:.0} us",
            load_name(rate_pps),
            strategy.name(),
            cell.cpu_percent,
            cell.p99_us
        );
        let Some((static_strategy, cpu_percent)) = cheapest else {
            report.note(format!("{ours}; no static strategy meets the budget"));
            return;
        };
        self.compared += 1.0;
        self.cpu_ratio = self.cpu_ratio.max(cell.cpu_percent / cpu_percent);
        let to_budget = cell.p99_us / 1e6 / budget.as_secs_f64();
        self.p99_to_budget = self.p99_to_budget.max(to_budget);
        report.note(format!(
            "{ours}; the cheapest static strategy in the budget: {}, {cpu_percent:.1} %",
            static_strategy.name()
        ));
    }
}
