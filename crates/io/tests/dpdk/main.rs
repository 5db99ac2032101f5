//! The driver `dpdk` over virtual devices: rings, nothing, and devices with a kernel behind them. One
//! process, since DPDK starts once in each.
#![cfg(feature = "dpdk")]

#[path = "../kernel/common.rs"]
mod common;
mod offloads;
mod pulled;

use std::sync::Arc;

use io::dpdk::DpdkSpec;
use io::port::{self, DriverSpec, OpenError, OpenPort, PortSpec};
use io::{Batch, Interrupt, Pool, PortId, Queue, Region};
use lab::netns::Namespace;
use lab::vdev::HugePages;

use crate::common::{Forwarder, exec, namespace, needs, receive, transfer, veth};

/// Frames of a worker, bytes of a frame: net_af_xdp needs 4 KiB for packets of 1,500 bytes.
const FRAMES: u32 = 8192;
const FRAME_BYTES: u32 = 4096;

fn pool() -> Pool {
    Pool::new(FRAMES, FRAME_BYTES, io::HugePages::Auto).unwrap()
}

fn open(region: &Arc<Region>, device: &str, workers: u16) -> Result<OpenPort, OpenError> {
    let driver = DriverSpec::Dpdk(DpdkSpec::new(device));
    port::open(&PortSpec::new(PortId(7), "port", driver), region, workers)
}

fn queue(region: &Arc<Region>, device: &str) -> Box<dyn Queue> {
    let mut port = open(region, device, 1).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((port.driver, port.queues.len()), ("dpdk", 1));
    port.queues.remove(0)
}

/// Starts a device; what it has received by then is nobody's.
fn begin(queue: &mut dyn Queue, pool: &mut Pool) {
    let mut batch = Batch::new();
    queue.rx(pool, &mut batch);
    pool.free_batch(&mut batch);
}

/// Fills a batch with numbered frames of growing length.
fn numbered(pool: &mut Pool, n: usize) -> Batch {
    let mut batch = Batch::new();
    for i in 0..n {
        let mut frame = pool.alloc().expect("a frame");
        assert!(frame.fill(&vec![i as u8; 60 + 20 * i]));
        assert!(batch.push(frame).is_ok());
    }
    batch
}

#[test]
fn a_ring_gives_back_what_was_sent_without_a_copy() {
    let mut pool = pool();
    let mut queue = queue(pool.region(), "net_ring_loop");
    let mut batch = Batch::new();
    assert_eq!(queue.rx(&mut pool, &mut batch), 0);
    assert_eq!(queue.capabilities().interrupt, Interrupt::None);
    assert!(queue.capabilities().mode.starts_with("net_ring, DPDK "));
    let mut batch = numbered(&mut pool, 40);
    let slots: Vec<_> = batch.iter().map(|frame| frame.slot()).collect();
    assert_eq!(queue.tx(&mut pool, &mut batch), 40);
    assert!(batch.is_empty());
    receive(&mut *queue, &mut pool, &mut batch, 40);
    assert_eq!(batch.len(), 40);
    for (i, (frame, slot)) in batch.iter().zip(slots).enumerate() {
        assert_eq!(frame.data(), vec![i as u8; 60 + 20 * i]);
        assert_eq!((frame.slot(), frame.rx_port), (slot, PortId(7)));
    }
    pool.free_batch(&mut batch);
    let stats = queue.stats();
    assert_eq!((stats.rx_pkts, stats.tx_pkts), (40, 40));
    assert_eq!(stats.rx_bytes, stats.tx_bytes);
    assert_eq!(queue.close(&mut pool), 0);
    assert_eq!(pool.available(), pool.capacity(), "frames are conserved");
}

#[test]
fn a_frame_of_another_region_is_counted_and_the_rest_is_sent() {
    let (mut pool, mut other) = (pool(), Pool::new(4, 2048, io::HugePages::Never).unwrap());
    let mut queue = queue(pool.region(), "net_ring_foreign");
    let mut batch = numbered(&mut pool, 2);
    assert!(batch.push(other.alloc().unwrap()).is_ok());
    let mut more = numbered(&mut pool, 2);
    batch.append_from(&mut more);
    while !batch.is_empty() {
        assert!(queue.tx(&mut pool, &mut batch) > 0);
    }
    assert_eq!((queue.stats().tx_pkts, queue.stats().tx_error_pkts), (4, 1));
    assert_eq!(pool.foreign(), 1);
    receive(&mut *queue, &mut pool, &mut batch, 4);
    pool.free_batch(&mut batch);
    assert_eq!(queue.close(&mut pool), 0);
    assert_eq!(pool.available(), pool.capacity());
}

#[test]
fn frames_run_in_circles_between_null_devices_and_none_is_lost() {
    let mut pool = pool();
    let region = Arc::clone(pool.region());
    let mut queues = [
        queue(&region, "net_null_a,size=64"),
        queue(&region, "net_null_b,size=64"),
    ];
    let mut batch = Batch::new();
    for round in 0..20_000 {
        let [a, b] = &mut queues;
        let (from, to) = if round % 2 == 0 { (a, b) } else { (b, a) };
        assert!(from.rx(&mut pool, &mut batch) > 0);
        assert!(batch.iter().all(|frame| frame.len() == 64));
        to.tx(&mut pool, &mut batch);
        assert!(batch.is_empty());
    }
    let [a, b] = queues.each_ref().map(|queue| queue.stats());
    assert_eq!(a.rx_pkts + b.rx_pkts, a.tx_pkts + b.tx_pkts);
    assert!(queues.iter_mut().all(|queue| queue.close(&mut pool) == 0));
    assert_eq!(pool.available(), pool.capacity(), "frames are conserved");
}

#[test]
fn an_empty_pool_is_survived_and_counted() {
    let mut pool = pool();
    let mut queue = queue(pool.region(), "net_null_dry,size=64");
    let (mut batch, mut held) = (Batch::new(), Vec::new());
    // Take every frame away; the device must go on when they come back.
    for _ in 0..2 * FRAMES {
        queue.rx(&mut pool, &mut batch);
        held.extend(batch.drain());
    }
    assert_eq!(queue.rx(&mut pool, &mut batch), 0);
    assert!(queue.stats().rx_no_frame_pkts > 0 || pool.available() == 0);
    for frame in held.drain(..) {
        pool.free(frame);
    }
    assert!(queue.rx(&mut pool, &mut batch) > 0);
    pool.free_batch(&mut batch);
    assert_eq!(queue.close(&mut pool), 0);
    assert_eq!(pool.available(), pool.capacity());
}

#[test]
fn two_workers_have_a_queue_each_and_free_each_others_frames() {
    let mut pools = Pool::split(4096, 2, FRAME_BYTES, io::HugePages::Auto).unwrap();
    let region = Arc::clone(pools[0].region());
    let mut port = open(&region, "net_null_two,size=60", 2).unwrap();
    assert_eq!(port.queues.len(), 2);
    let mut second = port.queues.pop().unwrap();
    let mut first = port.queues.pop().unwrap();
    let mut batches = [Batch::new(), Batch::new()];
    // The device starts when both queues have given frames.
    assert_eq!(first.rx(&mut pools[0], &mut batches[0]), 0);
    second.rx(&mut pools[1], &mut batches[1]);
    for _ in 0..2000 {
        first.rx(&mut pools[0], &mut batches[0]);
        second.rx(&mut pools[1], &mut batches[1]);
        assert!(!batches[0].is_empty() && !batches[1].is_empty());
        // each sends what the other has received
        let [a, b] = &mut batches;
        core::mem::swap(a, b);
        first.tx(&mut pools[0], a);
        second.tx(&mut pools[1], b);
    }
    assert_eq!(first.close(&mut pools[0]) + second.close(&mut pools[1]), 0);
    for frame in batches.iter_mut().flat_map(|batch| batch.drain()) {
        pools[0].free(frame);
    }
    // What the second found of the first worker's goes home.
    let all: usize = pools.iter().map(|p| p.available() + p.strays()).sum();
    assert_eq!(all, 2 * 4096, "frames are conserved");
}

#[test]
fn a_device_that_is_not_there_is_an_error_with_a_remedy() {
    let pool = pool();
    let refused = |device| open(pool.region(), device, 1).unwrap_err().to_string();
    let virtual_device = refused("net_nonsense0");
    assert!(virtual_device.contains("net_nonsense0") && virtual_device.contains("testpmd"));
    let card = refused("0000:ff:1f.7");
    assert!(card.contains("vfio-pci"), "{card}");
}

/// client - (left) node (right) - server; the kernel leaves no checksum to the devices.
fn wire(test: &str) -> Option<[Arc<Namespace>; 3]> {
    if !needs(test, &["ip", "ethtool"]) {
        return None;
    }
    let [client, node, server] = ["client", "node", "server"].map(namespace);
    node.disable_ipv6().unwrap();
    for (end, device, number) in [(&client, "left", 1), (&server, "right", 2)] {
        veth((end, "eth0"), (&node, device), 1500);
        exec(end, &format!("ip addr add 192.0.2.{number}/24 dev eth0"));
        exec(end, "ethtool -K eth0 tx off");
    }
    Some([client, node, server])
}

/// Forwards TCP between two kernels through two DPDK devices and compares every byte.
fn forwards_tcp(test: &str, devices: [&str; 2]) {
    let Some([client, node, server]) = wire(test) else {
        return;
    };
    let pool = pool();
    let region = Arc::clone(pool.region());
    let [left, right] = devices.map(|device| node.run(|| queue(&region, device)).unwrap());
    // The device is started by who receives first, in the namespace that its interface is in.
    let forwarder = node.run(|| Forwarder::start(pool, left, right)).unwrap();
    transfer(&client, &server, "192.0.2.2:4000", 1 << 20);
    transfer(&server, &client, "192.0.2.1:4001", 1 << 20);
    let [left, right] = forwarder.stop();
    assert!(
        left.rx_pkts > 700 && right.rx_pkts > 700,
        "{left:?} {right:?}"
    );
}

#[test]
fn tcp_through_net_af_packet() {
    forwards_tcp(
        "tcp_through_net_af_packet",
        ["net_af_packet_l,iface=left", "net_af_packet_r,iface=right"],
    );
}

#[test]
fn tcp_through_net_af_xdp() {
    forwards_tcp(
        "tcp_through_net_af_xdp",
        ["net_af_xdp_l,iface=left", "net_af_xdp_r,iface=right"],
    );
}

#[test]
fn tcp_through_net_tap_which_wakes_by_its_descriptor() {
    let test = "tcp_through_net_tap_which_wakes_by_its_descriptor";
    if !needs(test, &["ip", "ethtool"]) {
        return;
    }
    let mut pool = pool();
    let region = Arc::clone(pool.region());
    let mut number = 0;
    let [(client, left), (server, right)] = ["client", "server"].map(|label| {
        number += 1;
        let end = namespace(label);
        let device = format!("net_tap_{label},iface=dtap");
        // The first call starts the device, in the namespace that its interface is to be in.
        let queue = end.run(|| {
            let mut queue = queue(&region, &device);
            begin(&mut *queue, &mut pool);
            queue
        });
        let queue = queue.unwrap();
        exec(&end, &format!("ip addr add 192.0.2.{number}/24 dev dtap"));
        exec(&end, "ip link set dtap up");
        (end, queue)
    });
    assert_eq!(left.capabilities().interrupt, Interrupt::Level);
    let forwarder = Forwarder::start(pool, left, right);
    transfer(&client, &server, "192.0.2.2:4000", 1 << 18);
    let [left, right] = forwarder.stop();
    assert!(
        left.rx_pkts > 100 && right.rx_pkts > 0,
        "{left:?} {right:?}"
    );
}

#[test]
fn frames_pass_between_two_ends_of_a_memif() {
    let mut pool = pool();
    let region = Arc::clone(pool.region());
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("memif.sock");
    let device = |end, role| {
        format!(
            "net_memif_{end},role={role},socket-abstract=no,socket={}",
            socket.display()
        )
    };
    let mut server = queue(&region, &device("s", "server"));
    let mut client = queue(&region, &device("c", "client"));
    let mut got = Batch::new();
    // The server starts first: a client looks for it once, when it is started.
    server.rx(&mut pool, &mut got);
    let expected: Vec<usize> = (0..30).map(|i| 60 + 20 * i).collect();
    let mut passed = false;
    // The ends find each other in threads of DPDK's; what is sent meanwhile may be lost, so it is sent again.
    for _ in 0..60 {
        pool.free_batch(&mut got);
        let mut batch = numbered(&mut pool, 30);
        let patience = std::time::Instant::now() + std::time::Duration::from_millis(300);
        while got.len() < 30 && std::time::Instant::now() < patience {
            client.rx(&mut pool, &mut got);
            server.rx(&mut pool, &mut got);
            client.tx(&mut pool, &mut batch);
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        pool.free_batch(&mut batch);
        let lengths: Vec<usize> = got.iter().map(|frame| frame.len()).collect();
        passed = lengths == expected;
        if passed {
            break;
        }
    }
    assert!(passed, "30 frames pass in order");
    pool.free_batch(&mut got);
    assert_eq!(client.close(&mut pool) + server.close(&mut pool), 0);
    assert_eq!(pool.available(), pool.capacity());
}

/// testpmd at the other end of a vhost-user socket, sending back what it receives; it needs huge pages,
/// which are given back with it.
struct VirtioUser {
    child: std::process::Child,
    _pages: HugePages,
}

impl VirtioUser {
    fn start(socket: &std::path::Path, pages: HugePages) -> Self {
        let program = lab::need::find_program("dpdk-testpmd").unwrap();
        let child = std::process::Command::new(program)
            .args([
                "--in-memory",
                "--single-file-segments",
                "--no-pci",
                "--no-telemetry",
            ])
            .args(["-l", "0,1", "--file-prefix=tidegate-virtio-test"])
            .arg(format!("--vdev=net_virtio_user0,path={}", socket.display()))
            .args([
                "--",
                "--forward-mode=io",
                "--auto-start",
                "--total-num-mbufs=8192",
            ])
            .args(["--stats-period=1", "--no-lsc-interrupt"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        Self {
            child,
            _pages: pages,
        }
    }
}

impl Drop for VirtioUser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sleeps until the queue's interrupt, and tells whether the time of 100 ms passed without one.
fn sleeps(queue: &mut dyn Queue) -> bool {
    let mut set = io::wait::PollSet::with_capacity(1);
    if let io::Arm::Armed(fd) = queue.arm() {
        set.add(fd);
    }
    let woken = set.wait(Some(std::time::Duration::from_millis(100)));
    queue.disarm();
    set.len() == 1 && woken == io::wait::Woken::TimedOut
}

#[test]
fn vhost_wakes_a_sleeper_and_survives_the_death_of_its_peer() {
    let test = "vhost_wakes_a_sleeper_and_survives_the_death_of_its_peer";
    if !needs(test, &["dpdk-testpmd"]) {
        return;
    }
    let mut pool = pool();
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("vhost.sock");
    let device = format!("net_vhost_0,iface={},queues=1", socket.display());
    let mut queue = queue(pool.region(), &device);
    let mut batch = Batch::new();
    queue.rx(&mut pool, &mut batch);
    assert_eq!(
        queue.capabilities().interrupt,
        Interrupt::Edge,
        "{:?}",
        queue.capabilities()
    );
    for peer in ["the first peer", "the second, after the first was killed"] {
        let pages = HugePages::reserve(128).unwrap();
        if !lab::need::need(test, "64 huge pages of 2 MiB", HugePages::free() >= 64) {
            return;
        }
        let virtio = VirtioUser::start(&socket, pages);
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        let (mut wakes, mut came_back) = (0, 0);
        while came_back < 200 && std::time::Instant::now() < deadline {
            let mut out = numbered(&mut pool, 4);
            queue.tx(&mut pool, &mut out);
            pool.free_batch(&mut out); // nobody is connected yet
            let mut set = io::wait::PollSet::with_capacity(1);
            let armed = match queue.arm() {
                io::Arm::Armed(fd) => {
                    set.add(fd);
                    true
                }
                io::Arm::Ready => false,
                io::Arm::Unsupported => {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                    false
                }
            };
            if armed {
                let before = std::time::Instant::now();
                set.wait(Some(std::time::Duration::from_millis(500)));
                wakes += u32::from(before.elapsed().as_millis() < 400);
            }
            queue.disarm();
            came_back += queue.rx(&mut pool, &mut batch);
            pool.free_batch(&mut batch);
        }
        assert!(
            came_back >= 200 && wakes >= 10,
            "{peer}: {came_back} frames, {wakes} wakes"
        );
        // What is on its way still comes; then nobody is woken, for all the signals that the peer gave before.
        let quiet = std::time::Instant::now() + std::time::Duration::from_millis(300);
        while std::time::Instant::now() < quiet {
            queue.rx(&mut pool, &mut batch);
            pool.free_batch(&mut batch);
        }
        let undisturbed = (0..5).filter(|_| sleeps(&mut *queue)).count();
        assert!(undisturbed >= 4, "{peer}: {undisturbed} of 5 sleeps");
        drop(virtio);
    }
    assert_eq!(queue.close(&mut pool), 0);
    assert_eq!(pool.available(), pool.capacity(), "frames are conserved");
}
