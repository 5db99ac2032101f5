//! A generator that is faster than any forwarder, and an end that counts, for the programs that compare
//! forwarders between two veth ports.
//!
//! One line of three namespaces: a generator that lets the kernel redirect copies of one 64-byte frame into the
//! first veth pair (`BPF_PROG_TEST_RUN` with live frames, [`GENERATOR_CPU`]), the forwarder in the middle
//! ([`FORWARDER_CPU`]), and at the end a kernel or a program that counts and drops. What the generator's call
//! costs besides the packets is not in the rate.

use std::cell::Cell;
use std::time::Duration;

use anyhow::Result;
use io::bpf::{AttachMode, Link, Map, MapKind, Program, asm};
use io::cpu;
use lab::{Line, LineOptions, Side};

use crate::median;
use crate::memory::FRAME_BYTES;

/// Where the generator runs.
pub const GENERATOR_CPU: u16 = 0;
/// Where the forwarder is to run.
pub const FORWARDER_CPU: u16 = 1;
/// Packets of the run that finds out how many the generator makes in a window.
const TRIAL_PKTS: u32 = 200_000;
/// Generator runs a sample.
const RUNS: usize = 2;

/// What counts and drops the frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The kernel of the last namespace, which does not know the EtherType.
    Kernel,
    /// An XDP program on its interface.
    Program,
}

/// The topology with its two ends.
#[derive(Debug)]
pub struct Rig {
    /// The three namespaces; the forwarder belongs into that in the middle.
    pub line: Line,
    frame: [u8; FRAME_BYTES],
    generator: Program,
    counter: Map,
    sink: Program,
    window: Duration,
    /// What the generator offered in the last run, packets a second.
    offered_pps: Cell<f64>,
}

impl Rig {
    /// Builds the line; `frame` makes the frame that is sent without end. A sample takes about four times
    /// `window`.
    ///
    /// # Errors
    /// The kernel refuses a part.
    pub fn new(window: Duration, frame: impl FnOnce(&Line) -> [u8; FRAME_BYTES]) -> Result<Self> {
        let plain = LineOptions {
            addresses: false,
            ..LineOptions::default()
        };
        let line = Line::new("xf", plain)?;
        let index =
            |side: &Side| -> Result<u32> { Ok(side.namespace.links()?.get(&side.device)?.index) };
        let generator = redirect_to(index(&line.left)?)?;
        let counter = Map::create(MapKind::Array, "bench_count", 8, 1)?;
        let sink = count_and_drop(&counter)?;
        Ok(Self {
            frame: frame(&line),
            line,
            generator,
            counter,
            sink,
            window,
            offered_pps: Cell::new(0.0),
        })
    }

    /// Returns how many frames have reached the end.
    fn count(&self, end: End) -> Result<u64> {
        let side = &self.line.right;
        match end {
            End::Kernel => Ok(side.namespace.links()?.get(&side.device)?.counters.rx_pkts),
            End::Program => Ok(self.counter.get_u64(0)?),
        }
    }

    /// Prepares the end of the line; what is attached goes with the result.
    fn attach(&self, end: End) -> Result<Option<Link>> {
        if end == End::Kernel {
            return Ok(None);
        }
        let side = &self.line.right;
        let index = side.namespace.links()?.get(&side.device)?.index;
        let sink = &self.sink;
        let attach = || sink.attach_xdp(index, AttachMode::Native);
        Ok(Some(side.namespace.run(attach)??))
    }

    /// Returns what the generator offered in the last run, packets a second.
    pub fn offered_pps(&self) -> f64 {
        self.offered_pps.get()
    }

    /// Runs the generator and returns what reached the end, packets a second.
    ///
    /// # Errors
    /// The kernel refuses to send or to count.
    pub fn measure(&self, end: End) -> Result<f64> {
        let _attached = self.attach(end)?;
        let each = self.generate(TRIAL_PKTS)?;
        let packets = self.window.as_nanos() / each.as_nanos().max(1);
        let packets = packets.min(u128::from(u32::MAX)) as u32;
        let mut rates = Vec::new();
        for _ in 0..RUNS {
            let before = self.count(end)?;
            let each = self.generate(packets)?;
            let seconds = each.as_secs_f64() * f64::from(packets);
            rates.push((self.count(end)? - before) as f64 / seconds);
            self.offered_pps.set(1.0 / each.as_secs_f64());
        }
        Ok(median(&rates))
    }

    /// Makes the generator send; returns the time of a packet.
    fn generate(&self, packets: u32) -> Result<Duration> {
        let (generator, frame) = (&self.generator, &self.frame);
        let each = self.line.left.namespace.run(|| {
            cpu::pin(GENERATOR_CPU)?;
            let each = generator.run_live(frame, LOOPBACK, packets, 64);
            each.map_err(std::io::Error::other)
        });
        // What waits in rings has time to pass.
        std::thread::sleep(Duration::from_millis(20));
        Ok(each??)
    }
}

/// Index of `lo`: the interface that the generator's packets seem to come from.
const LOOPBACK: u32 = 1;

fn redirect_to(ifindex: u32) -> Result<Program> {
    let mut asm = asm::Asm::new();
    asm.mov_imm(asm::Reg::R1, ifindex as i32)
        .mov_imm(asm::Reg::R2, 0)
        .call(asm::Helper::Redirect)
        .exit();
    Ok(Program::load_xdp("bench_send", &asm.finish()?)?)
}

fn count_and_drop(counter: &Map) -> Result<Program> {
    use asm::{Alu, Reg, Width};
    let mut asm = asm::Asm::new();
    asm.load_map_value(Reg::R1, counter.raw_fd(), 0)
        .load(Width::U64, Reg::R2, Reg::R1, 0)
        .alu_imm(Alu::Add, Reg::R2, 1)
        .store(Width::U64, Reg::R1, 0, Reg::R2)
        .exit_with(asm::XdpAction::Drop);
    Ok(Program::load_xdp("bench_count", &asm.finish()?)?)
}
