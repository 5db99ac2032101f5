//! The XDP program: the frame of a driver and the maps of the cache, under the shared core.
//!
//! Compiled by `cargo xtask bpf` with Debian's rustc for BPF; the object beside this file is what the loader embeds.
#![no_std]
#![no_main]
#![feature(asm_experimental_arch)]

#[path = "../src/shared/mod.rs"]
#[expect(dead_code, reason = "user space has the writers")]
mod shared;

use core::ffi::c_void;
use core::panic::PanicInfo;

use shared::answer::{Outcome, Scratch, answer, port_row};
use shared::bounded::{nonzero, opaque};
use shared::frame::Window;
use shared::layout::{Bucket, Config, Node, PortRow, Slab};
use shared::reply::LpHead;
use shared::{Memory, Packet};

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

/// A place that the loader replaces by a map's descriptor.
#[repr(C)]
struct Map(u32);

#[unsafe(link_section = "maps")]
#[unsafe(no_mangle)]
static kc_config: Map = Map(0);
#[unsafe(link_section = "maps")]
#[unsafe(no_mangle)]
static kc_buckets: Map = Map(0);
#[unsafe(link_section = "maps")]
#[unsafe(no_mangle)]
static kc_nodes: Map = Map(0);
#[unsafe(link_section = "maps")]
#[unsafe(no_mangle)]
static kc_slabs: Map = Map(0);
#[unsafe(link_section = "maps")]
#[unsafe(no_mangle)]
static kc_ports: Map = Map(0);
#[unsafe(link_section = "maps")]
#[unsafe(no_mangle)]
static kc_scratch: Map = Map(0);
#[unsafe(link_section = "maps")]
#[unsafe(no_mangle)]
static kc_outcomes: Map = Map(0);
#[unsafe(link_section = "maps")]
#[unsafe(no_mangle)]
static kc_next: Map = Map(0);

/// Calls a helper by its number (`enum bpf_func_id`).
macro_rules! helper {
    ($number:expr, fn($($argument:ty),*) -> $result:ty) => {{
        // The address of a helper is its number.
        let function: unsafe extern "C" fn($($argument),*) -> $result = core::mem::transmute($number);
        function
    }};
}

const MAP_LOOKUP: usize = 1;
const KTIME_NS: usize = 5;
const TAIL_CALL: usize = 12;
const ADJUST_TAIL: usize = 65;
const BUFFER_BYTES: usize = 188;
const LOAD_BYTES: usize = 189;
const STORE_BYTES: usize = 190;

const PASS: u32 = 2;
const DROP: u32 = 1;
const TRANSMIT: u32 = 3;

/// Returns the address of a value of an array map, or null.
#[inline(always)]
fn address<T>(map: &'static Map, key: u32) -> *mut T {
    // SAFETY: the helper takes the map and a key.
    unsafe { helper!(MAP_LOOKUP, fn(*const Map, *const u32) -> *mut T)(map, &key) }
}

/// Returns a value that others may change only where it is atomic.
#[inline(always)]
fn value<T>(map: &'static Map, key: u32) -> Option<&'static T> {
    // SAFETY: null or a value of the map, which was made for `T`; a map outlives the run of a program.
    unsafe { address::<T>(map, key).as_ref() }
}

/// Returns a value that is this processor's own; at most one such reference to a map lives.
#[inline(always)]
fn own<T>(map: &'static Map, key: u32) -> Option<&'static mut T> {
    // SAFETY: as above; the map has a value a processor, and no other frame interrupts a run.
    unsafe { address::<T>(map, key).as_mut() }
}

/// The maps.
struct Maps {
    config: &'static Config,
    barrier: *const shared::bounded::Word,
}

impl Memory for Maps {
    #[inline(always)]
    fn config(&self) -> &Config {
        self.config
    }
    #[inline(always)]
    fn bucket(&self, index: u32) -> Option<&Bucket> {
        value(&kc_buckets, index)
    }
    #[inline(always)]
    fn node(&self, slot: u32) -> Option<&Node> {
        value(&kc_nodes, slot)
    }
    #[inline(always)]
    fn slab(&self, slot: u32) -> Option<&Slab> {
        value(&kc_slabs, slot)
    }
    #[inline(always)]
    fn read_barrier(&self) {
        core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
        if self.config.weakly_ordered != 0 {
            // SAFETY: an atomic instruction that returns a value is a full barrier (RFC 9669, 5.3); the word is
            // this processor's own.
            unsafe {
                let mut one = 1_u64;
                core::arch::asm!(
                    "{one} = atomic_fetch_add((u64 *)({word} + 0), {one})",
                    word = in(reg) self.barrier,
                    one = inout(reg) one,
                    options(nostack),
                );
                let _ = one;
            }
        }
    }
    #[inline(always)]
    fn now_ns(&self) -> u64 {
        // SAFETY: the helper takes nothing.
        unsafe { helper!(KTIME_NS, fn() -> u64)() }
    }
}

/// The frame.
struct Frame {
    context: *mut Context,
}

impl Frame {
    /// Writes `length` bytes from `from`, which has that many, to `at`.
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
        // SAFETY: the helper takes the context.
        unsafe { helper!(BUFFER_BYTES, fn(*mut Context) -> u64)(self.context) as usize }
    }
    #[inline(always)]
    fn resize(&mut self, length: usize) -> bool {
        let delta = length as i32 - self.length() as i32;
        // SAFETY: the helper takes the context and a number.
        delta == 0
            || unsafe { helper!(ADJUST_TAIL, fn(*mut Context, i32) -> i64)(self.context, delta) == 0 }
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

/// Answers, or gives the frame to the next program of the port, or to the kernel.
#[unsafe(link_section = "xdp")]
#[unsafe(no_mangle)]
fn tg_kernel_cache(context: *mut Context) -> u32 {
    // SAFETY: the context of the run.
    let ifindex = unsafe { (*context).ingress_ifindex };
    match run(context, ifindex) {
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

#[inline(always)]
fn run(context: *mut Context, ifindex: u32) -> Outcome {
    let outcome = try_answer(context, ifindex);
    if let Some(counter) = own::<u64>(&kc_outcomes, outcome as u32) {
        *counter += 1;
    }
    outcome
}

#[inline(always)]
fn try_answer(context: *mut Context, ifindex: u32) -> Outcome {
    let (Some(config), Some(port), Some(scratch)) = (
        value::<Config>(&kc_config, 0),
        value::<PortRow>(&kc_ports, port_row(ifindex)),
        own::<Scratch>(&kc_scratch, 0),
    ) else {
        return Outcome::Other;
    };
    let barrier = &raw const scratch.barrier;
    let maps = Maps { config, barrier };
    answer(&maps, &mut Frame { context }, ifindex, port, scratch)
}

/// Nothing panics: `cargo xtask bpf` refuses an object that refers to this.
#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    loop {}
}
