//! The XDP program: the frame of a driver under the shared core.
//!
//! Compiled by `cargo xtask bpf` with Debian's rustc for BPF; the object beside this file is what the loader embeds.
#![no_std]
#![no_main]
#![feature(asm_experimental_arch)]

mod common;
#[path = "../src/shared/mod.rs"]
#[expect(dead_code, reason = "user space has the writers")]
mod shared;

use core::ffi::c_void;

use common::{Map, Room, helper, run};
use shared::Packet;
use shared::answer::{Outcome, port_row};
use shared::bounded::nonzero;
use shared::frame::Window;

#[unsafe(link_section = "maps")]
#[unsafe(no_mangle)]
static kc_next: Map = Map::HERE;

/// `struct xdp_md`
#[repr(C)]
struct Context {
    data: u32,
    data_end: u32,
    data_meta: u32,
    ingress_ifindex: u32,
    rx_queue_index: u32,
    egress_ifindex: u32,
}

const TAIL_CALL: usize = 12;
const ADJUST_TAIL: usize = 65;
const LOAD_BYTES: usize = 189;
const STORE_BYTES: usize = 190;

const PASS: u32 = 2;
const DROP: u32 = 1;
const TRANSMIT: u32 = 3;

/// The frame.
struct Frame {
    context: *mut Context,
}

impl Packet for Frame {
    #[inline(always)]
    fn load(&self, window: &mut Window, length: usize) -> bool {
        let length = nonzero::<511>(length);
        // SAFETY: the verifier checks length and address.
        unsafe {
            helper!(LOAD_BYTES, fn(*mut Context, u32, *mut c_void, u32) -> i64)(
                self.context,
                0,
                window.as_mut_ptr().cast(),
                length as u32,
            ) == 0
        }
    }
    #[inline(always)]
    fn length(&self) -> usize {
        // SAFETY: the context of the run, whose fields the kernel writes. A program that is loaded without the flag for
        // frames in several pieces gets none.
        let (data, end) = unsafe {
            (
                (&raw const (*self.context).data).read_volatile(),
                (&raw const (*self.context).data_end).read_volatile(),
            )
        };
        end.wrapping_sub(data) as usize
    }
}

impl Room for Frame {
    #[inline(always)]
    fn resize(&mut self, length: usize) -> bool {
        let delta = length as i32 - self.length() as i32;
        // SAFETY: the helper takes the context and a number.
        delta == 0
            || unsafe { helper!(ADJUST_TAIL, fn(*mut Context, i32) -> i64)(self.context, delta) == 0 }
    }
    #[inline(always)]
    fn store(&mut self, at: usize, from: *const u8, length: usize) -> bool {
        // SAFETY: the verifier checks length and address.
        unsafe {
            helper!(STORE_BYTES, fn(*mut Context, u32, *const c_void, u32) -> i64)(
                self.context,
                at as u32,
                from.cast(),
                length as u32,
            ) == 0
        }
    }
}

/// Answers, or gives the frame to the next program of the port, or to the kernel.
#[unsafe(link_section = "xdp")]
#[unsafe(no_mangle)]
fn tg_kernel_cache(context: *mut Context) -> u32 {
    // SAFETY: the context of the run.
    let ifindex = unsafe { (*context).ingress_ifindex };
    match run(&mut Frame { context }, ifindex) {
        Outcome::Exact | Outcome::Prefix => return TRANSMIT,
        Outcome::Torn => return DROP,
        _ => {}
    }
    // SAFETY: the helper takes the context, the map and a key; it comes back if there is no program.
    unsafe {
        helper!(TAIL_CALL, fn(*mut Context, *const Map, u32) -> i64)(
            context,
            &kc_next,
            port_row(ifindex),
        );
    }
    PASS
}
