//! Packets of many flows, made by a program in the kernel: each copy that `BPF_PROG_TEST_RUN` makes of a frame gets the
//! headers of the next flow, then goes up the stack, or to an interface, as from the driver of a card. This is the
//! least that it costs to give a kernel packets, and the same for whoever takes them.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use io::bpf::asm::{Alu, Asm, Cond, Helper, Reg, Width, XdpAction};
use io::bpf::{Map, MapKind, Program};

use crate::firewall::{FRAME_BYTES, Frames, Kind, Maker, Tuple};

/// Packets that the kernel makes at a time.
const BATCH: u32 = 64;
/// Client ports of an address: 32,768 and above.
const PORT_BITS: u32 = 15;
/// Odd, so that every flow has its turn before one has its second; the flows' order is another for each kind.
const STRIDES: [i32; 2] = [0x0061_c885, 0x004f_6cd3];

/// Addresses of the packets, on both layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addressing {
    /// Whom a frame comes from.
    pub source_mac: [u8; 6],
    /// Whom it is for.
    pub destination_mac: [u8; 6],
    /// Address of all clients (of the outer endpoint in packets of the servers).
    pub client: u32,
    /// Address of all servers.
    pub server: u32,
}

/// Where the packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// Up the stack, as received by this interface.
    Stack(u32),
    /// Out of this interface.
    Interface(u32),
}

/// Packets of one kind of `flows` flows, in turns.
#[derive(Debug)]
pub struct Source {
    program: Program,
    /// The number of the last flow is in it.
    _position: Map,
    frame: [u8; FRAME_BYTES],
    ingress: u32,
}

impl Source {
    /// Loads the program. A kind with numbers ([`Kind::Data`]) repeats the same one.
    ///
    /// # Errors
    /// The number of flows is no power of two up to 2^23, or the kernel refuses the program.
    pub fn new(kind: Kind, addressing: &Addressing, flows: u32, to: To) -> Result<Self> {
        ensure!(
            flows.is_power_of_two() && flows <= 1 << 23,
            "{flows} flows are no power of two up to 2^23"
        );
        let back = matches!(kind, Kind::UdpBack | Kind::SynAck | Kind::Acked(_));
        let position = Map::create(MapKind::Array, "bench_flow", 8, 1)?;
        let frame = frame(kind, addressing);
        let insns = program(kind, back, &frame, &position, flows, to)?;
        let program = Program::load_xdp("bench_flows", &insns)?;
        let ingress = match to {
            To::Stack(index) => index,
            // `lo`, where nothing is received.
            To::Interface(_) => 1,
        };
        Ok(Self {
            program,
            _position: position,
            frame,
            ingress,
        })
    }

    /// Sends so many packets, in the namespace of the calling thread and on its processor; returns what the kernel
    /// says one took.
    ///
    /// # Errors
    /// The kernel's answer.
    pub fn send(&self, packets: u32) -> Result<Duration> {
        let sent = self
            .program
            .run_live(&self.frame, self.ingress, packets, BATCH);
        sent.context("packets that a program makes")
    }
}

/// A frame of the flow whose ports are 0.
fn frame(kind: Kind, addressing: &Addressing) -> [u8; FRAME_BYTES] {
    let endpoint = (addressing.client, 0);
    let tuple = Tuple {
        inner: endpoint,
        outer: endpoint,
        server: (addressing.server, 0),
    };
    let mut frames = Frames::default();
    Maker::default().push(&mut frames, kind, &tuple);
    let mut frame = frames.bytes[0];
    frame[..6].copy_from_slice(&addressing.destination_mac);
    frame[6..12].copy_from_slice(&addressing.source_mac);
    frame
}

/// Writes all of the frame, since whoever had its memory before has changed it, and the ports and the checksum of the
/// next flow.
fn program(
    kind: Kind,
    back: bool,
    frame: &[u8; FRAME_BYTES],
    position: &Map,
    flows: u32,
    to: To,
) -> Result<Vec<io::bpf::asm::Insn>> {
    let sum_at: i16 = match kind {
        Kind::Udp | Kind::UdpBack => 40,
        _ => 50,
    };
    let (client_at, server_at) = if back { (36, 34) } else { (34, 36) };
    let at = sum_at as usize;
    let sum_in = |at: usize| i32::from(!u16::from_ne_bytes([frame[at], frame[at + 1]]));
    let low_ports = (1 << PORT_BITS) - 1;

    let mut asm = Asm::new();
    let out = asm.label();
    // struct xdp_md: data, data_end
    asm.load(Width::U32, Reg::R6, Reg::R1, 0)
        .load(Width::U32, Reg::R7, Reg::R1, 4)
        .mov(Reg::R2, Reg::R6)
        .alu_imm(Alu::Add, Reg::R2, FRAME_BYTES as i32)
        .jump_if(Cond::Greater, Reg::R2, Reg::R7, out);
    for (word, offset) in frame.chunks_exact(4).zip((0..).step_by(4)) {
        let word = i32::from_ne_bytes([word[0], word[1], word[2], word[3]]);
        asm.store_imm(Width::U32, Reg::R6, offset, word);
    }
    asm.load_map_value(Reg::R1, position.raw_fd(), 0)
        .load(Width::U64, Reg::R2, Reg::R1, 0)
        .alu_imm(Alu::Add, Reg::R2, STRIDES[usize::from(back)])
        .store(Width::U64, Reg::R1, 0, Reg::R2)
        .alu_imm(Alu::And, Reg::R2, flows as i32 - 1);
    // The client's port, bytes swapped: seven bits and a one, then eight bits.
    asm.mov(Reg::R3, Reg::R2)
        .alu_imm(Alu::And, Reg::R3, 0x7f)
        .alu_imm(Alu::Or, Reg::R3, 0x80)
        .mov(Reg::R4, Reg::R2)
        .alu_imm(Alu::And, Reg::R4, low_ports & !0x7f)
        .alu_imm(Alu::ShiftLeft, Reg::R4, 1)
        .alu(Alu::Or, Reg::R3, Reg::R4)
        .store(Width::U16, Reg::R6, client_at, Reg::R3)
        // The server's: 4096 and what is left of the number.
        .alu_imm(Alu::ShiftRight, Reg::R2, PORT_BITS as i32)
        .alu_imm(Alu::ShiftLeft, Reg::R2, 8)
        .alu_imm(Alu::Or, Reg::R2, 0x10)
        .store(Width::U16, Reg::R6, server_at, Reg::R2)
        // RFC 1071: the sum of swapped bytes is the swapped sum.
        .alu(Alu::Add, Reg::R2, Reg::R3)
        .alu_imm(Alu::Add, Reg::R2, sum_in(at));
    store_sum(&mut asm, Reg::R2, sum_at);
    match to {
        To::Stack(_) => asm.exit_with(XdpAction::Pass),
        To::Interface(index) => asm
            .mov_imm(Reg::R1, index as i32)
            .mov_imm(Reg::R2, 0)
            .call(Helper::Redirect)
            .exit(),
    };
    asm.bind(out).exit_with(XdpAction::Aborted);
    Ok(asm.finish()?)
}

/// Folds a sum of words and writes its complement; `R4` is lost.
fn store_sum(asm: &mut Asm, sum: Reg, at: i16) {
    for _ in 0..2 {
        asm.mov(Reg::R4, sum)
            .alu_imm(Alu::ShiftRight, Reg::R4, 16)
            .alu_imm(Alu::And, sum, 0xffff)
            .alu(Alu::Add, sum, Reg::R4);
    }
    asm.mov_imm(Reg::R4, 0xffff)
        .alu(Alu::Sub, Reg::R4, sum)
        .store(Width::U16, Reg::R6, at, Reg::R4);
}
