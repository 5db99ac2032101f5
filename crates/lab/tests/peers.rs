//! Every peer really passes packets between the two sides of a line.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use lab::peer::{self, libpcap};
use lab::{Line, LineOptions, Side, need};

/// Sends datagrams from left to right until one arrives.
fn passes(left: &Side, right: &Side) -> bool {
    let receiver = right
        .namespace
        .run(|| UdpSocket::bind((right.address(), 7)).unwrap())
        .unwrap();
    receiver
        .set_read_timeout(Some(Duration::from_millis(50)))
        .unwrap();
    let sender = left
        .namespace
        .run(|| UdpSocket::bind((left.address(), 0)).unwrap())
        .unwrap();
    let end = Instant::now() + Duration::from_secs(5);
    while Instant::now() < end {
        sender.send_to(b"through", (right.address(), 7)).unwrap();
        if receiver.recv_from(&mut [0; 16]).is_ok() {
            return true;
        }
    }
    false
}

/// Makes both sides believe that they share a link, as a bridge or a libpcap forwarder needs it.
fn join(line: &Line) {
    for (side, other) in [(&line.left, &line.right), (&line.right, &line.left)] {
        let mut links = side.namespace.links().unwrap();
        links.add_address(&side.device, side.address(), 8).unwrap();
        links
            .add_neighbour(&side.device, other.address(), other.mac)
            .unwrap();
    }
}

#[test]
fn the_kernel_routes() {
    if !need::root("the_kernel_routes") {
        return;
    }
    let line = Line::new("tgpr", LineOptions::default()).unwrap();
    peer::route_by_kernel(&line).unwrap();
    assert!(passes(&line.left, &line.right));
}

#[test]
fn the_kernel_bridges() {
    if !need::root("the_kernel_bridges") {
        return;
    }
    let options = LineOptions {
        addresses: false,
        ..LineOptions::default()
    };
    let line = Line::new("tgpb", options).unwrap();
    peer::bridge_by_kernel(&line).unwrap();
    join(&line);
    assert!(passes(&line.left, &line.right));
}

#[test]
fn libpcap_forwards_and_stops() {
    let test = "libpcap_forwards_and_stops";
    if !need::root(test) {
        return;
    }
    let options = LineOptions {
        addresses: false,
        ..LineOptions::default()
    };
    let line = Line::new("tgpl", options).unwrap();
    let devices = [&*line.left.node_device, &*line.right.node_device];
    let forwarder = match libpcap::Forwarder::start(&line.node, devices, None) {
        Err(libpcap::LibpcapError::NoLibrary) => {
            need::need(test, "libpcap0.8", false);
            return;
        }
        other => other.unwrap(),
    };
    join(&line);
    assert!(passes(&line.left, &line.right));
    assert_eq!(forwarder.lost_pkts(), 0);
    drop(forwarder);
    let missing = libpcap::Forwarder::start(&line.node, ["nosuch", "lo"], None).unwrap_err();
    assert!(missing.to_string().contains("nosuch"), "{missing}");
}

#[test]
fn testpmd_forwards_between_null_devices() {
    let test = "testpmd_forwards_between_null_devices";
    if !need::root(test) || !need::program(test, peer::testpmd::PROGRAM) {
        return;
    }
    let options = peer::testpmd::TestpmdOptions {
        vdevs: vec!["net_null0".into(), "net_null1".into()],
        forward_cpu: 1,
        main_cpu: 0,
        mbufs: 4096,
        ..peer::testpmd::TestpmdOptions::default()
    };
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        need::need(test, "two CPUs", false);
        return;
    }
    let mut testpmd = peer::testpmd::Testpmd::start(None, &options).unwrap();
    testpmd.wait_until_forwarding().unwrap();
    let rates = testpmd.rates_pps(1).unwrap();
    assert!(rates[0] > 1e5, "{rates:?}");
}
