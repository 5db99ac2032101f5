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
mod skb;

use core::ffi::c_void;

use common::{Room, helper, run};
use shared::Packet;
use shared::answer::Outcome;
use skb::{Buffer, Context};

const STORE_BYTES: usize = 9;
const REDIRECT: usize = 23;
const CHANGE_TAIL: usize = 38;
/// The packet is another one: no flow hash of the old.
const INVALIDATE_HASH: u64 = 2;

/// The next program of the device, or the stack.
const NEXT: i32 = -1;
const DROP: i32 = 2;

impl Room for Buffer {
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
