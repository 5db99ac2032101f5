//! A global allocator that counts, for programs that claim zero allocations a packet.
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: bench::allocations::Counting = bench::allocations::Counting;
//!
//! let before = bench::allocations::of_this_thread();
//! let value = Box::new(1);
//! assert_eq!(bench::allocations::of_this_thread() - before, 1);
//! # drop(value);
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, counting the allocations of each thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counting;

// SAFETY: every call goes to `System` unchanged; counting touches only a thread-local without a
// destructor, which allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`, which is that of `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `System` through this allocator, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count();
        // SAFETY: as in `dealloc`; the caller vouches for `new_size`.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}

fn count() {
    // A thread that is ending has no counter any more; nobody reads it either.
    let _ = COUNT.try_with(|count| count.set(count.get() + 1));
}

/// Returns how often the calling thread has allocated or grown memory. Always 0 unless [`Counting`] is
/// the program's global allocator.
pub fn of_this_thread() -> u64 {
    COUNT.with(Cell::get)
}
