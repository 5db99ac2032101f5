//! What the programs have in common: maps, and the job around the shared core.

use core::panic::PanicInfo;

use crate::shared::answer::{Outcome, Scratch, answer, look_up, port_row};
use crate::shared::bounded::{Word, nonzero, opaque};
use crate::shared::frame::Window;
use crate::shared::layout::{Bucket, Config, Node, PortRow, Slab};
use crate::shared::reply::LpHead;
use crate::shared::{Memory, Packet, Reply};

/// A place that the loader replaces by a map's descriptor.
#[repr(C)]
pub(crate) struct Map(u32);

impl Map {
    pub(crate) const HERE: Self = Self(0);
}

#[unsafe(link_section = "maps")]
#[unsafe(no_mangle)]
pub(crate) static kc_config: Map = Map::HERE;
#[unsafe(link_section = "maps")]
#[unsafe(no_mangle)]
pub(crate) static kc_buckets: Map = Map::HERE;
#[unsafe(link_section = "maps")]
#[unsafe(no_mangle)]
pub(crate) static kc_nodes: Map = Map::HERE;
#[unsafe(link_section = "maps")]
#[unsafe(no_mangle)]
pub(crate) static kc_slabs: Map = Map::HERE;
#[unsafe(link_section = "maps")]
#[unsafe(no_mangle)]
pub(crate) static kc_ports: Map = Map::HERE;
#[unsafe(link_section = "maps")]
#[unsafe(no_mangle)]
pub(crate) static kc_scratch: Map = Map::HERE;
#[unsafe(link_section = "maps")]
#[unsafe(no_mangle)]
pub(crate) static kc_outcomes: Map = Map::HERE;
/// Calls a helper by its number (`enum bpf_func_id`).
macro_rules! helper {
    ($number:expr, fn($($argument:ty),*) -> $result:ty) => {{
        // The address of a helper is its number.
        let function: unsafe extern "C" fn($($argument),*) -> $result = core::mem::transmute($number);
        function
    }};
}

pub(crate) use helper;

const MAP_LOOKUP: usize = 1;
const KTIME_NS: usize = 5;

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
    barrier: *const Word,
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

/// A frame as the helpers of a program's kind change it.
pub(crate) trait Room: Packet {
    /// As [`Reply::resize`].
    fn resize(&mut self, length: usize) -> bool;
    /// Writes `length` bytes from `from`, which has that many, to `at`.
    fn store(&mut self, at: usize, from: *const u8, length: usize) -> bool;
}

impl<R: Room> Reply for R {
    #[inline(always)]
    fn resize(&mut self, length: usize) -> bool {
        Room::resize(self, length)
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

/// Answers a frame if the cache can, and counts what became of it.
#[inline(always)]
pub(crate) fn run(packet: &mut impl Reply, ifindex: u32) -> Outcome {
    let outcome = try_answer(packet, ifindex);
    if let Some(counter) = own::<u64>(&kc_outcomes, outcome as u32) {
        *counter += 1;
    }
    outcome
}

#[inline(always)]
fn try_answer(packet: &mut impl Reply, ifindex: u32) -> Outcome {
    match ground(ifindex) {
        Some((maps, port, scratch)) => answer(&maps, packet, ifindex, port, scratch),
        None => Outcome::Other,
    }
}

/// Tells whether the cache has what answers a frame.
#[inline(always)]
pub(crate) fn has(packet: &impl Packet, ifindex: u32) -> bool {
    match ground(ifindex) {
        Some((maps, port, scratch)) => look_up(&maps, packet, ifindex, port, scratch).is_ok(),
        None => false,
    }
}

/// Returns what a run works on.
#[inline(always)]
fn ground(ifindex: u32) -> Option<(Maps, &'static PortRow, &'static mut Scratch)> {
    let config = value::<Config>(&kc_config, 0)?;
    let port = value::<PortRow>(&kc_ports, port_row(ifindex))?;
    let scratch = own::<Scratch>(&kc_scratch, 0)?;
    let barrier = &raw const scratch.barrier;
    Some((Maps { config, barrier }, port, scratch))
}

/// Nothing panics: `cargo xtask bpf` refuses an object that refers to this.
#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    loop {}
}
