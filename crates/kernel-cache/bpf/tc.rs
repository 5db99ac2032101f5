//! The TC program, for devices whose XDP frames cannot grow: veth, and drivers without XDP.
//!
//! Compiled as the XDP program is.
#![no_std]
#![no_main]
#![feature(asm_experimental_arch)]

mod common;
#[path = "../src/shared/mod.rs"]
#[expect(dead_code, reason = "user space has the writers")]
mod shared;

use core::ffi::c_void;

use common::{helper, run};
use shared::Packet;
use shared::answer::Outcome;
use shared::bounded::{nonzero, opaque};
use shared::frame::Window;
use shared::layout::Slab;
use shared::reply::LpHead;

/// The start of `struct __sk_buff`.
#[repr(C)]
struct Context {
    len: u32,
    _others: [u32; 9],
    ifindex: u32,
}

const STORE_BYTES: usize = 9;
const REDIRECT: usize = 23;
const LOAD_BYTES: usize = 26;
const CHANGE_TAIL: usize = 38;
/// The packet is another one: no flow hash of the old.
const INVALIDATE_HASH: u64 = 2;

/// The next program of the device, or the stack.
const NEXT: i32 = -1;
const DROP: i32 = 2;

/// The socket buffer.
struct Buffer {
    context: *mut Context,
}

impl Buffer {
    /// Writes `length` bytes from `from`, which has that many, to `at`.
    #[inline(always)]
    fn store(&mut self, at: usize, from: *const u8, length: usize) -> bool {
        // SAFETY: the verifier checks length and address.
        unsafe {
            helper!(STORE_BYTES, fn(*mut Context, u32, *const c_void, u32, u64) -> i64)(
                self.context,
                at as u32,
                from.cast(),
                length as u32,
                INVALIDATE_HASH,
            ) == 0
        }
    }
}

impl Packet for Buffer {
    #[inline(always)]
    fn load(&self, window: &mut Window, length: usize) -> bool {
        let length = nonzero::<511>(length);
        // SAFETY: the verifier checks length and address.
        unsafe {
            helper!(LOAD_BYTES, fn(*const Context, u32, *mut c_void, u32) -> i64)(
                self.context,
                0,
                window.as_mut_ptr().cast(),
                length as u32,
            ) == 0
        }
    }
    #[inline(always)]
    fn length(&self) -> usize {
        // SAFETY: the context of the run; the kernel writes the field.
        unsafe { (&raw const (*self.context).len).read_volatile() as usize }
    }
    #[inline(always)]
    fn resize(&mut self, length: usize) -> bool {
        // SAFETY: the helper takes the context and numbers.
        length == self.length()
            || unsafe {
                helper!(CHANGE_TAIL, fn(*mut Context, u32, u64) -> i64)(self.context, length as u32, 0)
                    == 0
            }
    }
    #[inline(always)]
    fn store_head(&mut self, window: &Window, length: usize) -> bool {
        self.store(0, window.as_ptr(), nonzero::<127>(length))
    }
    #[inline(always)]
    fn store_lp(&mut self, at: usize, lp: &LpHead, length: usize) -> bool {
        self.store(at, lp.as_ptr(), nonzero::<63>(length))
    }
    #[inline(always)]
    fn store_slab(&mut self, at: usize, slab: &Slab, from: usize, length: usize) -> bool {
        let start: *const Slab = slab;
        // SAFETY: below 8, of a slab that is longer.
        let from = unsafe { start.cast::<u8>().add(opaque(from) & 7) };
        self.store(at, from, nonzero::<2047>(length))
    }
}

/// Answers, or gives the packet to the next program of the device, or to the stack.
#[unsafe(link_section = "tc")]
#[unsafe(no_mangle)]
fn tg_kernel_cache(context: *mut Context) -> i32 {
    // SAFETY: the context of the run.
    let ifindex = unsafe { (*context).ifindex };
    match run(&mut Buffer { context }, ifindex) {
        // SAFETY: the helper takes numbers. Back out of the device, with the VLAN tag that the buffer still has.
        Outcome::Exact | Outcome::Prefix => unsafe {
            helper!(REDIRECT, fn(u32, u64) -> i64)(ifindex, 0) as i32
        },
        Outcome::Torn => DROP,
        _ => NEXT,
    }
}
