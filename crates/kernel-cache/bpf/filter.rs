//! The filter of a packet socket whose device has the TC program: the socket sees a frame before that program does, and
//! is not to be given what the program answers.
//!
//! Compiled as the XDP program is.
#![no_std]
#![no_main]
#![feature(asm_experimental_arch)]

#[expect(dead_code, reason = "a filter writes nothing")]
mod common;
#[path = "../src/shared/mod.rs"]
#[expect(dead_code, reason = "a filter writes nothing")]
mod shared;
mod skb;

use common::has;
use skb::{Buffer, Context};

/// The whole frame.
const KEEP: i32 = -1;

/// Keeps what the cache does not answer.
#[unsafe(link_section = "filter")]
#[unsafe(no_mangle)]
fn tg_kernel_cache(context: *mut Context) -> i32 {
    // SAFETY: the context of the run.
    let ifindex = unsafe { (*context).ifindex };
    if has(&Buffer { context }, ifindex) { 0 } else { KEEP }
}
