//! A host of ours and a kernel, between them a link of the node that loses, doubles, reorders and delays: every byte
//! arrives, both ways.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

use lab::topology::{Line, LineOptions};

use crate::common::Bench;

const KERNEL: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 2);
const OURS: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 3);
const PATIENCE: Option<Duration> = Some(Duration::from_secs(60));

/// A kernel on the left, a host of ours on the right, an impaired link between.
fn bench(prefix: &str, keys: &str) -> (socket::Host, Bench) {
    let options = LineOptions {
        addresses: false,
        ..LineOptions::default()
    };
    let line = Line::new(prefix, options).expect("a line of namespaces");
    let side = &line.left;
    let mut links = side.namespace.links().expect("netlink");
    let address: IpAddr = KERNEL.into();
    links
        .add_address(&side.device, address, 24)
        .expect("an address");
    let config = format!(
        "[[port]]\nname = \"east\"\ninterface = \"{}\"\ndriver = \"af_packet\"\n\
         [[port]]\nname = \"west\"\ninterface = \"{}\"\ndriver = \"af_packet\"\n\
         [[link]]\nname = \"bad\"\nports = [\"east\", \"west\"]\nqueue_pkts = 2048\n{keys}\n",
        line.left.node_device, line.right.node_device
    );
    let host = line
        .right
        .namespace
        .run(|| {
            socket::Host::on_interface(&line.right.device)
                .address(&format!("{OURS}/24"))
                .start()
                .expect("a host")
        })
        .expect("the namespace");
    (host, Bench::start(line, &config))
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect()
}

fn check(got: &[u8], data: &[u8]) {
    assert_eq!(got.len(), data.len());
    let wrong = got.iter().zip(data).position(|(a, b)| a != b);
    assert_eq!(wrong, None, "first wrong byte");
}

/// Sends so many bytes each way.
fn transfer(host: &socket::Host, bench: &Bench, bytes: usize) {
    let data = pattern(bytes);
    let left = &bench.line.left.namespace;
    // The kernel sends.
    let listener = socket::TcpListener::bind(host, (OURS, 7)).expect("a listener");
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let (mut stream, _) = listener.accept().expect("a connection");
            stream.set_read_timeout(PATIENCE).expect("a timeout");
            let mut got = Vec::new();
            stream.read_to_end(&mut got).expect("all data");
            got
        });
        let mut stream = left
            .run(|| TcpStream::connect((OURS, 7)).expect("a connection"))
            .expect("the namespace");
        stream.set_write_timeout(PATIENCE).expect("a timeout");
        stream.write_all(&data).expect("sent");
        drop(stream);
        check(&receiver.join().expect("the receiver"), &data);
    });
    // We send.
    let listener = left
        .run(|| TcpListener::bind((KERNEL, 8)).expect("a listener"))
        .expect("the namespace");
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let (mut stream, _) = listener.accept().expect("a connection");
            stream.set_read_timeout(PATIENCE).expect("a timeout");
            let mut got = Vec::new();
            stream.read_to_end(&mut got).expect("all data");
            got
        });
        let mut stream = socket::TcpStream::connect(host, (KERNEL, 8)).expect("a connection");
        stream.set_write_timeout(PATIENCE).expect("a timeout");
        stream.write_all(&data).expect("sent");
        drop(stream);
        check(&receiver.join().expect("the receiver"), &data);
    });
}

#[test]
fn bytes_survive_loss() {
    if !lab::need::root("bytes_survive_loss") {
        return;
    }
    for (prefix, ppm) in [
        ("tg-sl0", 0),
        ("tg-sl1", 1000),
        ("tg-sl2", 10_000),
        ("tg-sl3", 30_000),
    ] {
        let keys = format!("drop_ppm = {ppm}\ndelay_us = 500\nseed = {}", ppm + 1);
        let (host, bench) = bench(prefix, &keys);
        transfer(&host, &bench, 1_500_000);
        assert!(ppm < 10_000 || bench.drops("fault_injected") > 0);
        drop(host);
        bench.finish();
    }
}

#[test]
fn bytes_survive_all_faults_at_once() {
    if !lab::need::root("bytes_survive_all_faults_at_once") {
        return;
    }
    let keys = "drop_ppm = 5000\nduplicate_ppm = 10000\nreorder_ppm = 20000\nreorder_us = 2000\n\
                corrupt_ppm = 1000\ndelay_us = 1000\njitter_us = 300\nseed = 7";
    let (host, bench) = bench("tg-sla", keys);
    transfer(&host, &bench, 1_500_000);
    std::thread::sleep(Duration::from_millis(20));
    let stats = bench.node.stats();
    let ways = &stats.links[0].directions;
    assert!(ways.iter().any(|way| way.duplicated_pkts > 0), "{ways:?}");
    assert!(ways.iter().any(|way| way.reordered_pkts > 0), "{ways:?}");
    drop(host);
    bench.finish();
}
