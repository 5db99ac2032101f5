//! Kills a masquerading node under load and starts it again: do an iperf3 and a download by curl go on, and how long is
//! the gap? `cargo run --release -p tidegate-bench -- fw_restart` (root, `iperf3`, `curl`).
//!
//! The client's stream and its download cross the node at the same time; it dies by SIGKILL in the middle of both, once
//! a round, and finds its tables again in memory.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bench::firewall::masquerade_between;
use bench::{Options, Report, Table, median, tidegate_program};
use lab::dut::{NodeDriver, NodeOptions, NodeProcess, NodeRole};
use lab::topology::{Line, LineOptions};
use serde_json::json;

/// Bytes of the download, and of them a second.
const DOWNLOAD_BYTES: usize = 24 << 20;
const BYTES_PER_S: usize = 8 << 20;
const CHUNK: usize = 32 << 10;
/// After the start of both streams.
const KILL_AFTER: Duration = Duration::from_millis(1200);
/// How long the iperf3 runs, seconds; its intervals are tenths of one.
const STREAM_S: &str = "4";
const PORT: u16 = 8080;

fn byte_at(at: usize) -> u8 {
    (at % 251) as u8
}

/// Serves one download at a steady rate.
fn serve(listener: &TcpListener) -> Result<()> {
    let (mut stream, _) = listener.accept()?;
    let mut request = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    while request.read_line(&mut line)? > 2 {
        line.clear();
    }
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {DOWNLOAD_BYTES}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    let begin = Instant::now();
    for start in (0..DOWNLOAD_BYTES).step_by(CHUNK) {
        let due = Duration::from_secs_f64(start as f64 / BYTES_PER_S as f64);
        std::thread::sleep(due.saturating_sub(begin.elapsed()));
        let end = DOWNLOAD_BYTES.min(start + CHUNK);
        let bytes: Vec<u8> = (start..end).map(byte_at).collect();
        stream.write_all(&bytes)?;
    }
    Ok(())
}

/// What one death did.
#[derive(Debug)]
struct Round {
    /// Kill to the next node's readiness.
    ready_ms: f64,
    /// The longest time without a byte of the download.
    gap_ms: f64,
    /// Bytes of the download that were as they were sent.
    whole_bytes: usize,
    /// Tenths of a second without a byte of the stream, in a row.
    stream_gap_ms: f64,
    stream_gbps: f64,
    survived: bool,
}

/// Reads the download from curl's output; returns the longest pause and how many bytes were right.
fn download(line: &Line) -> Result<(Duration, usize)> {
    let url = format!("http://{}:{PORT}/", line.right.address());
    let mut curl = line.left.namespace.command("curl");
    let mut child = curl
        .args(["-sS", "--max-time", "30", "--no-buffer", &url])
        .stdout(Stdio::piped())
        .spawn()
        .context("curl")?;
    let mut out = child.stdout.take().context("its output")?;
    let (mut pause, mut right, mut bytes) = (Duration::ZERO, 0, vec![0; CHUNK]);
    let mut last = None;
    loop {
        let n = out.read(&mut bytes)?;
        if n == 0 {
            break;
        }
        if let Some(last) = last.replace(Instant::now()) {
            pause = pause.max(Instant::now() - last);
        }
        right += bytes[..n].iter().zip(right..).take_while(|(byte, at)| **byte == byte_at(*at)).count();
    }
    child.wait()?;
    Ok((pause, right))
}

/// Lets iperf3 send; returns its longest gap and its rate.
fn stream(line: &Line) -> Result<(f64, f64)> {
    let mut server = line.right.namespace.command("iperf3");
    let mut server = server
        .args(["-s", "-1"])
        .stdout(Stdio::null())
        .spawn()
        .context("iperf3")?;
    let address = line.right.address();
    let listens = Instant::now() + Duration::from_secs(5);
    // A connection would be its only one: the kernel is asked whether it listens on port 0x1451, 5201.
    let listening = || -> Result<bool> {
        let table = line.right.namespace.run(|| std::fs::read_to_string("/proc/thread-self/net/tcp6"))??;
        Ok(table.contains(":1451 "))
    };
    while !listening()? {
        ensure!(Instant::now() < listens, "iperf3 does not listen");
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut client = line.left.namespace.command("iperf3");
    client.args(["-c", &address.to_string(), "-t", STREAM_S, "-i", "0.1", "-J"]);
    let output = client.output().context("iperf3")?;
    server.wait()?;
    let said: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    ensure!(said.get("error").is_none(), "iperf3: {}", said["error"]);
    let (mut row, mut longest) = (0.0, 0.0_f64);
    for interval in said["intervals"].as_array().context("intervals")? {
        let sum = &interval["sum"];
        row = match sum["bytes"].as_f64() {
            Some(0.0) => row + 1000.0 * sum["seconds"].as_f64().unwrap_or(0.0),
            _ => 0.0,
        };
        longest = longest.max(row);
    }
    let rate = said["end"]["sum_received"]["bits_per_second"].as_f64();
    Ok((longest, rate.context("what was received")? / 1e9))
}

fn round(line: &Line, options: &NodeOptions, node: NodeProcess) -> Result<(Round, NodeProcess)> {
    let listener = line
        .right
        .namespace
        .run(|| TcpListener::bind((line.right.address(), PORT)))??;
    std::thread::scope(|scope| {
        let server = scope.spawn(move || serve(&listener));
        let reader = scope.spawn(|| download(line));
        let sender = scope.spawn(|| stream(line));
        std::thread::sleep(KILL_AFTER);
        let start = Instant::now();
        let killed = node.kill()?;
        let node = NodeProcess::restart(&line.node, options, killed)?;
        let ready_ms = start.elapsed().as_secs_f64() * 1000.0;
        let broken = |_| anyhow::anyhow!("a stream panicked");
        let (pause, whole_bytes) = reader.join().map_err(broken)??;
        let stream = sender.join().map_err(broken)?;
        // It has nothing to say that the reader has not seen.
        let _ = server.join().map_err(broken)?;
        if let Err(error) = &stream {
            eprintln!("{error:#}");
        }
        let (stream_gap_ms, stream_gbps) = stream.as_ref().copied().unwrap_or((f64::NAN, 0.0));
        let round = Round {
            ready_ms,
            gap_ms: pause.as_secs_f64() * 1000.0,
            whole_bytes,
            stream_gap_ms,
            stream_gbps,
            survived: stream.is_ok() && whole_bytes == DOWNLOAD_BYTES,
        };
        Ok((round, node))
    })
}

pub(crate) fn main() -> Result<()> {
    let arguments = bench::parse::<Options>();
    ensure!(lab::netns::is_root(), "needs root: it makes network namespaces");
    let directory = tempfile::tempdir_in("/dev/shm")?;
    let (rules, state) = (directory.path().join("rules.nft"), directory.path().join("state"));
    std::fs::write(&rules, masquerade_between("left", "right"))?;
    let options = NodeOptions {
        program: tidegate_program()?,
        driver: NodeDriver::AfXdp,
        role: NodeRole::Router,
        cpus: vec![0],
        idle_mode: "hybrid".into(),
        more: format!(
            "[firewall]\nrules = \"{}\"\nstate = \"{}\"\n",
            rules.display(),
            state.display()
        ),
    };
    let line = Line::new("fwr", LineOptions::default())?;
    let mut node = NodeProcess::start(&line, &options)?;
    let mut rounds = Vec::new();
    for _ in 0..arguments.rounds.max(1) {
        let (seen, next) = round(&line, &options, node)?;
        rounds.push(seen);
        node = next;
    }
    let of = |value: fn(&Round) -> f64| rounds.iter().map(value).collect::<Vec<_>>();
    let worst = |value| of(value).into_iter().fold(0.0, f64::max);
    let mut report = Report::new("fw_restart");
    report.figure("lost", rounds.iter().filter(|round| !round.survived).count() as f64);
    report.figure("download_gap_ms", median(&of(|round| round.gap_ms)));
    report.figure("worst_download_gap_ms", worst(|round| round.gap_ms));
    report.figure("stream_gap_ms", median(&of(|round| round.stream_gap_ms)));
    report.figure("ready_ms", median(&of(|round| round.ready_ms)));
    let mut table = Table::new(
        "A masquerading node killed under an iperf3 and a download",
        &["round", "kill to ready, ms", "gap of the download, ms", "of iperf3, ms", "iperf3, Gbit/s", "bytes as sent"],
    );
    for (at, round) in rounds.iter().enumerate() {
        table.rows.push(vec![
            json!(at + 1),
            json!(round.ready_ms),
            json!(round.gap_ms),
            json!(round.stream_gap_ms),
            json!(round.stream_gbps),
            json!(round.whole_bytes),
        ]);
    }
    report.table(table);
    report.note("the gap has the sender's retransmission timer in it; iperf3 reports tenths of a second");
    report.print(&arguments);
    Ok(())
}
