//! The `af_packet` driver between real kernel stacks, over veth pairs in namespaces of their own.
use crate::common::{Forwarder, Namespace, inside, needs, transfer, veth};
use io::af_packet::AfPacketSpec;
use io::port::{self, DriverSpec, PortSpec};
use io::{HugePages, Pool, PortId, Queue};

/// client - (left) node (right) - server, the node without addresses.
struct Line {
    client: Namespace,
    node: Namespace,
    server: Namespace,
}

impl Line {
    fn new() -> Self {
        let line = Self {
            client: Namespace::new("client"),
            node: Namespace::new("node"),
            server: Namespace::new("server"),
        };
        veth((&line.client, "eth0"), (&line.node, "left"));
        veth((&line.server, "eth0"), (&line.node, "right"));
        line.client.ip("addr add 192.0.2.1/24 dev eth0");
        line.server.ip("addr add 192.0.2.2/24 dev eth0");
        line
    }

    /// Starts a bridge between the node's two interfaces.
    fn forward(&self) -> Forwarder {
        let node = self.node.0.clone();
        Forwarder::start(move || {
            std::mem::ManuallyDrop::new(Namespace(node)).enter();
            let pool = Pool::new(1024, 2048, HugePages::Auto).unwrap();
            let left = open(&pool, 0, AfPacketSpec::new("left"), 1).remove(0);
            let right = open(&pool, 1, AfPacketSpec::new("right"), 1).remove(0);
            (pool, left, right)
        })
    }
}

fn open(pool: &Pool, id: u16, settings: AfPacketSpec, workers: u16) -> Vec<Box<dyn Queue>> {
    let spec = PortSpec::new(PortId(id), "port", DriverSpec::AfPacket(settings));
    let port = port::open(&spec, pool.region(), workers).unwrap();
    assert_eq!(port.queues.len(), usize::from(workers));
    port.queues
}

#[test]
fn ping_and_large_ping_pass() {
    if !needs("ping_and_large_ping_pass", &["ping"]) {
        return;
    }
    let line = Line::new();
    let forwarder = line.forward();
    line.client.exec("ping -c 3 -i 0.05 -W 2 192.0.2.2");
    // Fragments: 4,000 bytes do not fit one frame.
    line.client.exec("ping -c 2 -i 0.05 -W 2 -s 4000 192.0.2.2");
    let [left, right] = forwarder.stop();
    assert!(
        left.rx_pkts >= 9 && right.rx_pkts >= 9,
        "{left:?} {right:?}"
    );
    assert_eq!((left.rx_invalid_pkts, right.rx_invalid_pkts), (0, 0));
}

#[test]
fn tcp_from_a_stack_with_offloads_arrives_byte_exact() {
    if !needs("tcp_from_a_stack_with_offloads_arrives_byte_exact", &[]) {
        return;
    }
    let line = Line::new();
    let forwarder = line.forward();
    let start = std::time::Instant::now();
    transfer(&line.client, &line.server, "192.0.2.2:5001", 64 << 20);
    let elapsed = start.elapsed();
    let [left, right] = forwarder.stop();
    println!("64 MiB in {elapsed:?}: {left:?} {right:?}");
    assert_eq!((left.rx_invalid_pkts, right.rx_invalid_pkts), (0, 0));
    assert_eq!((left.stalls, right.stalls), (0, 0));
}

#[test]
fn datagrams_that_wait_to_be_read_keep_their_bytes() {
    if !needs("datagrams_that_wait_to_be_read_keep_their_bytes", &[]) {
        return;
    }
    // More datagrams than the transmit ring has slots wait in the server's socket: had the kernel only
    // references to the slots, the later datagrams would have overwritten the earlier ones.
    const DATAGRAMS: u32 = 64;
    let line = Line::new();
    let node = line.node.0.clone();
    let forwarder = Forwarder::start(move || {
        std::mem::ManuallyDrop::new(Namespace(node)).enter();
        let pool = Pool::new(1024, 2048, HugePages::Auto).unwrap();
        let settings = |name| AfPacketSpec {
            tx_slots: 32,
            ..AfPacketSpec::new(name)
        };
        let left = open(&pool, 0, settings("left"), 1).remove(0);
        let right = open(&pool, 1, settings("right"), 1).remove(0);
        (pool, left, right)
    });
    let server = inside(&line.server, || {
        std::net::UdpSocket::bind("192.0.2.2:5002").unwrap()
    });
    server
        .set_read_timeout(Some(std::time::Duration::from_secs(5)))
        .unwrap();
    inside(&line.client, || {
        let client = std::net::UdpSocket::bind("192.0.2.1:0").unwrap();
        client.connect("192.0.2.2:5002").unwrap();
        for i in 0..DATAGRAMS {
            client.send(&[i as u8; 900]).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    });
    std::thread::sleep(std::time::Duration::from_millis(50));
    let [left, right] = forwarder.stop();
    let mut bytes = [0; 1000];
    for i in 0..DATAGRAMS {
        assert_eq!(server.recv(&mut bytes).unwrap(), 900, "{left:?} {right:?}");
        assert_eq!(bytes[..900], [i as u8; 900], "datagram {i}");
    }
}
