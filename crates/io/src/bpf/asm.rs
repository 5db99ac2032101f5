//! A tiny assembler for eBPF: named instructions, labels, byte-exact output.
//!
//! It covers what the node's own programs need (packet parsing, map redirect, counters) and nothing
//! else. Encoding: RFC 9669 (BPF Instruction Set Architecture), sections 3 to 5.

/// A register (RFC 9669, 2.1). `R1` holds the context at entry, `R0` the result at exit, `R6` to `R9`
/// survive calls, `R10` is the read-only frame pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the register's number is its name")]
pub enum Reg {
    R0 = 0,
    R1 = 1,
    R2 = 2,
    R3 = 3,
    R4 = 4,
    R5 = 5,
    R6 = 6,
    R7 = 7,
    R8 = 8,
    R9 = 9,
    R10 = 10,
}

/// Width of a memory access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// 1 byte.
    U8 = 0x10,
    /// 2 bytes.
    U16 = 0x08,
    /// 4 bytes.
    U32 = 0x00,
    /// 8 bytes.
    U64 = 0x18,
}

/// Two-operand arithmetic on 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alu {
    /// `dst += src`
    Add = 0x00,
    /// `dst -= src`
    Sub = 0x10,
    /// `dst |= src`
    Or = 0x40,
    /// `dst &= src`
    And = 0x50,
    /// `dst <<= src`
    ShiftLeft = 0x60,
    /// `dst >>= src`, filling with zeros
    ShiftRight = 0x70,
    /// `dst = src`
    Move = 0xb0,
}

/// Unsigned comparison of a conditional jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cond {
    /// `dst == src`
    Equal = 0x10,
    /// `dst > src`
    Greater = 0x20,
    /// `dst != src`
    NotEqual = 0x50,
    /// `dst < src`
    Less = 0xa0,
}

/// A function of the kernel that a program calls (numbers of `enum bpf_func_id`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Helper {
    /// `bpf_map_lookup_elem(map, key)`: pointer to the value, or 0.
    MapLookup = 1,
    /// `bpf_redirect(ifindex, flags)`.
    Redirect = 23,
    /// `bpf_redirect_map(map, key, action_if_missing)`.
    RedirectMap = 51,
    /// `bpf_xdp_adjust_tail(ctx, bytes)`.
    AdjustTail = 65,
}

/// What an XDP program returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpAction {
    /// Drops the packet and counts an exception.
    Aborted = 0,
    /// Drops the packet.
    Drop = 1,
    /// Gives the packet to the kernel's stack.
    Pass = 2,
    /// Sends the packet back out of the interface.
    Tx = 3,
    /// Follows the redirect that a helper set up.
    Redirect = 4,
}

/// Offsets in `struct xdp_md`, the context of an XDP program, bytes.
pub mod xdp_md {
    /// Start of the packet.
    pub const DATA: i16 = 0;
    /// End of the packet.
    pub const DATA_END: i16 = 4;
    /// Index of the receiving interface.
    pub const INGRESS_IFINDEX: i16 = 12;
    /// Receive queue.
    pub const RX_QUEUE_INDEX: i16 = 16;
}

/// One instruction, as the kernel takes it: 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Insn {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

impl Insn {
    fn new(code: u8, dst: Reg, src: u8, offset: i16, immediate: i32) -> Self {
        // Little-endian targets keep the destination in the low nibble (RFC 9669, 3.1).
        let registers = if cfg!(target_endian = "little") {
            (src << 4) | dst as u8
        } else {
            ((dst as u8) << 4) | src
        };
        Self {
            code,
            registers,
            offset,
            immediate,
        }
    }

    /// Reads an instruction of an object file for this machine's byte order.
    pub fn from_bytes(bytes: [u8; 8]) -> Self {
        Self {
            code: bytes[0],
            registers: bytes[1],
            offset: i16::from_ne_bytes([bytes[2], bytes[3]]),
            immediate: i32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
        }
    }

    /// Puts a map's descriptor into the first half of a wide load, as [`Asm::load_map`] writes it. `None` if the
    /// instruction is not one.
    pub fn with_map(self, map_fd: i32) -> Option<Self> {
        let wide_load = op::LD | op::MODE_IMM | Width::U64 as u8;
        let dst = if cfg!(target_endian = "little") {
            self.registers & 0x0f
        } else {
            self.registers >> 4
        };
        let registers = if cfg!(target_endian = "little") {
            op::PSEUDO_MAP_FD << 4 | dst
        } else {
            dst << 4 | op::PSEUDO_MAP_FD
        };
        (self.code == wide_load).then_some(Self {
            registers,
            immediate: map_fd,
            ..self
        })
    }

    /// Returns the instruction's bytes in memory order.
    pub fn to_bytes(self) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[0] = self.code;
        bytes[1] = self.registers;
        bytes[2..4].copy_from_slice(&self.offset.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.immediate.to_ne_bytes());
        bytes
    }
}

/// A place in the program that jumps can name before it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label(usize);

/// Why a program cannot be assembled. All of these are bugs of whoever wrote the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AsmError {
    /// A jump names a label that was never bound.
    #[error("label {0} is used and never bound")]
    Unbound(usize),
    /// A jump is longer than 32767 instructions.
    #[error("the jump at instruction {0} is too long")]
    TooFar(usize),
}

/// Instruction classes and modes (RFC 9669, 3.1, 4.1, 5).
mod op {
    pub(super) const LD: u8 = 0x00;
    pub(super) const LDX: u8 = 0x01;
    pub(super) const ST: u8 = 0x02;
    pub(super) const STX: u8 = 0x03;
    pub(super) const JMP: u8 = 0x05;
    pub(super) const ALU64: u8 = 0x07;
    pub(super) const MODE_IMM: u8 = 0x00;
    pub(super) const MODE_MEM: u8 = 0x60;
    pub(super) const MODE_ATOMIC: u8 = 0xc0;
    pub(super) const SRC_REG: u8 = 0x08;
    pub(super) const CALL: u8 = 0x80;
    pub(super) const EXIT: u8 = 0x90;
    pub(super) const ALWAYS: u8 = 0x00;
    /// Source nibble of a wide load that names a map by its descriptor.
    pub(super) const PSEUDO_MAP_FD: u8 = 1;
    /// Source nibble of a wide load of the address of a map's first value.
    pub(super) const PSEUDO_MAP_VALUE: u8 = 2;
}

/// A program being written, instruction by instruction.
#[derive(Debug, Default)]
pub struct Asm {
    insns: Vec<Insn>,
    labels: Vec<Option<usize>>,
    jumps: Vec<(usize, Label)>,
}

impl Asm {
    /// Starts an empty program.
    pub fn new() -> Self {
        Self::default()
    }

    fn push(&mut self, code: u8, dst: Reg, src: u8, offset: i16, immediate: i32) -> &mut Self {
        self.insns
            .push(Insn::new(code, dst, src, offset, immediate));
        self
    }

    /// Makes a label to jump to; [`Asm::bind`] says where it is.
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Puts the label before the next instruction.
    pub fn bind(&mut self, label: Label) -> &mut Self {
        self.labels[label.0] = Some(self.insns.len());
        self
    }

    /// `dst = dst op immediate` (sign-extended to 64 bits).
    pub fn alu_imm(&mut self, op: Alu, dst: Reg, immediate: i32) -> &mut Self {
        self.push(op::ALU64 | op as u8, dst, 0, 0, immediate)
    }

    /// `dst = dst op src`.
    pub fn alu(&mut self, op: Alu, dst: Reg, src: Reg) -> &mut Self {
        self.push(op::ALU64 | op::SRC_REG | op as u8, dst, src as u8, 0, 0)
    }

    /// `dst = immediate`.
    pub fn mov_imm(&mut self, dst: Reg, immediate: i32) -> &mut Self {
        self.alu_imm(Alu::Move, dst, immediate)
    }

    /// `dst = src`.
    pub fn mov(&mut self, dst: Reg, src: Reg) -> &mut Self {
        self.alu(Alu::Move, dst, src)
    }

    /// `dst = *(width *)(base + offset)`, zero-extended, in the machine's byte order.
    pub fn load(&mut self, width: Width, dst: Reg, base: Reg, offset: i16) -> &mut Self {
        let code = op::LDX | op::MODE_MEM | width as u8;
        self.push(code, dst, base as u8, offset, 0)
    }

    /// `*(width *)(base + offset) = src`.
    pub fn store(&mut self, width: Width, base: Reg, offset: i16, src: Reg) -> &mut Self {
        let code = op::STX | op::MODE_MEM | width as u8;
        self.push(code, base, src as u8, offset, 0)
    }

    /// `*(width *)(base + offset) = immediate`.
    pub fn store_imm(&mut self, width: Width, base: Reg, offset: i16, immediate: i32) -> &mut Self {
        let code = op::ST | op::MODE_MEM | width as u8;
        self.push(code, base, 0, offset, immediate)
    }

    /// `*(u64 *)(base + offset) += src`, atomically.
    pub fn atomic_add_u64(&mut self, base: Reg, offset: i16, src: Reg) -> &mut Self {
        let code = op::STX | op::MODE_ATOMIC | Width::U64 as u8;
        self.push(code, base, src as u8, offset, 0)
    }

    /// `dst =` the map with this descriptor, as helpers take it.
    pub fn load_map(&mut self, dst: Reg, map_fd: i32) -> &mut Self {
        let code = op::LD | op::MODE_IMM | Width::U64 as u8;
        self.push(code, dst, op::PSEUDO_MAP_FD, 0, map_fd)
            .push(0, Reg::R0, 0, 0, 0)
    }

    /// `dst =` address of byte `offset` of the first value of an array map.
    pub fn load_map_value(&mut self, dst: Reg, map_fd: i32, offset: i32) -> &mut Self {
        let code = op::LD | op::MODE_IMM | Width::U64 as u8;
        self.push(code, dst, op::PSEUDO_MAP_VALUE, 0, map_fd)
            .push(0, Reg::R0, 0, 0, offset)
    }

    /// Jumps if `dst cond immediate` (sign-extended to 64 bits, compared unsigned).
    pub fn jump_if_imm(&mut self, cond: Cond, dst: Reg, immediate: i32, to: Label) -> &mut Self {
        self.jumps.push((self.insns.len(), to));
        self.push(op::JMP | cond as u8, dst, 0, 0, immediate)
    }

    /// Jumps if `dst cond src`, compared unsigned.
    pub fn jump_if(&mut self, cond: Cond, dst: Reg, src: Reg, to: Label) -> &mut Self {
        self.jumps.push((self.insns.len(), to));
        self.push(op::JMP | op::SRC_REG | cond as u8, dst, src as u8, 0, 0)
    }

    /// Jumps.
    pub fn jump(&mut self, to: Label) -> &mut Self {
        self.jumps.push((self.insns.len(), to));
        self.push(op::JMP | op::ALWAYS, Reg::R0, 0, 0, 0)
    }

    /// Calls a helper: arguments in `R1` to `R5`, result in `R0`; `R1` to `R5` are lost.
    pub fn call(&mut self, helper: Helper) -> &mut Self {
        self.push(op::JMP | op::CALL, Reg::R0, 0, 0, helper as i32)
    }

    /// Returns `R0`.
    pub fn exit(&mut self) -> &mut Self {
        self.push(op::JMP | op::EXIT, Reg::R0, 0, 0, 0)
    }

    /// Returns an XDP action.
    pub fn exit_with(&mut self, action: XdpAction) -> &mut Self {
        self.mov_imm(Reg::R0, action as i32).exit()
    }

    /// Resolves the jumps and returns the program.
    ///
    /// # Errors
    /// A label without a place, or a jump that is too long.
    pub fn finish(mut self) -> Result<Vec<Insn>, AsmError> {
        for &(at, label) in &self.jumps {
            let target = self.labels[label.0].ok_or(AsmError::Unbound(label.0))?;
            let distance = target as i64 - at as i64 - 1;
            self.insns[at].offset = i16::try_from(distance).map_err(|_| AsmError::TooFar(at))?;
        }
        Ok(self.insns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(asm: Asm) -> Vec<u8> {
        let program = asm.finish().expect("assembles");
        program.iter().flat_map(|insn| insn.to_bytes()).collect()
    }

    /// Reference encodings as LLVM's assembler prints them (`llvm-mc -triple bpfel -show-encoding`).
    #[test]
    #[cfg(target_endian = "little")]
    fn encodes_like_the_reference_assembler() {
        type Write = fn(&mut Asm) -> &mut Asm;
        let cases: &[(&str, Write, [u8; 8])] = &[
            (
                "r0 = 2",
                |a| a.mov_imm(Reg::R0, 2),
                [0xb7, 0, 0, 0, 2, 0, 0, 0],
            ),
            (
                "r6 = r1",
                |a| a.mov(Reg::R6, Reg::R1),
                [0xbf, 0x16, 0, 0, 0, 0, 0, 0],
            ),
            (
                "r2 = *(u32 *)(r1 + 16)",
                |a| a.load(Width::U32, Reg::R2, Reg::R1, 16),
                [0x61, 0x12, 0x10, 0, 0, 0, 0, 0],
            ),
            (
                "r5 = *(u16 *)(r2 + 12)",
                |a| a.load(Width::U16, Reg::R5, Reg::R2, 12),
                [0x69, 0x25, 0x0c, 0, 0, 0, 0, 0],
            ),
            (
                "r5 = *(u8 *)(r2 - 1)",
                |a| a.load(Width::U8, Reg::R5, Reg::R2, -1),
                [0x71, 0x25, 0xff, 0xff, 0, 0, 0, 0],
            ),
            (
                "*(u64 *)(r10 - 8) = r3",
                |a| a.store(Width::U64, Reg::R10, -8, Reg::R3),
                [0x7b, 0x3a, 0xf8, 0xff, 0, 0, 0, 0],
            ),
            (
                "*(u32 *)(r10 - 4) = 7",
                |a| a.store_imm(Width::U32, Reg::R10, -4, 7),
                [0x62, 0x0a, 0xfc, 0xff, 7, 0, 0, 0],
            ),
            (
                "lock *(u64 *)(r1 + 0) += r2",
                |a| a.atomic_add_u64(Reg::R1, 0, Reg::R2),
                [0xdb, 0x21, 0, 0, 0, 0, 0, 0],
            ),
            (
                "r4 += 14",
                |a| a.alu_imm(Alu::Add, Reg::R4, 14),
                [0x07, 0x04, 0, 0, 14, 0, 0, 0],
            ),
            (
                "r4 &= 15",
                |a| a.alu_imm(Alu::And, Reg::R4, 15),
                [0x57, 0x04, 0, 0, 15, 0, 0, 0],
            ),
            (
                "r4 <<= 2",
                |a| a.alu_imm(Alu::ShiftLeft, Reg::R4, 2),
                [0x67, 0x04, 0, 0, 2, 0, 0, 0],
            ),
            (
                "r4 -= r5",
                |a| a.alu(Alu::Sub, Reg::R4, Reg::R5),
                [0x1f, 0x54, 0, 0, 0, 0, 0, 0],
            ),
            (
                "call 51",
                |a| a.call(Helper::RedirectMap),
                [0x85, 0, 0, 0, 51, 0, 0, 0],
            ),
            ("exit", |a| a.exit(), [0x95, 0, 0, 0, 0, 0, 0, 0]),
        ];
        for (text, write, expected) in cases {
            let mut asm = Asm::new();
            write(&mut asm);
            assert_eq!(bytes(asm), expected, "{text}");
        }
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn a_map_load_is_two_slots() {
        let mut asm = Asm::new();
        asm.load_map(Reg::R1, 9);
        assert_eq!(
            bytes(asm),
            [0x18, 0x11, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        );
        let mut asm = Asm::new();
        asm.load_map_value(Reg::R1, 9, 8);
        assert_eq!(
            bytes(asm),
            [0x18, 0x21, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0]
        );
    }

    #[test]
    fn an_object_files_map_load_gets_its_descriptor() {
        let mut asm = Asm::new();
        asm.load_map(Reg::R1, 9).exit();
        let program = asm.finish().expect("assembles");
        let mut blank = program[0].to_bytes();
        blank[1] = Insn::new(0, Reg::R1, 0, 0, 0).registers;
        blank[4..].fill(0);
        let read = Insn::from_bytes(blank);
        assert_eq!(read.with_map(9), Some(program[0]));
        assert_eq!(program[2].with_map(9), None, "exit is no wide load");
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn jumps_count_from_the_next_instruction() {
        let mut asm = Asm::new();
        let (top, end) = (asm.label(), asm.label());
        asm.bind(top)
            .jump_if_imm(Cond::Equal, Reg::R5, 8, end)
            .jump_if(Cond::Greater, Reg::R4, Reg::R3, end)
            .jump(top)
            .bind(end)
            .exit();
        let expected: [[u8; 8]; 4] = [
            [0x15, 0x05, 2, 0, 8, 0, 0, 0],
            [0x2d, 0x34, 1, 0, 0, 0, 0, 0],
            [0x05, 0x00, 0xfd, 0xff, 0, 0, 0, 0],
            [0x95, 0, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(bytes(asm), expected.concat());
    }

    #[test]
    fn an_unbound_label_is_an_error() {
        let mut asm = Asm::new();
        let nowhere = asm.label();
        asm.jump(nowhere);
        assert_eq!(asm.finish(), Err(AsmError::Unbound(0)));
    }

    #[test]
    fn a_jump_over_the_whole_range_is_an_error() {
        let mut asm = Asm::new();
        let end = asm.label();
        asm.jump(end);
        for _ in 0..40_000 {
            asm.mov_imm(Reg::R0, 0);
        }
        asm.bind(end).exit();
        assert_eq!(asm.finish(), Err(AsmError::TooFar(0)));
    }
}
