//! Looks for cache lines that two workers of one node share and that one of them writes while it routes:
//! `cargo run --release -p tidegate-bench -- shared_writes` (Debian package `valgrind`).
//!
//! valgrind (lackey) writes down every load and store of a process in which first one worker, then the other
//! takes steps; a line that one wrote and the other touched is shared. The stack, which in the node each worker
//! has of its own, does not count. As a check of the method a second run lets both count in one place, which must
//! be seen.

use std::collections::HashSet;
use std::hint::black_box;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};
use bench::workers::routers;
use bench::{Options, Report};
use clap::Parser;

/// Looks for cache lines that workers share and write.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    /// Steps of each worker; one takes a burst from each of two ports.
    #[arg(long, default_value_t = 20)]
    steps: u32,
    #[arg(long, hide = true)]
    child: bool,
    #[arg(long, hide = true)]
    together: bool,
}

/// Bytes of a cache line.
const LINE_BYTES: u64 = 64;
/// Part of the stack below and above the caller that steps may use, bytes.
const STACK_BYTES: (u64, u64) = (1 << 20, 1 << 16);
/// A store here ends a phase.
static MARK: AtomicU64 = AtomicU64::new(0);
/// What both workers count in for the check of the method.
static TOGETHER: AtomicU64 = AtomicU64::new(0);

fn address<T>(value: &T) -> u64 {
    std::ptr::from_ref(value) as u64
}

/// The process that is watched.
fn child(arguments: &Arguments) -> Result<()> {
    let mut workers = routers(1024, 64);
    let steps = |workers: &mut Vec<(graph::Worker, _)>, worker: usize| {
        for _ in 0..arguments.steps {
            black_box(workers[worker].0.step(wire::Instant::from_ns(1_000_000)));
            if arguments.together {
                TOGETHER.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    // Tables and pools are warm.
    steps(&mut workers, 0);
    steps(&mut workers, 1);
    let here = 0_u8;
    println!("{} {}", address(&MARK), address(&here));
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    let before = workers.each_sent();
    for worker in 0..2 {
        MARK.store(1, Ordering::Relaxed);
        steps(&mut workers, worker);
    }
    MARK.store(2, Ordering::Relaxed);
    println!("{}", workers.each_sent() - before);
    Ok(())
}

trait Sent {
    /// Returns the packets that all have sent.
    fn each_sent(&self) -> u64;
}

impl<H> Sent for Vec<(graph::Worker, H)> {
    fn each_sent(&self) -> u64 {
        let sent = self.iter().map(|(worker, _)| worker.counters().tx_pkts.get());
        sent.sum()
    }
}

/// Lines that one worker touched, and those of them that it wrote.
#[derive(Debug, Default)]
struct Lines {
    touched: HashSet<u64>,
    written: HashSet<u64>,
    stores: u64,
}

/// What one run showed.
struct Seen {
    pkts: u64,
    workers: [Lines; 2],
}

impl Seen {
    fn shared(&self) -> usize {
        let [a, b] = &self.workers;
        let shared = a.written.intersection(&b.touched);
        shared.chain(b.written.intersection(&a.touched)).collect::<HashSet<_>>().len()
    }
}

/// Runs the child under valgrind.
fn watch(arguments: &Arguments, together: bool) -> Result<Seen> {
    let mut command = Command::new("valgrind");
    command.args(["--tool=lackey", "--trace-mem=yes"]);
    command.arg(std::env::current_exe()?);
    command.args(["shared_writes", "--child", "--steps"]);
    command.arg(arguments.steps.to_string());
    command.args(together.then_some("--together"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("start valgrind (Debian package `valgrind`)")?;
    let mut input = child.stdin.take().context("no input")?;
    let mut output = BufReader::new(child.stdout.take().context("no output")?);
    let trace = BufReader::new(child.stderr.take().context("no trace")?);
    let (mark, here) = (AtomicU64::new(0), AtomicU64::new(0));
    let (pkts, workers) = std::thread::scope(|scope| {
        let reader = scope.spawn(|| read_trace(trace, &mark, &here));
        let mut line = String::new();
        output.read_line(&mut line)?;
        let (its_mark, its_here) = line.trim().split_once(' ').context("no addresses")?;
        here.store(its_here.parse()?, Ordering::Relaxed);
        mark.store(its_mark.parse()?, Ordering::Release);
        input.write_all(b"go\n")?;
        let mut line = String::new();
        output.read_line(&mut line)?;
        let workers = reader.join().ok().context("the trace cannot be read")??;
        Ok::<_, anyhow::Error>((line.trim().parse()?, workers))
    })?;
    ensure!(child.wait()?.success(), "valgrind fails");
    ensure!(pkts > 0, "nothing was forwarded");
    Ok(Seen { pkts, workers })
}

/// Reads lackey's lines: ` S 1ffeffe7e0,8` is a store, ` L` a load, ` M` both, `I` an instruction.
fn read_trace(mut trace: impl BufRead, mark: &AtomicU64, here: &AtomicU64) -> Result<[Lines; 2]> {
    let mut workers = [Lines::default(), Lines::default()];
    let (mut phase, mut line) = (0, Vec::new());
    while trace.read_until(b'\n', &mut line)? > 0 {
        let text = std::str::from_utf8(&line).unwrap_or_default();
        let kind = text.get(..3).unwrap_or_default();
        let mark = mark.load(Ordering::Acquire);
        if mark != 0 && matches!(kind, " S " | " L " | " M ") {
            let (at, bytes) = text[3..].trim().split_once(',').context("a broken line")?;
            let (at, bytes) = (u64::from_str_radix(at, 16)?, bytes.parse::<u64>()?);
            let here = here.load(Ordering::Relaxed);
            let is_stack = (here - STACK_BYTES.0..here + STACK_BYTES.1).contains(&at);
            if at == mark {
                phase += 1;
            } else if let (1 | 2, false) = (phase, is_stack) {
                let worker = &mut workers[phase - 1];
                let lines = at / LINE_BYTES..=(at + bytes - 1) / LINE_BYTES;
                worker.touched.extend(lines.clone());
                if kind != " L " {
                    worker.stores += 1;
                    worker.written.extend(lines);
                }
            }
        }
        line.clear();
    }
    ensure!(phase == 3, "{phase} marks in the trace instead of 3");
    Ok(workers)
}

pub(crate) fn main() -> Result<()> {
    let arguments = bench::parse::<Arguments>();
    if arguments.child {
        return child(&arguments);
    }
    let mut report = Report::new("shared_writes");
    let seen = watch(&arguments, false)?;
    let check = watch(&arguments, true)?;
    let stores: u64 = seen.workers.iter().map(|worker| worker.stores).sum();
    let written: usize = seen.workers.iter().map(|worker| worker.written.len()).sum();
    report.figure("shared_written_lines", seen.shared() as f64);
    report.figure("shared_written_lines_if_both_count_in_one_place", check.shared() as f64);
    report.figure("packets", seen.pkts as f64);
    report.figure("stores_per_pkt", stores as f64 / seen.pkts as f64);
    report.figure("written_lines", written as f64);
    report.print(&arguments.options);
    Ok(())
}
