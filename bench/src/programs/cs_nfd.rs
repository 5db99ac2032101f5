//! Our content store beside NFD's, on the names of CS-8, in turns. NFD's is in a program that the user builds: it is given
//! files of packets on its standard input and answers with times (`docs/benchmarking.md`).

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};
use bench::cs::latency::{Arrivals, CLIENTS, Scene};
use bench::cs::names::Sites;
use bench::cs::workload::{Block, Catalogue, Clients, Flat, MIXED, Request, Zipf};
use bench::cs::{Access, Cache, Ours, store_config};
use bench::sessions::Random;
use bench::{Options, Report, Table, median};
use clap::Parser;
use io::cpu::thread_time;
use serde_json::json;
use wire::ndn::name::Name;
use wire::ndn::{Interest, InterestFields, NameRef, Tlv};

/// Lookups of a round, of each kind.
const LOOKUPS: usize = 8192;
/// Packets inserted in a round.
const INSERTS: usize = 2048;

#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    /// The program with NFD's Content Store; without it there are our figures alone.
    #[arg(long, value_name = "PROGRAM")]
    peer: Option<PathBuf>,
    /// Blocks of 1 KB that both hold; NFD takes about 3.7 KB of memory for each.
    #[arg(long, default_value_t = 250_000)]
    blocks: u64,
    /// A list of site names, one a line (plain or gzip).
    #[arg(long, value_name = "FILE")]
    names: Option<PathBuf>,
}

/// What is measured.
const KINDS: [(&str, &str); 3] = [
    ("exact", "exact lookup"),
    ("prefix", "prefix lookup (any block of a file)"),
    ("insert", "insert with eviction, 1 KB"),
];

/// The other program.
struct Peer {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Peer {
    fn start(program: &Path, blocks: u64) -> Result<Self> {
        let mut child = Command::new(program)
            .arg(blocks.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let to = child.stdin.take().context("no standard input")?;
        let from = BufReader::new(child.stdout.take().context("no standard output")?);
        Ok(Self { child, to, from })
    }

    /// Sends a command; returns the time that it took, ns, and how many packets it was for.
    fn run(&mut self, verb: &str, file: &Path) -> Result<(f64, usize)> {
        writeln!(self.to, "{verb} {}", file.display())?;
        self.to.flush()?;
        let mut line = String::new();
        self.from.read_line(&mut line)?;
        let mut words = line.split_whitespace();
        let time = words.next().and_then(|word| word.parse::<f64>().ok());
        let count = words.next().and_then(|word| word.parse::<usize>().ok());
        time.zip(count)
            .with_context(|| format!("the peer answers `{verb}` by `{}`, not NS COUNT", line.trim()))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn write(path: &Path, packets: &Flat) -> Result<()> {
    let bytes: Vec<u8> = packets.iter().flatten().copied().collect();
    std::fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

/// Interests of clients for what is stored.
fn interests(scene: &Scene, clients: &mut Clients, random: &mut Random, zipf: Option<&Zipf>) -> Result<Flat> {
    let mut packets = Flat::default();
    let mut name = Vec::new();
    for _ in 0..LOOKUPS {
        name.clear();
        let request = match zipf {
            Some(zipf) => Request::Prefix(zipf.draw(random)),
            None => scene.request(clients, random),
        };
        match request {
            Request::Block(file, segment) => scene.stored.push_block(&mut name, file, segment),
            Request::Prefix(file) => scene.stored.push_file(&mut name, file),
        }
        let name = Name::from_value(&name)?;
        let fields = InterestFields {
            can_be_prefix: zipf.is_some(),
            nonce: Some((random.next_u64() as u32).to_be_bytes()),
            ..InterestFields::new(name.as_ref())
        };
        let mut packet = [0; 512];
        let length = fields.encode(&mut packet)?;
        packets.push(|out| out.extend_from_slice(&packet[..length]));
    }
    Ok(packets)
}

/// Our time for Interests, ns, and how many were answered.
fn find(access: &mut dyn Access, packets: &Flat) -> Result<(f64, usize)> {
    let mut queries: Vec<(NameRef<'_>, bool)> = Vec::with_capacity(LOOKUPS);
    for packet in packets.iter() {
        let interest = Interest::parse(Tlv::read(packet)?.bytes)?;
        queries.push((interest.name, interest.can_be_prefix));
    }
    let begin = thread_time();
    let mut found = 0;
    for (name, can_be_prefix) in queries {
        let word = match can_be_prefix {
            true => access.get_prefix(name.value()),
            false => access.get(name.value()),
        };
        found += usize::from(word.is_some_and(|word| word != u64::MAX));
    }
    Ok(((thread_time() - begin).as_nanos() as f64, found))
}

fn insert(access: &mut dyn Access, packets: &Flat) -> (f64, usize) {
    let blocks: Vec<Block<'_>> = packets.iter().map(Block::of).collect();
    let begin = thread_time();
    for block in &blocks {
        access.insert(block);
    }
    ((thread_time() - begin).as_nanos() as f64, blocks.len())
}

pub(crate) fn main() -> Result<()> {
    let arguments = bench::parse::<Arguments>();
    let sites = Sites::read(arguments.names.as_deref())?;
    let rounds = arguments.options.rounds;
    let mut report = Report::new("cs_nfd");
    let scene = Scene::new(&sites, &MIXED, arguments.blocks);
    let ours = Ours::new("ours", &store_config(arguments.blocks as usize, 1));
    let mut access = ours.access();
    let mut peer = match &arguments.peer {
        Some(program) => Some(Peer::start(program, arguments.blocks)?),
        None => {
            eprintln!("NFD's Content Store is SKIPPED: give the program that has it by --peer");
            report.note("NFD's Content Store is SKIPPED: give the program that has it by --peer; ours alone");
            None
        }
    };
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("packets");
    // Both are filled with the same packets in the same order.
    let mut arrivals = Arrivals::new(&scene.stored);
    loop {
        let mut packets = Flat::default();
        arrivals.packets(16_384, &mut packets);
        if packets.is_empty() {
            break;
        }
        insert(&mut *access, &packets);
        if let Some(peer) = &mut peer {
            write(&file, &packets)?;
            peer.run("insert", &file)?;
        }
    }
    let new = Catalogue::new(&sites, &MIXED, ((rounds + 1) * INSERTS) as u64, 1000);
    let mut arriving = Arrivals::new(&new);
    let mut clients = Clients::new(CLIENTS, 0);
    let mut random = Random::new(5);
    let zipf = Zipf::new(scene.stored.files(), 0.8, &mut random);
    let mut samples = [const { [Vec::new(), Vec::new()] }; 3];
    let mut answered = [[0_usize; 2]; 2];
    // Insertions come last: what they evict is what clients ask for. The first round of each warms up.
    for turn in 0..2 * (rounds + 1) {
        let round = turn % (rounds + 1);
        let work = if turn <= rounds {
            vec![
                (0, interests(&scene, &mut clients, &mut random, None)?),
                (1, interests(&scene, &mut clients, &mut random, Some(&zipf))?),
            ]
        } else {
            let mut new_blocks = Flat::default();
            arriving.packets(INSERTS, &mut new_blocks);
            vec![(2, new_blocks)]
        };
        for (kind, packets) in &work {
            let kind = *kind;
            let verb = if kind < 2 { "find" } else { "insert" };
            let (ns, count) = match kind {
                0 | 1 => find(&mut *access, packets)?,
                _ => insert(&mut *access, packets),
            };
            let their = match &mut peer {
                Some(peer) => {
                    write(&file, packets)?;
                    Some(peer.run(verb, &file)?)
                }
                None => None,
            };
            if round == 0 {
                continue;
            }
            let all = packets.len() as f64;
            samples[kind][0].push(ns / all);
            if let Some((ns, _)) = their {
                samples[kind][1].push(ns / all);
            }
            if let Some(answered) = answered.get_mut(kind) {
                answered[0] += count;
                answered[1] += their.map_or(0, |(_, count)| count);
            }
        }
    }
    let mut table = Table::new(
        &format!("ns an operation, one at a time, {} blocks of 1 KB, CS-8 names", arguments.blocks),
        &["operation", "ours", "NFD", "ratio", "ours found, %", "NFD found, %"],
    );
    for (at, (name, says)) in KINDS.iter().enumerate() {
        let mine = median(&samples[at][0]);
        report.figure(&format!("{name}_ns"), mine);
        let their = peer.is_some().then(|| median(&samples[at][1]));
        if let Some(their) = their {
            report.figure(&format!("nfd_{name}_ns"), their);
            report.figure(&format!("nfd_{name}_ratio"), their / mine);
        }
        let found = |who: usize| {
            let answered = answered.get(at)?[who];
            Some(100.0 * answered as f64 / (rounds * LOOKUPS) as f64)
        };
        let theirs_found = peer.as_ref().and_then(|_| found(1));
        if let Some(share) = theirs_found {
            ensure!(share > 99.0, "NFD found {share:.0} % of what it holds; is the driver right?");
        }
        table.rows.push(vec![
            json!(says),
            json!(mine),
            json!(their),
            json!(their.map(|their| their / mine)),
            json!(found(0)),
            json!(theirs_found),
        ]);
    }
    report.table(table);
    report.note("CPU time of the thread; packets are decoded before; NFD evicts by LRU, ours by FIFO");
    report.print(&arguments.options);
    Ok(())
}
