//! The data path allocates nothing: not a packet, not a burst, not when rings or pools run dry.
#![expect(unsafe_code, reason = "GlobalAlloc is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use io::port::{self, DriverSpec, PortSpec};
use io::{Batch, HugePages, Pool, PortId, mem, null};

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, counting each thread's calls.
struct Counting;

// SAFETY: every call goes to `System` unchanged; counting touches a thread-local without a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `System` with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_million_forwards_through_rings_that_fill_and_pools_that_empty_allocate_nothing() {
    let mut pools = Pool::split(100, 2, 2048, HugePages::Never).unwrap();
    let mut other = pools.pop().unwrap();
    let mut pool = pools.pop().unwrap();
    let (left, right) = mem::link(mem::LinkSpec {
        depth: 64,
        ..mem::LinkSpec::default()
    });
    let open = |id, driver| {
        let spec = PortSpec::new(PortId(id), "port", driver);
        let mut port = port::open(&spec, pool.region(), 1).unwrap();
        port.queues.remove(0)
    };
    let mut source = open(0, DriverSpec::Null(null::NullSpec::default()));
    let mut a = open(1, DriverSpec::Mem(left));
    let mut b = open(2, DriverSpec::Mem(right));
    let (mut batch, mut received) = (Batch::new(), Batch::new());
    let before = COUNT.get();
    let mut forwards = 0;
    for round in 0_u64.. {
        source.rx(&mut pool, &mut batch);
        forwards += a.tx(&mut pool, &mut batch);
        // Three rounds of seven the receiver is away: the ring fills and the pool empties.
        if round % 7 > 2 {
            b.rx(&mut other, &mut received);
            // The other worker's pool keeps them as strays and sends them home.
            other.free_batch(&mut received);
            for stray in other.take_strays() {
                pool.free(stray);
            }
        }
        if round % 64 == 0 {
            a.arm();
            a.disarm();
        }
        if forwards >= 1_000_000 {
            break;
        }
    }
    assert_eq!(COUNT.get() - before, 0);
    assert!(source.stats().rx_no_frame_pkts > 0, "the pool ran dry");
    pool.free_batch(&mut batch);
    b.close(&mut pool);
    a.close(&mut pool);
    assert_eq!((pool.available(), other.available()), (100, 100));
}
