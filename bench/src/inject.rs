//! Packets of many flows, made by a program in the kernel: each copy that `BPF_PROG_TEST_RUN` makes of a frame gets the
//! headers of the next flow, then goes up the stack, or to an interface, as from the driver of a card. This is the
//! least that it costs to give a kernel packets, and the same for whoever takes them.
//!
//! The kernel patches calls of XDP programs into its code before the first use of a program and after the last, and
//! waits for a grace period of RCU each time: tens of milliseconds for each call of [`Source::send`], however few its
//! packets. A source therefore keeps its program in use, on a device that nobody sends to.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use io::bpf::asm::{Alu, Asm, Cond, Helper, Reg, Width, XdpAction};
use io::bpf::{AttachMode, Link, Map, MapKind, Program};
use lab::netns::Namespace;

use crate::firewall::{FRAME_BYTES, Frames, Kind, Maker, Tuple};

/// Index of `lo` in every namespace.
const LOOPBACK: u32 = 1;
/// Packets that the kernel makes at a time.
const BATCH: u32 = 64;
/// Client ports of an address: 32,768 and above.
const PORT_BITS: u32 = 15;
/// Where the checksum of the IPv4 header stands.
const IPV4_SUM: usize = 24;
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
    /// The low 16 bits of the client's address, 0 here, are another for each flow: forged ones.
    pub is_forged: bool,
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
    /// Keeps the program in use, and the device that it is on.
    _in_use: (Link, Namespace),
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
        let forged_at = addressing.is_forged.then_some(if back { 32 } else { 28 });
        let insns = program(kind, (back, forged_at), &frame, &position, flows, to)?;
        let program = Program::load_xdp("bench_flows", &insns)?;
        let apart = Namespace::new("bench-source")?;
        let link = apart.run(|| program.attach_xdp(LOOPBACK, AttachMode::Generic))??;
        let ingress = match to {
            To::Stack(index) => index,
            To::Interface(_) => LOOPBACK,
        };
        Ok(Self {
            program,
            _in_use: (link, apart),
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
    (back, forged_at): (bool, Option<i16>),
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
        .alu_imm(Alu::And, Reg::R2, flows as i32 - 1)
        .mov_imm(Reg::R8, 0);
    if let Some(forged_at) = forged_at {
        asm.mov(Reg::R8, Reg::R2)
            .alu_imm(Alu::And, Reg::R8, 0xffff)
            .store(Width::U16, Reg::R6, forged_at, Reg::R8)
            .mov(Reg::R3, Reg::R8)
            .alu_imm(Alu::Add, Reg::R3, sum_in(IPV4_SUM));
        store_sum(&mut asm, Reg::R3, IPV4_SUM as i16);
    }
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
        .alu(Alu::Add, Reg::R2, Reg::R8)
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

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use wire::checksum::{TransportChecksum, verify_transport};

    #[test]
    fn flows_take_turns_and_their_checksums_are_right() {
        if !lab::need::root("bench::inject") {
            return;
        }
        let addressing = Addressing {
            source_mac: [2, 0, 0, 0, 0, 1],
            destination_mac: [2, 0, 0, 0, 0, 2],
            client: 0x0a01_0000,
            is_forged: false,
            server: 0x0a02_0003,
        };
        for (kind, is_forged) in [
            (Kind::Udp, false),
            (Kind::UdpBack, false),
            (Kind::UdpBack, true),
            (Kind::Syn, false),
            (Kind::Syn, true),
        ] {
            let addressing = Addressing {
                is_forged,
                ..addressing
            };
            let source = Source::new(kind, &addressing, 1 << 16, To::Stack(1)).unwrap();
            let (mut seen, mut clients) = (HashSet::new(), HashSet::new());
            for _ in 0..1000 {
                let frame = source.program.run(&[0; FRAME_BYTES], 1).unwrap().packet;
                let layout = wire::parse(&frame).unwrap();
                let key = wire::FlowKey::from_layout(&layout, &frame).unwrap();
                assert_eq!(
                    verify_transport(&layout, &frame),
                    TransportChecksum::Good,
                    "{kind:?}"
                );
                let addresses = layout.ipv4_addresses(&frame).unwrap();
                let header = *frame[14..].first_chunk::<20>().unwrap();
                assert_eq!(wire::checksum::checksum(&header), 0, "{kind:?}");
                let back = kind == Kind::UdpBack;
                clients.insert(if back { addresses.1 } else { addresses.0 });
                let (client, server) = match back {
                    true => (key.destination_port, key.source_port),
                    false => (key.source_port, key.destination_port),
                };
                assert!(
                    client >= 0x8000 && (0x1000..0x1002).contains(&server),
                    "{key:?}"
                );
                assert!(seen.insert((client, server)), "a flow's second turn");
            }
            assert_eq!(clients.len(), if is_forged { 1000 } else { 1 });
        }
    }
}
