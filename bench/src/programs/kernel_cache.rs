//! Measures the NDN cache in the kernel (CS-7): `cargo run --release -p tidegate-bench -- kernel_cache` (root).
//!
//! Lookups (parse, hash, find, name compare) are timed by repeated test runs of the XDP program on one Interest; its
//! reply would be longer than the port's frames, so that the frame stays as it is. The time of an empty program is
//! taken off. Beside it the same code in user space over the same memory. A step of the prefix walk is the difference
//! between a deep and a shallow chain of names.
//!
//! What serving costs is seen on a veth pair with native XDP: copies of one Interest that the kernel redirects into the
//! pair (`BPF_PROG_TEST_RUN` with live frames) are answered in the driver, against a program that only swaps the
//! addresses; a program at the origin drops what comes back. All of it runs on one core.

use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

use bench::live_frames::{LOOPBACK, always, load, send};
use bench::{Options, Report, median, rounds};
use io::bpf::asm::{Alu, Asm, Cond, Reg, Width, XdpAction, xdp_md};
use io::bpf::{AttachMode, Link, Program};
use kernel_cache::shared::answer::{Scratch, answer};
use kernel_cache::shared::layout::PortRow;
use kernel_cache::{Buffer, Cache, Hook, KernelCache, OUTCOMES, Outcome, Port, Sizes};
use lab::{Line, LineOptions};
use wire::ndn::{DataFields, DigestSigner, InterestFields, NameRef};

type Result<T> = core::result::Result<T, Box<dyn Error>>;

const CPU: u16 = 0;
/// Runs of a program in one sample.
const REPEAT: u32 = 100_000;
/// Names below the shallow and the deep prefix, without the Data.
const SHALLOW: usize = 1;
const DEEP: usize = 21;
/// The lengths of packets that are served, bytes.
const LENGTHS: [usize; 2] = [128, 1024];

/// Runs the program.
pub(crate) fn main() -> Result<()> {
    let options: Options = bench::parse();
    let mut report = Report::new("kernel_cache");
    io::cpu::pin(CPU)?;
    lookups(&options, &mut report)?;
    served(&options, &mut report)?;
    report.print(&options);
    Ok(())
}

/// Makes the value of a name.
fn name(components: &[&[u8]]) -> Vec<u8> {
    components
        .iter()
        .flat_map(|component| [&[8, component.len() as u8][..], component].concat())
        .collect()
}

fn data(name: &[u8], content: &[u8]) -> Result<Vec<u8>> {
    let mut buffer = vec![0; 9000];
    let fields = DataFields::new(NameRef::new(name).map_err(|e| format!("{e:?}"))?, content);
    let length = fields
        .encode(&DigestSigner, &mut buffer)
        .map_err(|e| format!("{e:?}"))?;
    buffer.truncate(length);
    Ok(buffer)
}

/// Makes a Data packet of a length.
fn data_of_length(name: &[u8], bytes: usize) -> Result<Vec<u8>> {
    let empty = data(name, &[1])?.len();
    // A longer content has a longer TLV header.
    for content in bytes.saturating_sub(empty + 8)..=bytes {
        let packet = data(name, &vec![1; content])?;
        if packet.len() == bytes {
            return Ok(packet);
        }
    }
    Err(format!("no Data packet has {bytes} bytes").into())
}

/// Makes the frame that asks for a name.
fn request(from: [u8; 6], to: [u8; 6], name: &[u8], can_be_prefix: bool) -> Result<Vec<u8>> {
    let fields = InterestFields {
        can_be_prefix,
        nonce: Some([1, 2, 3, 4]),
        ..InterestFields::new(NameRef::new(name).map_err(|e| format!("{e:?}"))?)
    };
    let mut buffer = vec![0; 512];
    let length = fields.encode(&mut buffer).map_err(|e| format!("{e:?}"))?;
    let mut frame = [&to[..], &from, &[0x86, 0x24], &buffer[..length]].concat();
    frame.resize(frame.len().max(60).next_multiple_of(4), 0);
    Ok(frame)
}

fn row(ifindex: u32, mac: [u8; 6], frame_bytes_max: u32) -> PortRow {
    let mut bytes = [0; 8];
    bytes[..6].copy_from_slice(&mac);
    PortRow {
        ifindex,
        frame_bytes_max,
        mac: u64::from_le_bytes(bytes),
    }
}

/// Times lookups by test runs and in user space.
fn lookups(options: &Options, report: &mut Report) -> Result<()> {
    let mac = [2, 0, 0, 0, 0, 1];
    let (mut kernel, mut cache) = KernelCache::load(Sizes::of(1024))?;
    // Nothing fits, so that every hit stays a lookup.
    let port = row(LOOPBACK, mac, 64);
    kernel.add_port(&port)?;
    // 44 bytes of name, as in the paper's names of sites.
    let exact = name(&[b"com", b"example-site", b"video", b"file-0001", b"0001234"]);
    cache.insert(&data_of_length(&exact, 1024)?, 0)?;
    let chain = |depth: usize| -> Vec<u8> {
        let mut parts: Vec<&[u8]> = vec![if depth == DEEP { b"deep" } else { b"flat" }];
        parts.extend(std::iter::repeat_n(&b"x"[..], depth));
        name(&parts)
    };
    for depth in [SHALLOW, DEEP] {
        cache.insert(&data_of_length(&chain(depth), 1024)?, 0)?;
    }
    let ask = |name: &[u8], prefix| request([2, 0, 0, 0, 0, 2], mac, name, prefix);
    let frames = [
        ask(&exact, false)?,
        ask(&name(&[b"flat"]), true)?,
        ask(&name(&[b"deep"]), true)?,
        ask(&name(&[b"none"]), false)?,
    ];
    let before = kernel.outcomes()?;
    let empty = always(XdpAction::Pass)?;
    let kernel = std::cell::RefCell::new(kernel);
    let by_kernel = |frame: &[u8]| -> f64 {
        let mut kernel = kernel.borrow_mut();
        kernel
            .test_run(Hook::Native, frame, REPEAT)
            .map_or(f64::NAN, |run| f64::from(run.run_ns))
    };
    let memory = cache.share();
    let in_user_space = || {
        let mut buffer = Buffer::new(&frames[0], 2048);
        let mut scratch = Box::<Scratch>::default();
        let started = Instant::now();
        for _ in 0..REPEAT {
            black_box(answer(&*memory, &mut buffer, LOOPBACK, &port, &mut scratch));
        }
        started.elapsed().as_nanos() as f64 / f64::from(REPEAT)
    };
    let samples = rounds(
        options.rounds,
        &mut [
            &mut || {
                let run = empty.run(&frames[0], REPEAT);
                run.map_or(f64::NAN, |run| f64::from(run.run_ns))
            },
            &mut || by_kernel(&frames[0]),
            &mut || by_kernel(&frames[1]),
            &mut || by_kernel(&frames[2]),
            &mut || by_kernel(&frames[3]),
            &mut || in_user_space(),
        ],
    );
    let after = kernel.borrow().outcomes()?;
    let runs = u64::from(REPEAT) * options.rounds as u64;
    let counted = |outcome: Outcome| after[outcome as usize] - before[outcome as usize];
    if counted(Outcome::TooLong) != 3 * runs || counted(Outcome::Absent) != runs {
        return Err(format!("not every lookup went as planned: {after:?}").into());
    }
    let time = |at: usize| median(&samples[at]);
    let empty_ns = time(0);
    report.figure("empty_program_ns", empty_ns);
    report.figure("exact_ns", time(1) - empty_ns);
    report.figure("miss_ns", time(4) - empty_ns);
    report.figure("prefix_ns", time(2) - empty_ns);
    report.figure("prefix_step_ns", (time(3) - time(2)) / (DEEP - SHALLOW) as f64);
    report.figure("exact_in_user_space_ns", time(5));
    Ok(())
}

/// Makes the program that sends every frame back.
fn reflect() -> Result<Program> {
    let mut asm = Asm::new();
    let short = asm.label();
    asm.load(Width::U32, Reg::R7, Reg::R1, xdp_md::DATA)
        .load(Width::U32, Reg::R3, Reg::R1, xdp_md::DATA_END)
        .mov(Reg::R4, Reg::R7)
        .alu_imm(Alu::Add, Reg::R4, 14)
        .jump_if(Cond::Greater, Reg::R4, Reg::R3, short)
        .load(Width::U32, Reg::R1, Reg::R7, 0)
        .load(Width::U16, Reg::R2, Reg::R7, 4)
        .load(Width::U32, Reg::R4, Reg::R7, 6)
        .load(Width::U16, Reg::R5, Reg::R7, 10)
        .store(Width::U32, Reg::R7, 6, Reg::R1)
        .store(Width::U16, Reg::R7, 10, Reg::R2)
        .store(Width::U32, Reg::R7, 0, Reg::R4)
        .store(Width::U16, Reg::R7, 4, Reg::R5)
        .exit_with(XdpAction::Tx)
        .bind(short)
        .exit_with(XdpAction::Pass);
    Ok(load("kc_reflect", asm)?)
}

/// What answers at the far end of the pair; it goes with this.
enum Answering {
    Reflection { _link: Link },
    Cache { _port: Port },
}

/// The pair and what it takes to measure on it.
struct Pair {
    line: Line,
    near: u32,
    reflect: Program,
    far: PortRow,
    _drops: (Program, Link),
}

impl Pair {
    fn new() -> Result<Self> {
        let line = Line::new("kb", LineOptions::default())?;
        let near = line.left.namespace.links()?.get(&line.left.device)?.index;
        let far = line.node.links()?.get(&line.left.node_device)?;
        let drops = always(XdpAction::Drop)?;
        let link = line
            .left
            .namespace
            .run(|| drops.attach_xdp(near, AttachMode::Native))??;
        Ok(Self {
            near,
            reflect: reflect()?,
            far: row(far.index, far.mac, far.mtu + 14),
            _drops: (drops, link),
            line,
        })
    }

    fn reflecting(&self) -> Result<Answering> {
        let attach = || self.reflect.attach_xdp(self.far.ifindex, AttachMode::Native);
        Ok(Answering::Reflection {
            _link: self.line.node.run(attach)??,
        })
    }

    fn caching(&self, kernel: &mut KernelCache) -> Result<Answering> {
        let attach = || kernel.attach(&self.far, Hook::Native);
        Ok(Answering::Cache {
            _port: self.line.node.run(attach)??,
        })
    }

    /// Sends frames for about the window and returns the time of one, ns, and how many there were.
    fn send(&self, frame: &[u8], window: Duration) -> Result<(f64, u64)> {
        Ok(send(&self.line.left.namespace, self.near, frame, CPU, window)?)
    }

    /// Frames that came back.
    fn came_back(&self) -> Result<u64> {
        let links = self.line.left.namespace.links();
        let device = &self.line.left.device;
        Ok(links?.get(device)?.counters.rx_pkts)
    }
}

/// Times answering on a veth pair.
fn served(options: &Options, report: &mut Report) -> Result<()> {
    let pair = Pair::new()?;
    let (mut kernel, mut cache) = KernelCache::load(Sizes::of(1024))?;
    let (from, to) = (pair.line.left.mac, pair.line.left.node_mac);
    let names = LENGTHS.map(|bytes| name(&[b"served", bytes.to_string().as_bytes()]));
    for (name, bytes) in names.iter().zip(LENGTHS) {
        insert(&mut cache, name, bytes)?;
    }
    let frames = [
        request(from, to, &names[0], false)?,
        request(from, to, &names[1], false)?,
    ];
    let mut samples = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..options.rounds {
        let before = pair.came_back()?;
        let attached = pair.reflecting()?;
        let (ns, sent) = pair.send(&frames[0], options.window())?;
        samples[0].push(ns);
        drop(attached);
        let attached = pair.caching(&mut kernel)?;
        let mut served = 0;
        for (frame, samples) in frames.iter().zip(&mut samples[1..]) {
            let (ns, sent) = pair.send(frame, options.window())?;
            samples.push(ns);
            served += sent;
        }
        drop(attached);
        let back = pair.came_back()? - before;
        report.note(format!(
            "a round: {} frames sent, {back} came back",
            sent + served
        ));
    }
    let counts: [u64; OUTCOMES] = kernel.outcomes()?;
    let others: u64 = counts.iter().sum::<u64>() - counts[Outcome::Exact as usize];
    report.figure("not_answered", others as f64);
    let reflect_ns = median(&samples[0]);
    report.figure("reflect_ns", reflect_ns);
    for (bytes, samples) in LENGTHS.iter().zip(&samples[1..]) {
        let ns = median(samples);
        report.figure(&format!("served_{bytes}_ns"), ns);
        report.figure(&format!("served_{bytes}_mpps"), 1000.0 / ns);
        report.figure(&format!("served_{bytes}_over_reflection_ns"), ns - reflect_ns);
    }
    Ok(())
}

fn insert(cache: &mut Cache, name: &[u8], bytes: usize) -> Result<()> {
    cache.insert(&data_of_length(name, bytes)?, 0)?;
    Ok(())
}
