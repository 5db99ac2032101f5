//! What the programs have in common: maps, and the job around the shared core.

use core::panic::PanicInfo;

use crate::shared::answer::{Outcome, Scratch, answer, port_row};
use crate::shared::bounded::Word;
use crate::shared::layout::{Bucket, Config, Node, PortRow, Slab};
use crate::shared::{Memory, Packet};

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

/// Answers a frame if the cache can, and counts what became of it.
#[inline(always)]
pub(crate) fn run(packet: &mut impl Packet, ifindex: u32) -> Outcome {
    let outcome = try_answer(packet, ifindex);
    if let Some(counter) = own::<u64>(&kc_outcomes, outcome as u32) {
        *counter += 1;
    }
    outcome
}

#[inline(always)]
fn try_answer(packet: &mut impl Packet, ifindex: u32) -> Outcome {
    let (Some(config), Some(port), Some(scratch)) = (
        value::<Config>(&kc_config, 0),
        value::<PortRow>(&kc_ports, port_row(ifindex)),
        own::<Scratch>(&kc_scratch, 0),
    ) else {
        return Outcome::Other;
    };
    let barrier = &raw const scratch.barrier;
    let maps = Maps { config, barrier };
    answer(&maps, packet, ifindex, port, scratch)
}

/// Nothing panics: `cargo xtask bpf` refuses an object that refers to this.
#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    loop {}
}
