//! Copies of one frame that the kernel sends into a device (`BPF_PROG_TEST_RUN` with live frames), and the small
//! programs around them.

use std::time::Duration;

use anyhow::Result;
use io::bpf::Program;
use io::bpf::asm::{Alu, Asm, Cond, Helper, Reg, Width, XdpAction, xdp_md};
use lab::Namespace;

/// Where live frames seem to come from.
pub const LOOPBACK: u32 = 1;
/// Live frames that are in the kernel's hands at once.
const BATCH: u32 = 64;
/// Packets of the run that finds out how many there are in a window.
const TRIAL: u32 = 20_000;
/// Bytes that a frame is longer when it is given to the generator.
const SPARE_BYTES: usize = 4;

/// Assembles and loads a program.
///
/// # Errors
/// The kernel's refusal.
pub fn load(name: &str, asm: Asm) -> Result<Program> {
    Ok(Program::load_xdp(name, &asm.finish()?)?)
}

/// Makes the program that does the same with every frame.
///
/// # Errors
/// The kernel's refusal.
pub fn always(action: XdpAction) -> Result<Program> {
    let mut asm = Asm::new();
    asm.exit_with(action);
    load("kc_always", asm)
}

/// Makes the program that writes a frame and sends it into a device. The kernel gives the pages of live frames out
/// again as they come back, with the reply in them and its length: so the frame is written each time, and cut, as
/// the kernel takes the length anew only then.
fn generator(ifindex: u32, frame: &[u8]) -> Result<Program> {
    let mut asm = Asm::new();
    let short = asm.label();
    asm.mov(Reg::R6, Reg::R1)
        .mov_imm(Reg::R2, -(SPARE_BYTES as i32))
        .call(Helper::AdjustTail)
        .load(Width::U32, Reg::R7, Reg::R6, xdp_md::DATA)
        .load(Width::U32, Reg::R3, Reg::R6, xdp_md::DATA_END)
        .mov(Reg::R4, Reg::R7)
        .alu_imm(Alu::Add, Reg::R4, frame.len() as i32)
        .jump_if(Cond::Greater, Reg::R4, Reg::R3, short);
    for (word, at) in frame.as_chunks::<4>().0.iter().zip((0..).step_by(4)) {
        asm.store_imm(Width::U32, Reg::R7, at, i32::from_ne_bytes(*word));
    }
    asm.mov_imm(Reg::R1, ifindex as i32)
        .mov_imm(Reg::R2, 0)
        .call(Helper::Redirect)
        .exit()
        .bind(short)
        .exit_with(XdpAction::Drop);
    load("kc_generate", asm)
}

/// Sends a frame into a device of a namespace, from this processor, for about the window; returns the time of one, ns,
/// and how many there were. The frame is filled up to whole words of 4 bytes.
///
/// # Errors
/// The kernel's refusal.
pub fn send(
    namespace: &Namespace,
    ifindex: u32,
    frame: &[u8],
    cpu: u16,
    window: Duration,
) -> Result<(f64, u64)> {
    let mut frame = frame.to_vec();
    frame.resize(frame.len().max(60).next_multiple_of(4), 0);
    let generator = generator(ifindex, &frame)?;
    frame.extend([0; SPARE_BYTES]);
    let send = |packets: u32| {
        namespace.run(|| {
            io::cpu::pin(cpu)?;
            let each = generator.run_live(&frame, LOOPBACK, packets, BATCH);
            each.map_err(std::io::Error::other)
        })
    };
    let each = send(TRIAL)??;
    let packets = window.as_nanos() / each.as_nanos().max(1);
    let packets = u32::try_from(packets)?.max(BATCH);
    let each = send(packets)??;
    Ok((
        each.as_nanos() as f64,
        u64::from(TRIAL) + u64::from(packets),
    ))
}
