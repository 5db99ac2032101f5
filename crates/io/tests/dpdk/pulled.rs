//! What is under a device is taken away while frames pass: nothing crashes, every frame comes back, and what
//! is put there anew serves again.

use io::Batch;

use crate::common::{exec, namespace, needs, veth};
use crate::{begin, numbered, pool, queue};

/// Pulls the interface under `device` out, twice; `plug` makes it where it is not the device that does.
fn pulled(label: &str, interface: &str, device: &str, plug: impl Fn(&str)) {
    let mut pool = pool();
    let region = std::sync::Arc::clone(pool.region());
    let node = namespace(label);
    lab::netns::Namespace::enter(&node).unwrap();
    node.disable_ipv6().unwrap();
    for round in 0..2 {
        plug(label);
        let mut queue = queue(&region, device);
        begin(&mut *queue, &mut pool);
        exec(&node, &format!("ip link set {interface} up"));
        let mut batch = numbered(&mut pool, 20);
        // A driver whose ring is full takes the rest later.
        for _ in 0..1000 {
            queue.tx(&mut pool, &mut batch);
            begin(&mut *queue, &mut pool);
            if batch.is_empty() {
                break;
            }
        }
        assert!(batch.is_empty(), "round {round}: it sends");
        assert_eq!(queue.stats().tx_pkts, 20);
        exec(&node, &format!("ip link del {interface}"));
        for _ in 0..200 {
            let mut batch = numbered(&mut pool, 20);
            queue.tx(&mut pool, &mut batch);
            pool.free_batch(&mut batch);
            let mut batch = Batch::new();
            queue.rx(&mut pool, &mut batch);
            pool.free_batch(&mut batch);
            let _ = queue.arm();
            queue.disarm();
        }
        let stats = queue.stats();
        println!("{device}, pulled: {stats:?}");
        assert_eq!(queue.close(&mut pool), 0);
        assert_eq!(
            pool.available(),
            pool.capacity(),
            "round {round}: {stats:?}"
        );
    }
}

/// Runs in a thread of its own, which stays in the namespace.
fn in_a_thread(body: impl FnOnce() + Send) {
    std::thread::scope(|scope| scope.spawn(body).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

#[test]
fn a_wire_is_pulled_from_under_net_af_packet() {
    if !needs("a_wire_is_pulled_from_under_net_af_packet", &["ip"]) {
        return;
    }
    in_a_thread(|| {
        let far = namespace("far");
        let plug = |_: &str| {
            let here = lab::netns::Namespace::current().unwrap();
            veth((&far, "far0"), (&here, "near"), 1500);
        };
        pulled("pulled-p", "near", "net_af_packet_near,iface=near", plug);
    });
}

#[test]
fn a_wire_is_pulled_from_under_net_af_xdp() {
    if !needs("a_wire_is_pulled_from_under_net_af_xdp", &["ip"]) {
        return;
    }
    in_a_thread(|| {
        let far = namespace("far");
        let plug = |_: &str| {
            let here = lab::netns::Namespace::current().unwrap();
            veth((&far, "far0"), (&here, "near"), 1500);
        };
        pulled("pulled-x", "near", "net_af_xdp_near,iface=near", plug);
    });
}

#[test]
fn the_interface_of_net_tap_is_deleted() {
    if !needs("the_interface_of_net_tap_is_deleted", &["ip"]) {
        return;
    }
    in_a_thread(|| pulled("pulled-t", "dtap", "net_tap_pulled,iface=dtap", |_| ()));
}
