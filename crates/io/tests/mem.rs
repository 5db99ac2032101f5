//! The `mem` driver: frames are conserved, whatever the regions, threads and order of closing.

use std::time::{Duration, Instant};

use io::port::{self, DriverSpec, PortSpec};
use io::wait::{PollSet, Woken};
use io::{Arm, Batch, Frame, HugePages, Pool, PortId, Queue, mem};

const DEPTH: usize = 128;

fn open_pair(left: &Pool, right: &Pool) -> (Box<dyn Queue>, Box<dyn Queue>) {
    let (a, b) = mem::link(mem::LinkSpec {
        depth: DEPTH,
        ..mem::LinkSpec::default()
    });
    let mut a = port::open(
        &PortSpec::new(PortId(0), "left", DriverSpec::Mem(a)),
        left.region(),
        1,
    )
    .unwrap();
    let mut b = port::open(
        &PortSpec::new(PortId(1), "right", DriverSpec::Mem(b)),
        right.region(),
        1,
    )
    .unwrap();
    (a.queues.remove(0), b.queues.remove(0))
}

fn fill(pool: &mut Pool, batch: &mut Batch, n: usize, first: u32) -> usize {
    let mut made = 0;
    while made < n {
        let Some(mut frame) = pool.alloc() else { break };
        let number = first.wrapping_add(made as u32);
        assert!(frame.set_len(60 + (number % 1400) as usize));
        frame.data_mut()[..4].copy_from_slice(&number.to_be_bytes());
        batch.push(frame).unwrap();
        made += 1;
    }
    made
}

fn number(frame: &Frame) -> u32 {
    u32::from_be_bytes(*frame.data().first_chunk().unwrap())
}

#[test]
fn an_end_opens_once_and_queues_do_not_outnumber_workers() {
    let pool = Pool::new(1, 2048, HugePages::Never).unwrap();
    let (a, _b) = mem::link(mem::LinkSpec {
        queues: 2,
        ..mem::LinkSpec::default()
    });
    let spec = PortSpec::new(PortId(0), "twice", DriverSpec::Mem(a));
    assert!(port::open(&spec, pool.region(), 1).is_err());
    assert_eq!(port::open(&spec, pool.region(), 3).unwrap().queues.len(), 2);
    let again = port::open(&spec, pool.region(), 3).unwrap_err();
    assert!(again.to_string().contains("open already"), "{again}");
}

#[test]
fn a_full_ring_leaves_the_rest_in_the_batch_in_order() {
    let mut pool = Pool::new(512, 2048, HugePages::Never).unwrap();
    let (mut a, mut b) = open_pair(&pool, &pool);
    let mut batch = Batch::new();
    let mut sent = 0;
    while sent < DEPTH {
        fill(&mut pool, &mut batch, 48, sent as u32);
        let took = a.tx(&mut pool, &mut batch);
        sent += took;
        if took < 48 {
            assert_eq!(batch.len(), 48 - took);
            assert_eq!(number(&batch[0]), sent as u32);
        }
    }
    assert_eq!(sent, DEPTH);
    pool.free_batch(&mut batch);
    let mut next = 0;
    while b.rx(&mut pool, &mut batch) > 0 {
        for frame in batch.drain() {
            assert_eq!(number(&frame), next);
            assert_eq!(frame.rx_port, PortId(1));
            next += 1;
            pool.free(frame);
        }
    }
    assert_eq!(next as usize, DEPTH);
    assert_eq!(a.stats().tx_pkts, b.stats().rx_pkts);
    assert_eq!(a.stats().tx_bytes, b.stats().rx_bytes);
    assert_eq!(pool.available(), 512);
}

#[test]
fn closing_in_either_order_gives_every_frame_back() {
    for a_first in [true, false] {
        let mut pool = Pool::new(256, 2048, HugePages::Never).unwrap();
        let (mut a, mut b) = open_pair(&pool, &pool);
        let mut batch = Batch::new();
        fill(&mut pool, &mut batch, 40, 0);
        a.tx(&mut pool, &mut batch);
        fill(&mut pool, &mut batch, 30, 0);
        b.tx(&mut pool, &mut batch);
        assert_eq!(pool.available(), 186);
        let (first, second) = if a_first {
            (&mut a, &mut b)
        } else {
            (&mut b, &mut a)
        };
        assert_eq!(first.close(&mut pool), 0);
        // The link is down: the sender loses frames, and they are counted, not kept.
        fill(&mut pool, &mut batch, 5, 0);
        assert_eq!(second.tx(&mut pool, &mut batch), 5);
        assert_eq!(second.stats().tx_error_pkts, 5);
        assert_eq!(second.close(&mut pool), 0);
        assert_eq!(second.rx(&mut pool, &mut batch), 0);
        assert_eq!(pool.available(), 256);
    }
}

#[test]
fn ends_in_two_regions_copy_and_frames_go_home() {
    let mut left = Pool::new(64, 2048, HugePages::Never).unwrap();
    let mut right = Pool::new(64, 4096, HugePages::Never).unwrap();
    let (mut a, mut b) = open_pair(&left, &right);
    let mut batch = Batch::new();
    let mut next = 0;
    for round in 0..100 {
        let n = fill(&mut left, &mut batch, 1 + round % 50, next);
        assert_eq!(a.tx(&mut left, &mut batch), n);
        assert_eq!(b.rx(&mut right, &mut batch), n);
        for frame in batch.drain() {
            assert!(right.owns(&frame));
            assert_eq!(number(&frame), next);
            assert_eq!(frame.len(), 60 + (next % 1400) as usize);
            next += 1;
            right.free(frame);
        }
    }
    // A frame longer than the other side's slots is counted there and goes home.
    let mut long = right.alloc().unwrap();
    assert!(long.set_range(0, 4096));
    batch.push(long).unwrap();
    assert_eq!(b.tx(&mut right, &mut batch), 1);
    assert_eq!(a.rx(&mut left, &mut batch), 0);
    assert_eq!(a.stats().rx_invalid_pkts, 1);
    // An empty pool loses the frame, counted, and the sender gets it back all the same.
    assert_eq!(b.rx(&mut right, &mut batch), 0, "brings the long one home");
    let mut held = Vec::new();
    while let Some(frame) = right.alloc() {
        held.push(frame);
    }
    fill(&mut left, &mut batch, 3, 0);
    assert_eq!(a.tx(&mut left, &mut batch), 3);
    assert_eq!(b.rx(&mut right, &mut batch), 0);
    assert_eq!(b.stats().rx_no_frame_pkts, 3);
    held.into_iter().for_each(|f| right.free(f));
    assert_eq!(b.close(&mut right), 0);
    assert_eq!(a.close(&mut left), 0);
    assert_eq!((left.available(), right.available()), (64, 64));
    assert_eq!((left.foreign(), right.foreign()), (0, 0));
}

/// Receives `total` frames, sleeping whenever none wait; echoes nothing.
fn sleeper(mut queue: Box<dyn Queue>, mut pool: Pool, total: u32) -> (Box<dyn Queue>, Pool) {
    let mut batch = Batch::new();
    let mut next = 0;
    let deadline = Instant::now() + Duration::from_secs(60);
    while next < total {
        assert!(Instant::now() < deadline);
        if queue.rx(&mut pool, &mut batch) == 0 {
            if let Arm::Armed(fd) = queue.arm() {
                let mut set = PollSet::with_capacity(1);
                set.add(fd);
                let woken = set.wait(Some(Duration::from_secs(10)));
                assert_eq!(woken, Woken::Readable(1), "slept through frame {next}");
            }
            queue.disarm();
        }
        for frame in batch.drain() {
            assert_eq!(number(&frame), next);
            next += 1;
            pool.free(frame);
        }
    }
    (queue, pool)
}

#[test]
fn a_node_without_frames_gets_them_back_by_receiving() {
    let mut ours = Pool::new(32, 2048, HugePages::Never).unwrap();
    let mut theirs = Pool::new(64, 2048, HugePages::Never).unwrap();
    let (mut a, mut b) = open_pair(&ours, &theirs);
    let mut batch = Batch::new();
    fill(&mut ours, &mut batch, 32, 0);
    assert_eq!(a.tx(&mut ours, &mut batch), 32);
    assert_eq!(ours.available(), 0);
    // The other end copies them; who has nothing to send never calls `tx`.
    assert_eq!(b.rx(&mut theirs, &mut batch), 32);
    theirs.free_batch(&mut batch);
    assert_eq!(a.rx(&mut ours, &mut batch), 0);
    assert_eq!(ours.available(), 32);
    assert_eq!(a.close(&mut ours) + b.close(&mut theirs), 0);
}

#[test]
fn two_threads_lose_no_frame_and_no_wake_up() {
    const TOTAL: u32 = 50_000;
    let mut left = Pool::new(256, 2048, HugePages::Never).unwrap();
    let right = Pool::new(256, 2048, HugePages::Never).unwrap();
    let (mut a, b) = open_pair(&left, &right);
    let receiver = std::thread::spawn(move || sleeper(b, right, TOTAL));
    let mut batch = Batch::new();
    let mut made = 0;
    let deadline = Instant::now() + Duration::from_secs(60);
    while made < TOTAL || !batch.is_empty() {
        assert!(Instant::now() < deadline);
        let want = (1 + made as usize % 17)
            .min((TOTAL - made) as usize)
            .min(batch.room());
        made += fill(&mut left, &mut batch, want, made) as u32;
        if a.tx(&mut left, &mut batch) == 0 {
            std::thread::yield_now();
        }
    }
    let (mut b, mut right) = receiver.join().unwrap();
    assert_eq!(b.close(&mut right), 0);
    assert_eq!(a.close(&mut left), 0);
    assert_eq!((left.available(), right.available()), (256, 256));
    assert_eq!(b.stats().rx_pkts, u64::from(TOTAL));
}
