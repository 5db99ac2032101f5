//! The `af_packet` driver between real kernel stacks, over veth pairs in namespaces of their own.

use std::net::UdpSocket;
use std::sync::Arc;
use std::time::Duration;

use io::af_packet::AfPacketSpec;
use io::port::{self, DriverSpec, OpenPort, PortSpec};
use io::raw::RawPort;
use io::{Arm, Batch, HugePages, Link, Pool, PortId, Queue, Region};
use lab::netns::Namespace;

use crate::common::{Forwarder, exec, namespace, needs, receive, transfer, veth};

fn open_port(region: &Arc<Region>, id: u16, settings: AfPacketSpec, workers: u16) -> OpenPort {
    let spec = PortSpec::new(PortId(id), "port", DriverSpec::AfPacket(settings));
    port::open(&spec, region, workers).unwrap()
}

/// client - (left) node (right) - server, the node without addresses: a wire with a forwarder in it.
struct Wire {
    client: Arc<Namespace>,
    node: Arc<Namespace>,
    server: Arc<Namespace>,
}

impl Wire {
    fn new(mtu: u32) -> Self {
        let wire = Self {
            client: namespace("client"),
            node: namespace("node"),
            server: namespace("server"),
        };
        wire.node.disable_ipv6().unwrap();
        veth((&wire.client, "eth0"), (&wire.node, "left"), mtu);
        veth((&wire.server, "eth0"), (&wire.node, "right"), mtu);
        for (end, number) in [(&wire.client, 1), (&wire.server, 2)] {
            exec(end, &format!("ip addr add 192.0.2.{number}/24 dev eth0"));
            let six = format!("ip addr add 2001:db8::{number}/64 dev eth0 nodad");
            exec(end, &six);
        }
        wire
    }

    /// Starts a forwarder between the node's two devices, with transmit rings of that many slots.
    fn forward(&self, pool: Pool, tx_slots: u32) -> Forwarder {
        let region = pool.region();
        let open = |id, name| {
            let settings = AfPacketSpec {
                tx_slots,
                ..AfPacketSpec::new(name)
            };
            let mut port = self.node.run(|| open_port(region, id, settings, 1));
            port.as_mut().unwrap().queues.remove(0)
        };
        let (left, right) = (open(0, "left"), open(1, "right"));
        Forwarder::start(pool, left, right)
    }

    /// Opens the client's end of the wire for raw frames.
    fn raw_client(&self) -> RawPort {
        self.client.run(|| RawPort::open("eth0")).unwrap().unwrap()
    }

    /// Opens one queue of the node's left device.
    fn open_left(&self, pool: &Pool, settings: AfPacketSpec) -> Box<dyn Queue> {
        let region = pool.region();
        let port = self.node.run(|| open_port(region, 0, settings, 1));
        port.unwrap().queues.remove(0)
    }
}

fn usual_pool() -> Pool {
    Pool::new(1024, 2048, HugePages::Auto).unwrap()
}

/// A broadcast frame of a type that no stack answers.
fn experimental(number: u32, len: usize) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    frame.extend(number.to_be_bytes());
    frame.resize(len.max(60), 0);
    frame
}

#[test]
fn ping_and_fragments_pass() {
    if !needs("ping_and_fragments_pass", &["ping"]) {
        return;
    }
    let wire = Wire::new(1500);
    let forwarder = wire.forward(usual_pool(), 1024);
    exec(&wire.client, "ping -c 3 -i 0.05 -W 2 192.0.2.2");
    exec(&wire.client, "ping -c 2 -i 0.05 -W 2 -s 4000 192.0.2.2");
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
    let wire = Wire::new(1500);
    let forwarder = wire.forward(usual_pool(), 1024);
    transfer(&wire.client, &wire.server, "192.0.2.2:5001", 32 << 20);
    transfer(&wire.server, &wire.client, "[2001:db8::1]:5001", 32 << 20);
    let [left, right] = forwarder.stop();
    assert_eq!((left.rx_invalid_pkts, right.rx_invalid_pkts), (0, 0));
    assert_eq!((left.stalls, right.stalls), (0, 0));
    // Nearly all bytes came in super-frames: some 22,000 frames each way, a few thousand system calls.
    assert!(left.rx_pkts > 20_000 && right.rx_pkts > 20_000);
    assert_eq!(left.rx_pkts, right.tx_pkts);
}

#[test]
fn jumbo_frames_pass_where_the_pool_holds_them() {
    if !needs("jumbo_frames_pass_where_the_pool_holds_them", &["ping"]) {
        return;
    }
    let wire = Wire::new(9000);
    let pool = Pool::new(256, 16384, HugePages::Auto).unwrap();
    let forwarder = wire.forward(pool, 1024);
    exec(
        &wire.client,
        "ping -c 2 -i 0.05 -W 2 -M do -s 8972 192.0.2.2",
    );
    transfer(&wire.client, &wire.server, "192.0.2.2:5001", 4 << 20);
    forwarder.stop();
    let region = Region::new(4, 2048, HugePages::Never).unwrap();
    let small = wire
        .node
        .run(|| open_port(&region, 0, AfPacketSpec::new("left"), 1));
    assert_eq!(small.unwrap().mtu, 2048 - 256 - 22);
}

#[test]
fn vlan_tags_that_the_kernel_takes_out_are_put_back() {
    if !needs("vlan_tags_that_the_kernel_takes_out_are_put_back", &[]) {
        return;
    }
    let wire = Wire::new(1500);
    wire.client.disable_ipv6().unwrap();
    std::thread::sleep(Duration::from_millis(20));
    let mut client = wire.raw_client();
    let mut pool = usual_pool();
    let mut queue = wire.open_left(&pool, AfPacketSpec::new("left"));
    let mut batch = Batch::new();
    // 802.1Q, priority tag, 802.1ad, and two tags; the longest frame that a veth passes.
    for tags in [
        &[0x81, 0x00, 0x20, 0x05][..],
        &[0x81, 0x00, 0xe0, 0x00],
        &[0x88, 0xa8, 0x00, 0x07],
        &[0x88, 0xa8, 0x00, 0x07, 0x81, 0x00, 0x00, 0x05],
    ] {
        for len in [60, 1518 - tags.len()] {
            let mut frame = experimental(9, len);
            frame.splice(12..12, tags.iter().copied());
            client.send(&frame).unwrap();
            receive(&mut *queue, &mut pool, &mut batch, 1);
            assert_eq!(batch.len(), 1, "{tags:02x?} {len}");
            assert_eq!(batch[0].data(), frame);
            pool.free_batch(&mut batch);
        }
    }
    queue.close(&mut pool);
    assert_eq!(pool.available(), pool.capacity());
}

#[test]
fn datagrams_that_wait_to_be_read_keep_their_bytes() {
    if !needs("datagrams_that_wait_to_be_read_keep_their_bytes", &[]) {
        return;
    }
    // More datagrams than the transmit ring has slots wait in the server's socket: had the kernel only
    // references to the slots, the later datagrams would have overwritten the earlier ones.
    const DATAGRAMS: u32 = 64;
    let wire = Wire::new(1500);
    let forwarder = wire.forward(usual_pool(), 32);
    let server = wire.server.run(|| UdpSocket::bind("192.0.2.2:5002"));
    let server = server.unwrap().unwrap();
    server
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    let client = wire.client.run(|| UdpSocket::bind("192.0.2.1:0"));
    let client = client.unwrap().unwrap();
    client.connect("192.0.2.2:5002").unwrap();
    for i in 0..DATAGRAMS {
        client.send(&[i as u8; 900]).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(50));
    forwarder.stop();
    let mut bytes = [0; 1000];
    for i in 0..DATAGRAMS {
        assert_eq!(server.recv(&mut bytes).unwrap(), 900);
        assert_eq!(bytes[..900], [i as u8; 900], "datagram {i}");
    }
}

#[test]
fn fanout_gives_each_flow_to_one_queue_and_each_frame_once() {
    if !needs(
        "fanout_gives_each_flow_to_one_queue_and_each_frame_once",
        &[],
    ) {
        return;
    }
    const FLOWS: u16 = 60;
    let wire = Wire::new(1500);
    let mut pool = usual_pool();
    let region = pool.region();
    let port = wire
        .node
        .run(|| open_port(region, 0, AfPacketSpec::new("left"), 3));
    let mut port = port.unwrap();
    assert_eq!(port.queues.len(), 3);
    assert!(port.mode.contains("fanout"), "{}", port.mode);
    exec(
        &wire.client,
        "ip neigh add 192.0.2.9 lladdr 02:00:00:00:00:09 dev eth0",
    );
    let sockets: Vec<UdpSocket> = wire
        .client
        .run(|| {
            (0..FLOWS)
                .map(|_| UdpSocket::bind("192.0.2.1:0").unwrap())
                .collect()
        })
        .unwrap();
    for _ in 0..3 {
        for socket in &sockets {
            socket.send_to(b"flow", "192.0.2.9:9").unwrap();
        }
    }
    std::thread::sleep(Duration::from_millis(50));
    // Frames of a flow, by queue; a flow is known by its source port.
    let mut seen = std::collections::BTreeMap::<[u8; 2], [u32; 3]>::new();
    let mut batch = Batch::new();
    for (number, queue) in port.queues.iter_mut().enumerate() {
        while queue.rx(&mut pool, &mut batch) > 0 {
            for frame in batch.drain() {
                if frame.data().ends_with(b"flow") {
                    let source = *frame.data()[34..].first_chunk().unwrap();
                    seen.entry(source).or_default()[number] += 1;
                }
                pool.free(frame);
            }
        }
        queue.close(&mut pool);
    }
    assert_eq!(seen.len(), usize::from(FLOWS));
    for (flow, queues) in &seen {
        assert_eq!(queues.iter().sum::<u32>(), 3, "{flow:?}: {queues:?}");
        assert_eq!(queues.iter().max(), Some(&3), "{flow:?}: {queues:?}");
    }
    for number in 0..3 {
        let flows = seen.values().filter(|queues| queues[number] > 0).count();
        assert!(flows > 5, "queue {number} has {flows} of {FLOWS} flows");
    }
    assert_eq!(pool.available(), pool.capacity());
}

#[test]
fn a_full_ring_loses_frames_and_counts_them_all() {
    if !needs("a_full_ring_loses_frames_and_counts_them_all", &[]) {
        return;
    }
    let wire = Wire::new(1500);
    wire.client.disable_ipv6().unwrap();
    std::thread::sleep(Duration::from_millis(20));
    let mut client = wire.raw_client();
    let mut pool = usual_pool();
    let settings = AfPacketSpec {
        rx_slots: 32,
        ..AfPacketSpec::new("left")
    };
    let mut queue = wire.open_left(&pool, settings);
    for i in 0..200 {
        client.send(&experimental(i, 60)).unwrap();
    }
    let mut batch = Batch::new();
    receive(&mut *queue, &mut pool, &mut batch, 32);
    assert_eq!(batch.len(), 32);
    assert_eq!(
        batch[31].data()[14..18],
        [0, 0, 0, 31],
        "the oldest are kept"
    );
    pool.free_batch(&mut batch);
    // It goes on, and nothing is forgotten.
    client.send(&experimental(1000, 60)).unwrap();
    receive(&mut *queue, &mut pool, &mut batch, 1);
    assert_eq!(batch[0].data()[14..18], 1000_u32.to_be_bytes());
    pool.free_batch(&mut batch);
    queue.close(&mut pool);
    assert_eq!(queue.stats().rx_pkts + queue.stats().rx_ring_full_pkts, 201);
    assert_eq!(pool.available(), pool.capacity());
}

#[test]
fn an_empty_pool_loses_frames_counted_and_comes_back() {
    if !needs("an_empty_pool_loses_frames_counted_and_comes_back", &[]) {
        return;
    }
    let wire = Wire::new(1500);
    wire.client.disable_ipv6().unwrap();
    std::thread::sleep(Duration::from_millis(20));
    let mut client = wire.raw_client();
    let mut pool = Pool::new(8, 2048, HugePages::Never).unwrap();
    let mut queue = wire.open_left(&pool, AfPacketSpec::new("left"));
    for i in 0..50 {
        client.send(&experimental(i, 60)).unwrap();
    }
    let mut batch = Batch::new();
    receive(&mut *queue, &mut pool, &mut batch, 8);
    assert_eq!(batch.len(), 8);
    assert_eq!(queue.rx(&mut pool, &mut batch), 0);
    assert_eq!(queue.stats().rx_no_frame_pkts, 42);
    pool.free_batch(&mut batch);
    client.send(&experimental(1000, 60)).unwrap();
    receive(&mut *queue, &mut pool, &mut batch, 1);
    assert_eq!(batch[0].data()[14..18], 1000_u32.to_be_bytes());
    pool.free_batch(&mut batch);
    queue.close(&mut pool);
    assert_eq!(pool.available(), 8);
}

/// Sends a burst of 16 frames with a number in each and frees what is not taken.
fn send_burst(queue: &mut dyn Queue, pool: &mut Pool, number: u32) {
    let mut batch = Batch::new();
    pool.alloc_batch(16, &mut batch);
    for frame in batch.iter_mut() {
        assert!(frame.fill(&experimental(number, 100)));
    }
    queue.tx(pool, &mut batch);
    pool.free_batch(&mut batch);
    queue.rx(pool, &mut batch);
    pool.free_batch(&mut batch);
}

/// Tells how long the queue lets a worker sleep, 300 ms at most.
fn sleep(queue: &mut dyn Queue) -> Duration {
    let start = std::time::Instant::now();
    if let Arm::Armed(fd) = queue.arm() {
        let mut set = io::wait::PollSet::with_capacity(1);
        set.add(fd);
        set.wait(Some(Duration::from_millis(300)));
    }
    queue.disarm();
    start.elapsed()
}

#[test]
fn a_link_that_goes_down_costs_frames_but_neither_blocks_nor_spins_nor_leaks() {
    let test = "a_link_that_goes_down_costs_frames_but_neither_blocks_nor_spins_nor_leaks";
    if !needs(test, &[]) {
        return;
    }
    let wire = Wire::new(1500);
    wire.client.disable_ipv6().unwrap();
    let mut pool = usual_pool();
    let mut queue = wire.open_left(&pool, AfPacketSpec::new("left"));
    // Our end goes down, then the other.
    for (end, device) in [(&wire.node, "left"), (&wire.client, "eth0")] {
        let mut client = wire.raw_client();
        send_burst(&mut *queue, &mut pool, 1);
        assert!(client.receive(Duration::from_secs(2)).is_some());
        while client.receive(Duration::from_millis(20)).is_some() {}
        let errors = queue.stats().tx_error_pkts;
        exec(end, &format!("ip link set {device} down"));
        for _ in 0..300 {
            send_burst(&mut *queue, &mut pool, 2);
            assert_eq!(pool.available(), pool.capacity());
        }
        assert!(
            queue.stats().tx_error_pkts > errors + 3000,
            "{:?}",
            queue.stats()
        );
        // Once the error has been seen a worker can sleep.
        let mut batch = Batch::new();
        for _ in 0..100 {
            queue.rx(&mut pool, &mut batch);
            if sleep(&mut *queue) > Duration::from_millis(200) {
                break;
            }
        }
        assert!(
            sleep(&mut *queue) > Duration::from_millis(200),
            "the worker spins"
        );
        exec(end, &format!("ip link set {device} up"));
        drop(client);
        let mut client = wire.raw_client();
        std::thread::sleep(Duration::from_millis(20));
        let mut received = None;
        for _ in 0..100 {
            send_burst(&mut *queue, &mut pool, 3);
            received = client
                .receive(Duration::from_millis(20))
                .map(|f| f.to_vec());
            if received.is_some() {
                break;
            }
        }
        assert_eq!(
            received,
            Some(experimental(3, 100)),
            "it works again, without old frames"
        );
        pool.free_batch(&mut batch);
    }
    queue.close(&mut pool);
    assert_eq!(pool.available(), pool.capacity());
}

#[test]
fn random_frames_pass_unchanged_and_are_all_accounted_for() {
    if !needs(
        "random_frames_pass_unchanged_and_are_all_accounted_for",
        &[],
    ) {
        return;
    }
    let wire = Wire::new(1500);
    for end in [&wire.client, &wire.server] {
        exec(end, "ip addr flush dev eth0");
        end.disable_ipv6().unwrap();
    }
    std::thread::sleep(Duration::from_millis(20));
    let forwarder = wire.forward(usual_pool(), 1024);
    let mut client = wire.raw_client();
    let mut server = wire.server.run(|| RawPort::open("eth0")).unwrap().unwrap();
    let mut state = 11_u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 40) as usize
    };
    for _ in 0..2000 {
        let len = 14 + next() % 1500;
        let mut frame: Vec<u8> = (0..len).map(|_| next() as u8).collect();
        // The kernel refuses group addresses as a source; a tag would come back as one, longer by nothing.
        frame[6] &= 0xfe;
        if frame[12] == 0x81 || frame[12] == 0x88 {
            frame[12] = 0;
        }
        client.send(&frame).unwrap();
        let received = server.receive(Duration::from_secs(2)).map(|f| f.to_vec());
        assert_eq!(received, Some(frame));
    }
    let [left, right] = forwarder.stop();
    assert_eq!((left.rx_pkts, right.tx_pkts), (2000, 2000));
}

#[test]
fn what_is_missing_is_named() {
    let region = Region::new(1, 2048, HugePages::Never).unwrap();
    let settings = DriverSpec::AfPacket(AfPacketSpec::new("tg-no-such"));
    let spec = PortSpec::new(PortId(0), "uplink", settings);
    let refused = port::open(&spec, &region, 1).unwrap_err().to_string();
    assert!(
        refused.contains("uplink") && refused.contains("tg-no-such"),
        "{refused}"
    );
}

/// Not a test of its own: what the next one runs as an ordinary user.
#[test]
fn sends_to_itself_for_the_user_namespace_test() {
    if std::env::var_os("TIDEGATE_TEST_USER").is_none() {
        return;
    }
    let mut port = RawPort::open("lo").unwrap();
    assert_eq!(port.port().link, Link::Up);
    port.send(&experimental(7, 60)).unwrap();
    let received = port.receive(Duration::from_secs(2)).map(|f| f.to_vec());
    assert_eq!(received, Some(experimental(7, 60)));
    println!("sent and received without privilege");
}

#[test]
fn an_ordinary_user_can_in_a_user_namespace() {
    use std::os::unix::process::CommandExt;
    if !needs("an_ordinary_user_can_in_a_user_namespace", &["unshare"]) {
        return;
    }
    // A copy where everybody can reach it.
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("test");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(directory.path(), everybody).unwrap();
    let output = std::process::Command::new("unshare")
        .arg("-Urn")
        .arg(&program)
        .args([
            "--exact",
            "af_packet::sends_to_itself_for_the_user_namespace_test",
        ])
        .arg("--nocapture")
        .env("TIDEGATE_TEST_USER", "1")
        .current_dir("/")
        .gid(65534)
        .uid(65534)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let all = format!("{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(
        text.contains("sent and received without privilege"),
        "{all}"
    );
    assert!(output.status.success(), "{all}");
}
