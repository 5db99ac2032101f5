//! A worker between two hosts over rings in memory, stepped by hand and by a thread.

mod common;

use std::time::Duration;

use common::{Wire, eventually, wire};
use graph::capture::{Filter, Point};
use graph::{Next, TxFull, Worker, runner};
use io::PortId;
use wire::{DropReason, Instant};

const FRAME: [u8; 60] = [0x02; 60];
const UNWANTED: [u8; 60] = [0xdd; 60];

/// Steps until the worker stops; returns the virtual time at the end.
fn step_to_end(worker: &mut Worker, mut now_ns: u64) {
    for _ in 0..100_000 {
        now_ns += 1_000;
        if worker.step(Instant::from_ns(now_ns)) == Next::Stopped {
            return;
        }
    }
    panic!("the worker did not stop");
}

#[test]
fn frames_cross_and_drops_are_counted_by_node_and_reason() {
    let (mut worker, mut handle, mut left, mut right) = wire(&Wire::default());
    assert_eq!(left.send(&FRAME, 100), 100);
    assert_eq!(left.send(&UNWANTED, 7), 7);
    for us in 1..10 {
        worker.step(Instant::from_ns(us * 1000));
    }
    assert_eq!(right.receive(), 100);
    let counters = handle.counters();
    assert_eq!(counters.nodes[0].name, "patch");
    assert_eq!(counters.nodes[0].drops(DropReason::NotForUs), 7);
    assert_eq!(counters.nodes[0].edges[0].pkts.get(), 100);
    assert_eq!(counters.rx_pkts.get(), 107);
    assert_eq!(counters.tx_pkts.get(), 100);
    assert_eq!(counters.dropped_pkts(), 7);
    handle.drain().unwrap();
    step_to_end(&mut worker, 10_000);
    let report = worker.report().unwrap();
    assert_eq!((report.home, report.frames), (512, 512));
    assert_eq!(handle.counters().frames_lost.get(), 0);
}

#[test]
fn a_full_queue_holds_packets_in_order_or_drops_them() {
    for (tx_full, held) in [(TxFull::Hold { pkts: 64 }, 64), (TxFull::Drop, 0)] {
        let (mut worker, mut handle, mut left, mut right) = wire(&Wire {
            tx_full,
            depth: 128,
            ..Wire::default()
        });
        let mut sent = 0;
        for step in 1..10 {
            sent += left.send(&FRAME, 64);
            worker.step(Instant::from_ns(step * 1000));
        }
        let counters = handle.counters().clone();
        let dropped = counters.nodes[1].drops(DropReason::TxRingFull);
        assert_eq!(dropped as usize, sent - 128 - held, "{tx_full:?}");
        assert_eq!(counters.ports[1].tx_full_pkts.get(), dropped);
        assert_eq!(right.receive(), 128);
        worker.step(Instant::from_ns(20_000));
        assert_eq!(right.receive(), held, "{tx_full:?}");
        handle.drain().unwrap();
        step_to_end(&mut worker, 30_000);
        assert_eq!(counters.frames_lost.get(), 0);
    }
}

#[test]
fn a_capture_sees_each_point_with_its_reason_and_costs_nothing_when_off() {
    let (mut worker, mut handle, mut left, _right) = wire(&Wire::default());
    handle
        .capture(Some(Filter {
            snap_bytes: 16,
            ..Filter::everything()
        }))
        .unwrap();
    left.send(&FRAME, 1);
    left.send(&UNWANTED, 1);
    worker.step(Instant::from_ns(1000));
    let mut points = Vec::new();
    handle.captured().drain(|record| {
        assert_eq!((record.frame_bytes, record.data.len()), (60, 16));
        points.push((record.point, record.data[0]));
    });
    assert_eq!(
        points,
        [
            (Point::Rx(PortId(0)), 0x02),
            (Point::Rx(PortId(0)), 0xdd),
            (Point::Stage(0), 0x02),
            (Point::Stage(0), 0xdd),
            (Point::Drop(0, DropReason::NotForUs), 0xdd),
            (Point::Tx(PortId(1)), 0x02),
        ]
    );
    handle.capture(None).unwrap();
    left.send(&FRAME, 1);
    worker.step(Instant::from_ns(2000));
    assert_eq!(handle.captured().drain(|_| ()), 0);
    handle.drain().unwrap();
    step_to_end(&mut worker, 3000);
}

#[test]
fn copies_without_room_are_counted() {
    let (mut worker, mut handle, mut left, mut right) = wire(&Wire::default());
    handle
        .capture(Some(Filter {
            rx: true,
            ..Filter::default()
        }))
        .unwrap();
    for step in 1..=20 {
        left.send(&FRAME, 64);
        worker.step(Instant::from_ns(step * 1000));
        right.receive();
    }
    assert_eq!(handle.captured().drain(|_| ()), 1024);
    assert_eq!(handle.captured().lost(), 20 * 64 - 1024);
    handle.drain().unwrap();
    step_to_end(&mut worker, 30_000);
}

#[test]
fn a_thread_forwards_sleeps_wakes_and_drains() {
    let (worker, mut handle, mut left, mut right) = wire(&Wire::default());
    let counters = handle.counters().clone();
    let thread = runner::spawn(worker, None).unwrap();
    eventually("sleep", || counters.state.get() == 2);
    let polls = counters.polls.get();
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(counters.polls.get(), polls, "an idle worker passes never");
    for _ in 0..20 {
        assert_eq!(left.send(&FRAME, 10), 10);
        let mut received = 0;
        eventually("delivery", || {
            received += right.receive();
            received == 10
        });
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(counters.wakeups_packet.get() >= 10);
    let number = handle.drain().unwrap();
    let report = thread.join().unwrap();
    assert!(handle.is_done(number));
    assert_eq!(report.home, report.frames);
    assert_eq!(report.dropped_pkts, 0);
}
