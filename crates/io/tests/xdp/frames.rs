//! Frames are conserved, whatever happens to ports and pools.

use std::time::{Duration, Instant};

use io::af_xdp::AfXdpSpec;
use io::{Arm, Batch, Pool, Queue};
use lab::Line;
use std::os::fd::AsRawFd;

use crate::support::{close_all, open, pools, ready, until, wait, wire};

/// Two AF_XDP ports at the ends of one veth pair: one in the left side's namespace, one in the node's.
struct Pair {
    line: Line,
    near: Box<dyn Queue>,
    near_pool: Pool,
    far: Box<dyn Queue>,
    far_pool: Pool,
}

impl Pair {
    fn new(prefix: &str, near_frames: u32, far_frames: u32) -> Self {
        let line = wire(prefix, 1);
        let near_pool = pools(near_frames, 1).remove(0);
        let far_pool = pools(far_frames, 1).remove(0);
        let port = |namespace, device: &str, pool: &Pool| {
            let mut port = open(namespace, AfXdpSpec::new(device), pool.region(), 1).unwrap();
            port.queues.remove(0)
        };
        let near = port(&line.left.namespace, &line.left.device, &near_pool);
        let far = port(&line.node, &line.left.node_device, &far_pool);
        let mut pair = Self {
            line,
            near,
            near_pool,
            far,
            far_pool,
        };
        // The first receive call posts frames; before it the kernel has none to receive into.
        let mut batch = Batch::new();
        pair.near.rx(&mut pair.near_pool, &mut batch);
        pair.near_pool.free_batch(&mut batch);
        pair.far.rx(&mut pair.far_pool, &mut batch);
        pair.far_pool.free_batch(&mut batch);
        pair
    }

    /// Closes both ports and checks that every frame is back.
    fn close(mut self) {
        close_all(core::slice::from_mut(&mut self.near), &mut self.near_pool);
        close_all(core::slice::from_mut(&mut self.far), &mut self.far_pool);
        for pool in [&self.near_pool, &self.far_pool] {
            assert_eq!(pool.available(), pool.capacity(), "frames are missing");
        }
    }
}

/// Makes a frame of a private EtherType with a number in it.
fn numbered(pool: &mut Pool, number: u32, length: usize) -> Option<io::Frame> {
    let mut frame = pool.alloc()?;
    let mut bytes = vec![0x5a; length];
    bytes[..6].copy_from_slice(&[2, 0, 0, 0, 1, 1]);
    bytes[6..12].copy_from_slice(&[2, 0, 0, 0, 1, 2]);
    bytes[12..14].copy_from_slice(&[0x88, 0xb5]);
    bytes[14..18].copy_from_slice(&number.to_be_bytes());
    assert!(frame.fill(&bytes));
    Some(frame)
}

fn number_of(data: &[u8]) -> Option<u32> {
    let bytes = data.get(12..18)?;
    (bytes[..2] == [0x88, 0xb5])
        .then(|| u32::from_be_bytes([bytes[2], bytes[3], bytes[4], bytes[5]]))
}

#[test]
fn frames_arrive_whole_and_in_order() {
    if !ready("frames_arrive_whole_and_in_order") {
        return;
    }
    let mut pair = Pair::new("xo", 4096, 4096);
    let (mut sent, mut received) = (0u32, 0u32);
    let mut batch = Batch::new();
    const COUNT: u32 = 50_000;
    until("all frames", Duration::from_secs(20), || {
        // Closed loop: no more on the way than the rings hold.
        while sent < COUNT && sent - received < 1500 && !batch.is_full() {
            let length = 18 + (sent as usize * 7) % 1490;
            let Some(frame) = numbered(&mut pair.near_pool, sent, length) else {
                break;
            };
            batch.push(frame).unwrap();
            sent += 1;
        }
        pair.near.tx(&mut pair.near_pool, &mut batch);
        let mut arrived = Batch::new();
        pair.near.rx(&mut pair.near_pool, &mut arrived);
        pair.near_pool.free_batch(&mut arrived);
        pair.far.rx(&mut pair.far_pool, &mut arrived);
        for frame in arrived.drain() {
            if let Some(number) = number_of(frame.data()) {
                assert_eq!(number, received, "order");
                assert_eq!(frame.len(), 18 + (number as usize * 7) % 1490);
                assert!(frame.data()[18..].iter().all(|&byte| byte == 0x5a));
                assert_eq!(frame.rx_port, io::PortId(7));
                received += 1;
            }
            pair.far_pool.free(frame);
        }
        received == COUNT && batch.is_empty()
    });
    let stats = pair.far.stats();
    assert!(stats.rx_pkts >= u64::from(COUNT), "{stats:?}");
    assert_eq!((stats.rx_no_frame_pkts, stats.rx_ring_full_pkts), (0, 0));
    assert_eq!(pair.near.stats().tx_pkts, u64::from(COUNT));
    pair.close();
}

/// Receives until a frame of ours is there, sleeping when there is none; fails if a wake-up is lost.
fn await_ours(queue: &mut dyn Queue, pool: &mut Pool, batch: &mut Batch) {
    loop {
        let mut arrived = Batch::new();
        if queue.rx(pool, &mut arrived) == 0 {
            if let Arm::Armed(fd) = queue.arm() {
                let fd = fd.as_raw_fd();
                assert!(wait(&[fd], Duration::from_secs(2)), "a wake-up was lost");
                queue.disarm();
            }
            continue;
        }
        for frame in arrived.drain() {
            // What a kernel sends when a link comes up is not ours.
            if number_of(frame.data()).is_some() {
                batch.push(frame).unwrap();
            } else {
                pool.free(frame);
            }
        }
        if !batch.is_empty() {
            return;
        }
    }
}

#[test]
fn one_packet_in_flight_never_stalls() {
    if !ready("one_packet_in_flight_never_stalls") {
        return;
    }
    let mut pair = Pair::new("xp", 256, 256);
    let seconds = std::env::var("TIDEGATE_SOAK_S")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(2);
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut batch = Batch::new();
    let frame = numbered(&mut pair.near_pool, 0, 60).unwrap();
    batch.push(frame).unwrap();
    let mut trips = 0u64;
    while Instant::now() < end {
        assert_eq!(pair.near.tx(&mut pair.near_pool, &mut batch), 1);
        await_ours(&mut *pair.far, &mut pair.far_pool, &mut batch);
        assert_eq!(pair.far.tx(&mut pair.far_pool, &mut batch), 1);
        await_ours(&mut *pair.near, &mut pair.near_pool, &mut batch);
        trips += 1;
    }
    println!("{trips} round trips in {seconds} s");
    assert!(trips > 1000, "{trips} round trips");
    pair.near_pool.free_batch(&mut batch);
    pair.close();
}

#[test]
fn an_exhausted_pool_counts_and_recovers() {
    if !ready("an_exhausted_pool_counts_and_recovers") {
        return;
    }
    let mut pair = Pair::new("xe", 1024, 64);
    let mut held = Vec::new();
    let mut batch = Batch::new();
    let mut number = 0;
    let mut burst = |pair: &mut Pair, count: u32| {
        let mut batch = Batch::new();
        for _ in 0..count {
            let frame = numbered(&mut pair.near_pool, number, 64).unwrap();
            number += 1;
            batch.push(frame).unwrap();
        }
        while !batch.is_empty() {
            pair.near.tx(&mut pair.near_pool, &mut batch);
        }
        let mut none = Batch::new();
        pair.near.rx(&mut pair.near_pool, &mut none);
        pair.near_pool.free_batch(&mut none);
    };
    // Receive and keep everything, until the pool and the fill ring are empty.
    until("the pool is empty", Duration::from_secs(5), || {
        burst(&mut pair, 16);
        pair.far.rx(&mut pair.far_pool, &mut batch);
        held.extend(batch.drain());
        held.len() == 64
    });
    assert_eq!(pair.far_pool.available(), 0);
    assert!(
        matches!(pair.far.arm(), Arm::Unsupported),
        "nothing can wake it"
    );
    burst(&mut pair, 32);
    assert_eq!(pair.far.rx(&mut pair.far_pool, &mut batch), 0);
    let starved = pair.far.stats();
    assert!(starved.rx_no_frame_pkts >= 32, "{starved:?}");
    // The buffers return: the next frames must come in.
    for frame in held.drain(..) {
        pair.far_pool.free(frame);
    }
    let start = Instant::now();
    pair.far.rx(&mut pair.far_pool, &mut batch);
    burst(&mut pair, 16);
    until("recovery", Duration::from_secs(2), || {
        pair.far.rx(&mut pair.far_pool, &mut batch);
        batch.len() >= 16
    });
    println!("recovered in {:?}", start.elapsed());
    pair.far_pool.free_batch(&mut batch);
    pair.close();
}

#[test]
fn a_flood_into_a_slow_receiver_loses_no_frame_of_ours() {
    let name = "a_flood_into_a_slow_receiver_loses_no_frame_of_ours";
    if !ready(name) {
        return;
    }
    let mut pair = Pair::new("xf", 4096, 512);
    // The receiver's NAPI is a thread that shares its core with the sender: its queue overflows.
    if let Err(error) = pair
        .line
        .node
        .receive_on_cpu(&pair.line.left.node_device, 0)
    {
        println!("without threaded NAPI: {error}");
    }
    let mut batch = Batch::new();
    let mut number = 0;
    let end = Instant::now() + Duration::from_secs(1);
    while Instant::now() < end {
        while !batch.is_full()
            && let Some(frame) = numbered(&mut pair.near_pool, number, 60)
        {
            number += 1;
            batch.push(frame).unwrap();
        }
        pair.near.tx(&mut pair.near_pool, &mut batch);
        let mut back = Batch::new();
        pair.near.rx(&mut pair.near_pool, &mut back);
        pair.near_pool.free_batch(&mut back);
    }
    pair.near_pool.free_batch(&mut batch);
    // All that was taken leaves the ring, without more frames to push it.
    let posted = 2048;
    until("the ring drains", Duration::from_secs(2), || {
        let mut back = Batch::new();
        pair.near.rx(&mut pair.near_pool, &mut back);
        pair.near_pool.free_batch(&mut back);
        pair.near_pool.available() + posted >= pair.near_pool.capacity()
    });
    let stats = pair.near.stats();
    println!("{stats:?}; receiver {:?}", pair.far.stats());
    assert!(stats.tx_pkts > 10_000);
    pair.close();
}

#[test]
fn a_link_that_goes_down_and_up_resumes() {
    if !ready("a_link_that_goes_down_and_up_resumes") {
        return;
    }
    let mut pair = Pair::new("xd", 1024, 1024);
    let device = pair.line.left.device.clone();
    let set_up = |pair: &Pair, up: bool| {
        let state = if up { "up" } else { "down" };
        let status = pair
            .line
            .left
            .namespace
            .command("ip")
            .args(["link", "set", &device, state])
            .status()
            .expect("ip starts");
        assert!(status.success());
    };
    set_up(&pair, false);
    let mut batch = Batch::new();
    for number in 0..8 {
        let frame = numbered(&mut pair.near_pool, number, 60).unwrap();
        batch.push(frame).unwrap();
    }
    pair.near.tx(&mut pair.near_pool, &mut batch);
    assert!(
        !matches!(pair.near.arm(), Arm::Ready),
        "a link that is down must not keep the worker awake"
    );
    set_up(&pair, true);
    let mut arrived = Batch::new();
    let mut number = 100;
    until("frames arrive again", Duration::from_secs(5), || {
        if batch.is_empty() {
            let frame = numbered(&mut pair.near_pool, number, 60).unwrap();
            batch.push(frame).unwrap();
            number += 1;
        }
        pair.near.tx(&mut pair.near_pool, &mut batch);
        let mut back = Batch::new();
        pair.near.rx(&mut pair.near_pool, &mut back);
        pair.near_pool.free_batch(&mut back);
        pair.far.rx(&mut pair.far_pool, &mut arrived);
        let fresh = arrived
            .iter()
            .any(|frame| number_of(frame.data()).is_some_and(|number| number >= 100));
        pair.far_pool.free_batch(&mut arrived);
        std::thread::sleep(Duration::from_millis(2));
        fresh
    });
    pair.near_pool.free_batch(&mut batch);
    pair.close();
}

#[test]
fn frames_that_cannot_be_sent_are_counted_and_come_back() {
    if !ready("frames_that_cannot_be_sent_are_counted_and_come_back") {
        return;
    }
    let mut pair = Pair::new("xi", 256, 256);
    let mut other = pools(4, 1).remove(0);
    let mut batch = Batch::new();
    for length in [0, 13, 1790] {
        let mut frame = pair.near_pool.alloc().unwrap();
        assert!(frame.set_len(length));
        batch.push(frame).unwrap();
    }
    batch.push(other.alloc().unwrap()).unwrap();
    assert_eq!(pair.near.tx(&mut pair.near_pool, &mut batch), 4);
    assert_eq!(pair.near.stats().tx_error_pkts, 4);
    assert_eq!(pair.near_pool.foreign(), 1, "a frame of another region");
    pair.close();
}
