//! The program in front of the node's AF_XDP sockets: it decides which packets the node gets and
//! which the kernel's own stack keeps (IO-4), and redirects the former to the socket of their queue.

use super::asm::{Alu, Asm, AsmError, Cond, Helper, Insn, Label, Reg, Width, XdpAction, xdp_md};

const ETHERTYPE_VLAN: u16 = 0x8100;
const ETHERTYPE_QINQ: u16 = 0x88a8;
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_UDP: u8 = 17;

/// VLAN tags that are looked through, as many as the node's own parser takes.
const VLAN_TAGS: usize = 2;

/// A property of a packet that the kernel-side program can test. VLAN tags (up to two) are looked
/// through. Ports are only seen in packets that are not later fragments and whose IPv6 header has no
/// extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PacketMatch {
    /// The EtherType, after VLAN tags.
    EtherType(u16),
    /// The protocol of an IPv4 packet or the first next header of an IPv6 packet.
    IpProtocol(u8),
    /// The destination port of a TCP segment.
    TcpDestination(u16),
    /// The destination port of a UDP datagram.
    UdpDestination(u16),
}

/// Which packets go to the node. The rest goes on to the kernel's stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Filter {
    /// All.
    #[default]
    Everything,
    /// Those that match at least one.
    Only(Vec<PacketMatch>),
    /// Those that match none.
    Except(Vec<PacketMatch>),
}

/// How the sockets of several interfaces lie in one map: a row an interface, an entry a receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// Binary logarithm of the number of rows; the low bits of an interface's index choose its row.
    pub row_bits: u32,
    /// Binary logarithm of the number of entries in a row.
    pub queue_bits: u32,
}

impl Rows {
    /// Returns the number of entries of all rows.
    pub const fn entries(self) -> u32 {
        1 << (self.row_bits + self.queue_bits)
    }

    /// Returns the number of queues that a row has room for.
    pub const fn queues(self) -> u32 {
        1 << self.queue_bits
    }

    /// Returns the row of an interface.
    pub const fn row(self, ifindex: u32) -> u32 {
        ifindex & ((1 << self.row_bits) - 1)
    }

    /// Returns the entry of an interface's queue.
    pub const fn key(self, ifindex: u32, queue: u32) -> u32 {
        self.row(ifindex) << self.queue_bits | queue
    }
}

/// Assembles the program: packets that the filter gives to the node are redirected to the socket
/// that `sockets` (an XSKMAP laid out as `rows` says) has for their interface and receive queue; without
/// a socket there, and for all other packets, the kernel's stack gets them.
///
/// # Errors
/// A filter so long that a jump does not reach.
pub fn redirect_program(
    sockets_fd: i32,
    filter: &Filter,
    rows: Rows,
) -> Result<Vec<Insn>, AsmError> {
    let mut asm = Asm::new();
    let (to_node, to_kernel) = (asm.label(), asm.label());
    asm.mov(Reg::R6, Reg::R1);
    let mut filters = false;
    match filter {
        Filter::Only(rules) if rules.is_empty() => {
            // The verifier refuses instructions that are never reached.
            asm.exit_with(XdpAction::Pass);
            return asm.finish();
        }
        Filter::Only(rules) => {
            write_rules(&mut asm, rules, to_node, to_kernel);
            filters = true;
        }
        Filter::Except(rules) if !rules.is_empty() => {
            write_rules(&mut asm, rules, to_kernel, to_node);
            filters = true;
        }
        Filter::Everything | Filter::Except(_) => {}
    }
    asm.bind(to_node);
    write_key(&mut asm, rows, to_kernel);
    asm.load_map(Reg::R1, sockets_fd)
        .mov_imm(Reg::R3, XdpAction::Pass as i32)
        .call(Helper::RedirectMap)
        .exit();
    if filters || rows.row_bits > 0 {
        asm.bind(to_kernel).exit_with(XdpAction::Pass);
    }
    asm.finish()
}

/// Computes a packet's entry in the map of sockets into R2; a queue outside its row goes to the kernel.
fn write_key(asm: &mut Asm, rows: Rows, to_kernel: Label) {
    asm.load(Width::U32, Reg::R2, Reg::R6, xdp_md::RX_QUEUE_INDEX);
    if rows.row_bits > 0 {
        asm.jump_if_imm(Cond::Greater, Reg::R2, rows.queues() as i32 - 1, to_kernel)
            .load(Width::U32, Reg::R3, Reg::R6, xdp_md::INGRESS_IFINDEX)
            .alu_imm(Alu::And, Reg::R3, (1 << rows.row_bits) - 1)
            .alu_imm(Alu::ShiftLeft, Reg::R3, rows.queue_bits as i32)
            .alu(Alu::Or, Reg::R2, Reg::R3);
    }
}

/// A 16-bit field of network byte order as a load in the machine's order sees it.
fn network(value: u16) -> i32 {
    i32::from(value.to_be())
}

/// Writes the tests of a filter: jumps to `matched` at the first rule that holds, else to `other`.
///
/// Registers: R6 context, R3 end of the packet, R7 the byte that is looked at, R5 EtherType or
/// protocol, R8 destination port.
fn write_rules(asm: &mut Asm, rules: &[PacketMatch], matched: Label, other: Label) {
    asm.load(Width::U32, Reg::R7, Reg::R6, xdp_md::DATA).load(
        Width::U32,
        Reg::R3,
        Reg::R6,
        xdp_md::DATA_END,
    );
    write_bounds_check(asm, 14, other);
    asm.load(Width::U16, Reg::R5, Reg::R7, 12)
        .alu_imm(Alu::Add, Reg::R7, 14);
    write_vlan_skip(asm, other);
    for rule in rules {
        if let PacketMatch::EtherType(ethertype) = *rule {
            asm.jump_if_imm(Cond::Equal, Reg::R5, network(ethertype), matched);
        }
    }
    let wants_ip = rules
        .iter()
        .any(|rule| !matches!(rule, PacketMatch::EtherType(_)));
    if wants_ip {
        let (not_ipv4, transport) = (asm.label(), asm.label());
        asm.jump_if_imm(Cond::NotEqual, Reg::R5, network(ETHERTYPE_IPV4), not_ipv4);
        write_ipv4(asm, rules, matched, other, transport);
        asm.bind(not_ipv4)
            .jump_if_imm(Cond::NotEqual, Reg::R5, network(ETHERTYPE_IPV6), other);
        write_bounds_check(asm, 40, other);
        asm.load(Width::U8, Reg::R5, Reg::R7, 6)
            .alu_imm(Alu::Add, Reg::R7, 40);
        write_protocol_rules(asm, rules, matched);
        asm.bind(transport);
        write_port_rules(asm, rules, matched, other);
    }
    asm.jump(other);
}

/// Jumps to `short` unless `bytes` bytes follow R7.
fn write_bounds_check(asm: &mut Asm, bytes: i32, short: Label) {
    asm.mov(Reg::R4, Reg::R7)
        .alu_imm(Alu::Add, Reg::R4, bytes)
        .jump_if(Cond::Greater, Reg::R4, Reg::R3, short);
}

/// Moves R7 over VLAN tags and loads the EtherType behind them into R5.
fn write_vlan_skip(asm: &mut Asm, short: Label) {
    for _ in 0..VLAN_TAGS {
        let (tag, done) = (asm.label(), asm.label());
        asm.jump_if_imm(Cond::Equal, Reg::R5, network(ETHERTYPE_VLAN), tag)
            .jump_if_imm(Cond::NotEqual, Reg::R5, network(ETHERTYPE_QINQ), done)
            .bind(tag);
        write_bounds_check(asm, 4, short);
        asm.load(Width::U16, Reg::R5, Reg::R7, 2)
            .alu_imm(Alu::Add, Reg::R7, 4)
            .bind(done);
    }
}

/// Reads an IPv4 header at R7: protocol to R5, R7 past the header (with options).
fn write_ipv4(
    asm: &mut Asm,
    rules: &[PacketMatch],
    matched: Label,
    other: Label,
    transport: Label,
) {
    write_bounds_check(asm, 20, other);
    asm.load(Width::U8, Reg::R5, Reg::R7, 9);
    write_protocol_rules(asm, rules, matched);
    // A later fragment (offset not 0; RFC 791, 3.1) has no ports.
    asm.load(Width::U16, Reg::R4, Reg::R7, 6)
        .alu_imm(Alu::And, Reg::R4, network(0x1fff))
        .jump_if_imm(Cond::NotEqual, Reg::R4, 0, other)
        .load(Width::U8, Reg::R4, Reg::R7, 0)
        .alu_imm(Alu::And, Reg::R4, 0x0f)
        .alu_imm(Alu::ShiftLeft, Reg::R4, 2)
        .jump_if_imm(Cond::Less, Reg::R4, 20, other)
        .alu(Alu::Add, Reg::R7, Reg::R4)
        .jump(transport);
}

fn write_protocol_rules(asm: &mut Asm, rules: &[PacketMatch], matched: Label) {
    for rule in rules {
        if let PacketMatch::IpProtocol(protocol) = *rule {
            asm.jump_if_imm(Cond::Equal, Reg::R5, i32::from(protocol), matched);
        }
    }
}

/// Compares the destination port of the TCP or UDP header at R7; R5 is the protocol.
fn write_port_rules(asm: &mut Asm, rules: &[PacketMatch], matched: Label, other: Label) {
    let ports: Vec<(u8, u16)> = rules
        .iter()
        .filter_map(|rule| match *rule {
            PacketMatch::TcpDestination(port) => Some((PROTOCOL_TCP, port)),
            PacketMatch::UdpDestination(port) => Some((PROTOCOL_UDP, port)),
            PacketMatch::EtherType(_) | PacketMatch::IpProtocol(_) => None,
        })
        .collect();
    if ports.is_empty() {
        return;
    }
    write_bounds_check(asm, 4, other);
    asm.load(Width::U16, Reg::R8, Reg::R7, 2);
    for (protocol, port) in ports {
        let next = asm.label();
        asm.jump_if_imm(Cond::NotEqual, Reg::R5, i32::from(protocol), next)
            .jump_if_imm(Cond::Equal, Reg::R8, network(port), matched)
            .bind(next);
    }
}
