//! Programs of the kernel's own stack talk through the node.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use io::af_xdp::{AfXdpSpec, PartialChecksums, Place};
use lab::{Line, Offload};

use crate::support::{Forwarder, RIGHT, pools, ready, wire};

/// The byte at a place of the test stream: every 8-byte word is different.
fn pattern(at: u64) -> u8 {
    let word = (at / 8).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word.to_le_bytes()[(at % 8) as usize]
}

/// Sends `bytes` from the left side to the right one over TCP and compares every byte.
fn transfer(line: &Line, port: u16, bytes: u64) -> std::io::Result<Duration> {
    let address = SocketAddr::new(RIGHT, port);
    let listener = line
        .right
        .namespace
        .run(|| TcpListener::bind(address))
        .unwrap()?;
    let start = Instant::now();
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| send(line, address, bytes));
        let received = scope.spawn(|| receive(&listener, bytes));
        sender.join().unwrap()?;
        received.join().unwrap()
    })?;
    Ok(start.elapsed())
}

fn send(line: &Line, address: SocketAddr, bytes: u64) -> std::io::Result<()> {
    let connect = || TcpStream::connect_timeout(&address, Duration::from_secs(2));
    let mut stream = line.left.namespace.run(connect).unwrap()?;
    stream.set_write_timeout(Some(Duration::from_secs(5)))?;
    let mut block = vec![0; 64 << 10];
    let mut sent = 0;
    while sent < bytes {
        for (i, byte) in block.iter_mut().enumerate() {
            *byte = pattern(sent + i as u64);
        }
        let length = (bytes - sent).min(block.len() as u64) as usize;
        stream.write_all(&block[..length])?;
        sent += length as u64;
    }
    Ok(())
}

fn receive(listener: &TcpListener, bytes: u64) -> std::io::Result<()> {
    listener.set_nonblocking(true)?;
    let start = Instant::now();
    let mut stream = loop {
        match listener.accept() {
            Ok((stream, _)) => break stream,
            Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => return Err(error),
            Err(_) if start.elapsed() > Duration::from_secs(3) => {
                return Err(std::io::ErrorKind::TimedOut.into());
            }
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut block = vec![0; 64 << 10];
    let mut received = 0;
    loop {
        let length = stream.read(&mut block)?;
        if length == 0 {
            break;
        }
        for (i, &byte) in block[..length].iter().enumerate() {
            let at = received + i as u64;
            assert_eq!(byte, pattern(at), "byte {at} of the stream");
        }
        received += length as u64;
    }
    assert_eq!(received, bytes, "the stream is cut");
    Ok(())
}

fn ping(line: &Line, count: u32) -> bool {
    let status = line
        .left
        .namespace
        .command("ping")
        .args(["-q", "-i", "0.01", "-W", "1", "-c"])
        .arg(count.to_string())
        .arg(RIGHT.to_string())
        .stdout(std::process::Stdio::null())
        .status();
    status.expect("ping starts").success()
}

fn check_both(name: &str, place: Place) {
    if !ready(name) || !lab::need::program(name, "ping") {
        return;
    }
    let line = wire("xk", 1);
    let spec = AfXdpSpec {
        place,
        ..AfXdpSpec::new("")
    };
    let forwarder = Forwarder::between(&line, &spec, pools(8192, 1));
    assert!(ping(&line, 50), "echoes are lost");
    let took = transfer(&line, 5001, 32 << 20).unwrap();
    let reports = forwarder.stop();
    println!("{name}: 32 MiB in {took:?}; {reports:?}");
    assert!(reports[0].left.rx_pkts > 22_000 && reports[0].right.tx_pkts > 22_000);
    assert!(reports[0].sleeps > 0, "it never slept");
}

#[test]
fn ping_and_tcp_through_native_ports() {
    check_both("ping_and_tcp_through_native_ports", Place::Native);
}

#[test]
fn ping_and_tcp_through_generic_ports() {
    check_both("ping_and_tcp_through_generic_ports", Place::Generic);
}

#[test]
fn each_worker_has_a_queue_of_each_port() {
    let name = "each_worker_has_a_queue_of_each_port";
    if !ready(name) {
        return;
    }
    let line = wire("xq", 2);
    let forwarder = Forwarder::between(&line, &AfXdpSpec::new(""), pools(4096, 2));
    std::thread::scope(|scope| {
        for port in 5001..5013 {
            let line = &line;
            scope.spawn(move || transfer(line, port, 1 << 20).unwrap());
        }
    });
    let reports = forwarder.stop();
    assert_eq!(reports.len(), 2);
    for report in &reports {
        assert!(
            report.left.rx_pkts > 0 && report.right.rx_pkts > 0,
            "{reports:?}"
        );
    }
}

/// The senders' kernels leave checksums to their devices, as they do by default on veth; and, in native
/// mode, where attaching to the other end takes them away, segmentation too.
fn with_unfinished_checksums(prefix: &str, place: Place, partial: PartialChecksums) -> bool {
    let line = wire(prefix, 1);
    for side in [&line.left, &line.right] {
        let segmentation = [
            Offload::ScatterGather,
            Offload::GenericSegmentation,
            Offload::TcpSegmentation,
        ];
        let segmentation = segmentation.iter().filter(|_| place == Place::Native);
        for &offload in [Offload::TxChecksum].iter().chain(segmentation) {
            side.namespace
                .set_offload(&side.device, offload, true)
                .unwrap();
        }
    }
    let spec = AfXdpSpec {
        place,
        partial_checksums: partial,
        ..AfXdpSpec::new("")
    };
    let forwarder = Forwarder::between(&line, &spec, pools(4096, 1));
    let transferred = transfer(&line, 5001, 4 << 20);
    forwarder.stop();
    transferred.is_ok()
}

#[test]
fn unfinished_checksums_are_finished() {
    let name = "unfinished_checksums_are_finished";
    if !ready(name) {
        return;
    }
    for place in [Place::Native, Place::Generic] {
        assert!(
            with_unfinished_checksums("xc", place, PartialChecksums::Auto),
            "{place:?}"
        );
    }
    assert!(
        !with_unfinished_checksums("xt", Place::Native, PartialChecksums::Trust),
        "without finishing them TCP cannot work, or this test shows nothing"
    );
}
