//! The `tap` driver between the kernel's stack and a peer, in namespaces of their own.
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lab::netns::Namespace;

use crate::common::{Forwarder, exec, namespace, needs, transfer, wait};
use io::port::{self, DriverSpec, OpenPort, PortSpec};
use io::tap::TapSpec;
use io::{Arm, Batch, HugePages, Interface, Pool, PortId, Region};

fn open(region: &Arc<Region>, id: u16, settings: TapSpec, workers: u16) -> OpenPort {
    let spec = PortSpec::new(PortId(id), "port", DriverSpec::Tap(settings));
    port::open(&spec, region, workers).unwrap()
}

/// Two TAP interfaces joined by a forwarder, each in a namespace with an address.
fn joined() -> (Arc<Namespace>, Arc<Namespace>, Forwarder) {
    let (client, server) = (namespace("client"), namespace("server"));
    let pool = Pool::new(1024, 2048, HugePages::Auto).unwrap();
    let region = pool.region();
    let queue = |end: &Namespace| {
        let port = end.run(|| open(region, 0, TapSpec::new("tap%d"), 1));
        port.unwrap().queues.remove(0)
    };
    let (a, b) = (queue(&client), queue(&server));
    let forwarder = Forwarder::start(pool, a, b);
    for (end, number) in [(&client, 1), (&server, 2)] {
        exec(end, &format!("ip addr add 192.0.2.{number}/24 dev tap0"));
        let six = format!("ip addr add 2001:db8::{number}/64 dev tap0 nodad");
        exec(end, &six);
    }
    (client, server, forwarder)
}

#[test]
fn ping_and_tcp_of_both_families_pass() {
    if !needs("ping_and_tcp_of_both_families_pass", &["ping"]) {
        return;
    }
    let (client, server, forwarder) = joined();
    exec(&client, "ping -c 3 -i 0.05 -W 2 192.0.2.2");
    exec(&client, "ping -c 2 -i 0.05 -W 2 -s 4000 192.0.2.2");
    transfer(&client, &server, "192.0.2.2:5001", 16 << 20);
    transfer(&server, &client, "[2001:db8::1]:5001", 16 << 20);
    let [left, right] = forwarder.stop();
    assert_eq!((left.rx_invalid_pkts, right.rx_invalid_pkts), (0, 0));
    assert_eq!((left.tx_error_pkts, right.tx_error_pkts), (0, 0));
    assert_eq!(left.rx_pkts, right.tx_pkts);
    assert!(
        left.syscalls < left.rx_pkts + left.tx_pkts,
        "super-frames save system calls: {left:?}"
    );
}

#[test]
fn settings_are_applied_and_closing_removes_the_interface() {
    if !needs(
        "settings_are_applied_and_closing_removes_the_interface",
        &[],
    ) {
        return;
    }
    let namespace = namespace("settings");
    let body = || {
        let mut pool = Pool::new(64, 4096, HugePages::Never).unwrap();
        let settings = TapSpec {
            interface: "tgtap".into(),
            mtu: Some(3000),
            mac: Some([2, 0, 0, 0, 0, 8]),
        };
        let mut port = open(pool.region(), 7, settings.clone(), 3);
        assert_eq!(port.queues.len(), 3);
        assert_eq!((port.mtu, port.mac), (3000, [2, 0, 0, 0, 0, 9]));
        let kernel = Interface::get("tgtap").unwrap();
        assert_eq!((kernel.mtu, kernel.mac), (3000, [2, 0, 0, 0, 0, 8]));
        assert_eq!(port.queues[0].capabilities().max_frame_bytes, 3022);
        for queue in &mut port.queues {
            assert_eq!(queue.close(&mut pool), 0);
            assert_eq!(queue.rx(&mut pool, &mut Batch::new()), 0);
        }
        assert_eq!(pool.available(), 64);
        // A process that another test starts has the descriptor between its fork and its exec.
        let deadline = Instant::now() + Duration::from_secs(2);
        while Interface::get("tgtap").is_ok() {
            assert!(Instant::now() < deadline, "the interface stays");
            std::thread::sleep(Duration::from_millis(1));
        }
        // Frames of 2,048 bytes cannot hold such packets.
        let small = Pool::new(1, 2048, HugePages::Never).unwrap();
        let spec = PortSpec::new(PortId(0), "small", DriverSpec::Tap(settings));
        let refused = port::open(&spec, small.region(), 1).unwrap_err();
        assert!(refused.to_string().contains("4096"), "{refused}");
    };
    namespace.run(body).unwrap();
}

#[test]
fn an_empty_pool_drops_and_counts_and_comes_back() {
    if !needs("an_empty_pool_drops_and_counts_and_comes_back", &[]) {
        return;
    }
    let namespace = namespace("empty");
    // The kernel sends nothing of its own accord.
    namespace.disable_ipv6().unwrap();
    let body = || {
        let mut pool = Pool::new(8, 2048, HugePages::Never).unwrap();
        let mut port = open(pool.region(), 0, TapSpec::new("tap0"), 1);
        exec(&namespace, "ip addr add 192.0.2.1/24 dev tap0");
        exec(
            &namespace,
            "ip neigh add 192.0.2.9 lladdr 02:00:00:00:00:09 dev tap0",
        );
        let socket = std::net::UdpSocket::bind("192.0.2.1:0").unwrap();
        let queue = &mut *port.queues[0];
        let mut held = Vec::new();
        while let Some(frame) = pool.alloc() {
            held.push(frame);
        }
        let mut batch = Batch::new();
        for _ in 0..20 {
            socket.send_to(b"lost", "192.0.2.9:9").unwrap();
        }
        assert_eq!(queue.rx(&mut pool, &mut batch), 0);
        assert!(queue.stats().rx_no_frame_pkts >= 20, "{:?}", queue.stats());
        held.into_iter().for_each(|frame| pool.free(frame));
        socket.send_to(b"found", "192.0.2.9:9").unwrap();
        wait(queue);
        assert_eq!(queue.rx(&mut pool, &mut batch), 1);
        assert!(batch[0].data().ends_with(b"found"));
        pool.free_batch(&mut batch);
        assert!(matches!(queue.arm(), Arm::Armed(_)));
        queue.close(&mut pool);
        assert_eq!(pool.available(), 8);
    };
    namespace.run(body).unwrap();
}

/// Not a test of its own: what the next one kills.
#[test]
fn holds_a_tap_open_for_the_kill_test() {
    let Ok(name) = std::env::var("TIDEGATE_TEST_TAP") else {
        return;
    };
    let pool = Pool::new(64, 2048, HugePages::Never).unwrap();
    let port = open(pool.region(), 0, TapSpec::new(name), 2);
    println!("open");
    std::thread::sleep(Duration::from_secs(30));
    drop(port);
}

#[test]
fn nothing_is_left_after_a_kill() {
    if !needs("nothing_is_left_after_a_kill", &[]) {
        return;
    }
    let namespace = namespace("kill");
    let body = || {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "tap::holds_a_tap_open_for_the_kill_test",
                "--nocapture",
            ])
            .env("TIDEGATE_TEST_TAP", "tgkill")
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        while Interface::get("tgkill").is_err() {
            assert!(Instant::now() < deadline, "the child made no interface");
            std::thread::sleep(Duration::from_millis(5));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(Interface::get("tgkill").is_err());
        let pool = Pool::new(64, 2048, HugePages::Never).unwrap();
        let start = Instant::now();
        let again = open(pool.region(), 0, TapSpec::new("tgkill"), 2);
        assert!(start.elapsed() < Duration::from_millis(100) || cfg!(debug_assertions));
        drop(again);
    };
    namespace.run(body).unwrap();
}
