//! DPDK's hash table as a rival: a small C program, compiled when it is wanted, that measures on request. DPDK
//! is Debian's (`libdpdk-dev`); nothing of it is linked here.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};
use tables::signature::{Session4, SessionKey};

const SOURCE: &str = include_str!("rte_hash.c");

/// Bytes of a huge page.
const HUGE_PAGE_BYTES: usize = 2 << 20;
const PAGES_FILE: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

/// The running program.
#[derive(Debug)]
pub struct RteHash {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// Bytes that the table takes from DPDK's heap.
    pub heap_bytes: usize,
    _directory: tempfile::TempDir,
    _pages: Option<HugePages>,
}

/// Huge pages that were reserved for the run.
#[derive(Debug)]
struct HugePages(usize);

impl HugePages {
    /// Reserves `bytes` in huge pages, as root.
    fn reserve(bytes: usize) -> Result<Self> {
        let text = std::fs::read_to_string(PAGES_FILE).context(PAGES_FILE)?;
        let before: usize = text.trim().parse().context("a number of pages")?;
        let wanted = before + bytes / HUGE_PAGE_BYTES;
        let reserved = Self(before);
        let ask = || -> Result<usize> {
            std::fs::write(PAGES_FILE, wanted.to_string()).context(PAGES_FILE)?;
            Ok(std::fs::read_to_string(PAGES_FILE)?.trim().parse()?)
        };
        let mut given = ask()?;
        if given < wanted {
            // Free memory may be there, but in small pieces.
            let _ = std::fs::write("/proc/sys/vm/compact_memory", "1");
            given = ask()?;
        }
        ensure!(given >= wanted, "{given} of {wanted} huge pages are there");
        Ok(reserved)
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        let _ = std::fs::write(PAGES_FILE, self.0.to_string());
    }
}

impl RteHash {
    /// Compiles the program and lets it fill a table with `sessions`, on huge pages (as root) or normal ones.
    ///
    /// # Errors
    /// If compiler, pkg-config or DPDK are missing, or memory is out.
    pub fn start(
        sessions: &[Session4],
        hits: &[Session4],
        misses: &[Session4],
        huge: bool,
    ) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let program = compile(directory.path())?;
        let data = directory.path().join("keys");
        write_keys(&data, [sessions, hits, misses])?;
        let bytes = (sessions.len() * 96 + (128 << 20)).next_multiple_of(HUGE_PAGE_BYTES);
        let megabytes = (bytes >> 20).to_string();
        let pages = huge.then(|| HugePages::reserve(bytes)).transpose()?;
        let mut command = Command::new(program);
        command.args(["--no-pci", "--no-telemetry", "--log-level=3"]);
        command.args(["-m", &megabytes]);
        command.args(match huge {
            true => &["--in-memory"][..],
            false => &["--no-huge", "--no-shconf"],
        });
        // DPDK pins its main thread to the CPU that it is told; we tell the one that we run on.
        let cpu = io::cpu::allowed()?.first().copied().unwrap_or(0);
        command
            .arg(format!("--lcores=0@{cpu}"))
            .arg("--")
            .arg(&data);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("start the DPDK program")?;
        let input = child.stdin.take().context("no input")?;
        let output = BufReader::new(child.stdout.take().context("no output")?);
        let mut started = Self {
            child,
            input,
            output,
            heap_bytes: 0,
            _directory: directory,
            _pages: pages,
        };
        let line = started.line()?;
        let ready = line.strip_prefix("ready ");
        started.heap_bytes = ready.context("the DPDK program did not start")?.parse()?;
        Ok(started)
    }

    /// Looks all hits (or misses) up in bulks of 32; ns of a thread a lookup.
    ///
    /// # Errors
    /// If the program has ended.
    pub fn lookup_ns(&mut self, hits: bool) -> Result<f64> {
        writeln!(self.input, "{}", if hits { "hit" } else { "miss" })?;
        Ok(self.line()?.parse()?)
    }

    /// The next line that is ours: DPDK prints lines of its own.
    fn line(&mut self) -> Result<String> {
        loop {
            let mut line = String::new();
            ensure!(
                self.output.read_line(&mut line)? > 0,
                "the DPDK program ended"
            );
            let line = line.trim();
            if line.starts_with("ready ") || line.parse::<f64>().is_ok() {
                return Ok(line.to_owned());
            }
        }
    }
}

impl Drop for RteHash {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn compile(directory: &std::path::Path) -> Result<std::path::PathBuf> {
    let flags = Command::new("pkg-config")
        .args(["--cflags", "--libs", "libdpdk"])
        .output()
        .context("pkg-config is not installed")?;
    ensure!(
        flags.status.success(),
        "DPDK is not installed (apt install libdpdk-dev)"
    );
    let flags = String::from_utf8(flags.stdout)?;
    let source = directory.join("rte_hash.c");
    let program = directory.join("rte_hash");
    std::fs::write(&source, SOURCE)?;
    let compiled = Command::new("cc")
        .args(["-O3", "-o"])
        .args([&program, &source])
        .args(flags.split_whitespace())
        .status()
        .context("no C compiler (cc)")?;
    ensure!(compiled.success(), "the DPDK program does not compile");
    Ok(program)
}

fn write_keys(path: &std::path::Path, lists: [&[Session4]; 3]) -> Result<()> {
    let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
    for list in lists {
        file.write_all(&(list.len() as u64).to_ne_bytes())?;
    }
    for key in lists.into_iter().flatten() {
        for word in key.to_words() {
            file.write_all(&word.to_ne_bytes())?;
        }
    }
    Ok(file.flush()?)
}
