//! BPF without a compiler or a loader library: programs are assembled in Rust ([`asm`]), loaded by
//! `bpf(2)` ([`sys`]) and attached as BPF links, so that they go away with the process.

pub mod asm;
pub mod redirect;
#[expect(
    unsafe_code,
    reason = "the bpf(2) system call takes addresses of attribute blocks and returns descriptors"
)]
pub mod sys;

pub use redirect::{Filter, PacketMatch, Rows, redirect_program};
pub use sys::{
    AttachMode, BpfError, Front, FrontEntry, Link, Map, MapKind, Program, ProgramKind,
    TestRunResult,
};
