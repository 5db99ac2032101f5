//! The cache on a real device: a veth pair between two namespaces, real sockets, and a process that is killed.

#[expect(dead_code, reason = "each test program uses a part")]
mod support;

use std::net::{IpAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use io::af_packet::AfPacketSpec;
use io::af_xdp::{AfXdpSpec, Place};
use io::bpf::asm::{Asm, Helper, Reg, XdpAction};
use io::bpf::{AttachMode, Program};
use io::port::{DriverSpec, PortSpec};
use io::{Batch, HugePages, Pool, PortId};
use kernel_cache::{AttachError, Hook, KernelCache, Outcome, Sizes, monotonic_ns};
use lab::{Line, LineOptions, Namespace};
use support::{data, frame_between, in_lp, interest, network_packet, port_row};

/// How long the tests wait for what must come.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOPBACK: u32 = 1;

/// Index, address and MTU of a device as the cache wants them.
fn row_of(namespace: &Namespace, device: &str) -> kernel_cache::shared::layout::PortRow {
    let link = namespace
        .links()
        .expect("opens")
        .get(device)
        .expect("is there");
    port_row(link.index, link.mac, link.mtu)
}

/// Gives both ends of the left pair addresses, and returns them: the side's and the node's, IPv4 and IPv6.
fn addresses(line: &Line) -> [(IpAddr, IpAddr); 2] {
    let (left, node) = (&line.left, &line.node);
    let v4 = (left.address(), left.node_address());
    let v6 = (
        "fd00::2".parse().expect("parses"),
        "fd00::1".parse().expect("parses"),
    );
    let sysctl = format!("net/ipv6/conf/{}/disable_ipv6", left.node_device);
    node.set_sysctl(&sysctl, "0").expect("is set");
    let mut links = node.links().expect("opens");
    links
        .add_address(&left.node_device, v4.1, 24)
        .expect("is given");
    links
        .add_address(&left.node_device, v6.1, 64)
        .expect("is given");
    let mut links = left.namespace.links().expect("opens");
    links.add_address(&left.device, v6.0, 64).expect("is given");
    [v4, v6]
}

#[test]
fn sockets_are_answered_at_the_ingress_of_a_veth_device() {
    if !lab::need::root("sockets_are_answered_at_the_ingress_of_a_veth_device") {
        return;
    }
    let line = Line::new("kc", LineOptions::default()).expect("a line");
    let (mut kernel, mut cache) = KernelCache::load(Sizes::of(64)).expect("loads");
    let row = row_of(&line.node, &line.left.node_device);
    let port = line
        .node
        .run(|| kernel.attach(&row, Hook::Ingress))
        .expect("enters")
        .expect("attaches");
    let stored = data("/real/frames", &[42; 1200], 0);
    cache.insert(&stored, monotonic_ns()).expect("is taken");

    for (address, node_address) in addresses(&line) {
        let target = (node_address, 6363);
        let client = line
            .left
            .namespace
            .run(|| UdpSocket::bind((address, 0)))
            .expect("enters")
            .expect("binds");
        client.set_read_timeout(Some(PATIENCE)).expect("sets");
        let mut buffer = [0; 9000];
        for token in [None, Some(&b"token"[..])] {
            let asked = interest("/real/frames", "");
            let request = if token.is_some() {
                in_lp(&asked, token, 0)
            } else {
                asked
            };
            client.send_to(&request, target).expect("sends");
            let (length, from) = client.recv_from(&mut buffer).expect("an answer");
            assert_eq!((from.ip(), from.port()), target);
            let (packet, echoed, _) = network_packet(&buffer[..length]);
            assert_eq!((packet, echoed.as_deref()), (stored.clone(), token));
        }
        // What is not there reaches the socket of the node, unchanged.
        let node = line
            .node
            .run(|| UdpSocket::bind(target))
            .expect("enters")
            .expect("binds");
        node.set_read_timeout(Some(PATIENCE)).expect("sets");
        let unknown = interest("/not/there", "");
        client.send_to(&unknown, target).expect("sends");
        let length = node.recv(&mut buffer).expect("the Interest");
        assert_eq!(buffer[..length], unknown);
    }
    let counts = kernel.outcomes().expect("reads");
    assert_eq!(counts[Outcome::Exact as usize], 4, "{counts:?}");
    assert_eq!(counts[Outcome::Absent as usize], 2, "{counts:?}");
    drop(port);
}

/// Makes a program that sends what a test run gives it into a device.
fn redirect_to(ifindex: u32) -> Program {
    let mut asm = Asm::new();
    asm.mov_imm(Reg::R1, ifindex as i32)
        .mov_imm(Reg::R2, 0)
        .call(Helper::Redirect)
        .exit();
    Program::load_xdp("kc_generate", &asm.finish().expect("assembles")).expect("loads")
}

/// Makes a program that passes everything.
fn pass() -> Program {
    let mut asm = Asm::new();
    asm.exit_with(XdpAction::Pass);
    Program::load_xdp("kc_plain", &asm.finish().expect("assembles")).expect("loads")
}

#[test]
fn frames_born_in_xdp_are_answered_in_the_driver() {
    if !lab::need::root("frames_born_in_xdp_are_answered_in_the_driver") {
        return;
    }
    let line = Line::new("kx", LineOptions::default()).expect("a line");
    let (left, node) = (&line.left, &line.node);
    let (mut kernel, mut cache) = KernelCache::load(Sizes::of(64)).expect("loads");
    let row = row_of(node, &left.node_device);
    let _port = node
        .run(|| kernel.attach(&row, Hook::Native))
        .expect("enters")
        .expect("attaches");
    let taken = node
        .run(|| kernel.attach(&row, Hook::Native))
        .expect("enters");
    assert!(
        matches!(&taken, Err(AttachError::Taken { name, .. }) if name == "tg_kernel_cache"),
        "{taken:?}"
    );
    cache
        .insert(&data("/live", &[1; 1000], 0), monotonic_ns())
        .expect("is taken");

    let out = left
        .namespace
        .links()
        .expect("opens")
        .get(&left.device)
        .expect("is there");
    // A veth device takes frames from XDP only while it has a program of its own.
    let plain = pass();
    let _takes = left
        .namespace
        .run(|| plain.attach_xdp(out.index, AttachMode::Native))
        .expect("enters")
        .expect("attaches");
    let generator = redirect_to(out.index);
    let request = frame_between(left.mac, left.node_mac, &interest("/live", ""));
    left.namespace
        .run(|| generator.run_live(&request, LOOPBACK, 64, 16))
        .expect("enters")
        .expect("runs");
    let until = Instant::now() + PATIENCE;
    loop {
        let counts = kernel.outcomes().expect("reads");
        let back = left
            .namespace
            .links()
            .expect("opens")
            .get(&left.device)
            .expect("is there")
            .counters;
        if counts[Outcome::Exact as usize] == 64 && back.rx_pkts >= out.counters.rx_pkts + 64 {
            break;
        }
        assert!(Instant::now() < until, "{counts:?} {back:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn an_af_xdp_port_gets_what_the_cache_does_not_answer() {
    if !lab::need::root("an_af_xdp_port_gets_what_the_cache_does_not_answer") {
        return;
    }
    let line = Line::new("ka", LineOptions::default()).expect("a line");
    let (left, node) = (&line.left, &line.node);
    let (mut kernel, mut cache) = KernelCache::load(Sizes::of(64)).expect("loads");
    cache
        .insert(&data("/known", &[1; 1000], 0), monotonic_ns())
        .expect("is taken");
    let front = kernel
        .front(&row_of(node, &left.node_device))
        .expect("loads");
    let mut pool = Pool::split(512, 1, 2048, HugePages::Auto).expect("memory");
    let mut pool = pool.remove(0);
    let spec = AfXdpSpec {
        front: Some(front),
        ring_entries: 64,
        place: Place::Native,
        ..AfXdpSpec::new(&left.node_device)
    };
    let spec = PortSpec::new(PortId(0), "test", DriverSpec::AfXdp(spec));
    let region = pool.region();
    let mut port = node
        .run(|| io::port::open(&spec, region, 1))
        .expect("enters")
        .expect("opens");

    let (mut batch, mut received) = (Batch::new(), Vec::new());
    // Gives the kernel frames to fill.
    port.queues[0].rx(&mut pool, &mut batch);
    pool.free_batch(&mut batch);

    let out = row_of(&left.namespace, &left.device);
    let generator = redirect_to(out.ifindex);
    let unknown = frame_between(left.mac, left.node_mac, &interest("/unknown", ""));
    let known = frame_between(left.mac, left.node_mac, &interest("/known", ""));
    for request in [&known, &unknown] {
        left.namespace
            .run(|| generator.run_live(request, LOOPBACK, 8, 8))
            .expect("enters")
            .expect("runs");
    }
    let until = Instant::now() + PATIENCE;
    while received.len() < 8 {
        let counts = kernel.outcomes();
        assert!(Instant::now() < until, "{} {counts:?}", received.len());
        port.queues[0].rx(&mut pool, &mut batch);
        // The side's kernel looks for neighbours, too.
        let frames = batch.iter().map(|frame| frame.data().to_vec());
        received.extend(frames.filter(|frame| frame[12..14] == [0x86, 0x24]));
        pool.free_batch(&mut batch);
    }
    assert!(
        received.iter().all(|frame| *frame == unknown),
        "{received:?}"
    );
    let counts = kernel.outcomes().expect("reads");
    assert_eq!(counts[Outcome::Exact as usize], 8, "{counts:?}");
    assert_eq!(counts[Outcome::Absent as usize], 8, "{counts:?}");
}

#[test]
fn packet_sockets_do_not_get_what_is_answered_at_ingress() {
    if !lab::need::root("packet_sockets_do_not_get_what_is_answered_at_ingress") {
        return;
    }
    let line = Line::new("kp", LineOptions::default()).expect("a line");
    let (left, node) = (&line.left, &line.node);
    let (mut kernel, mut cache) = KernelCache::load(Sizes::of(64)).expect("loads");
    cache
        .insert(&data("/known", &[1; 1000], 0), monotonic_ns())
        .expect("is taken");
    let row = row_of(node, &left.node_device);
    let spec = AfPacketSpec {
        filter: Some(kernel.packet_filter().expect("loads")),
        ..AfPacketSpec::new(&left.node_device)
    };
    let spec = PortSpec::new(PortId(0), "test", DriverSpec::AfPacket(spec));
    let mut pool = Pool::split(512, 1, 2048, HugePages::Auto).expect("memory");
    let mut pool = pool.remove(0);
    let region = pool.region();
    let mut port = node
        .run(|| io::port::open(&spec, region, 1))
        .expect("enters")
        .expect("opens");
    let _attached = node
        .run(|| kernel.attach(&row, Hook::Ingress))
        .expect("enters")
        .expect("attaches");

    let [(address, node_address), _] = addresses(&line);
    let client = left
        .namespace
        .run(|| UdpSocket::bind((address, 0)))
        .expect("enters")
        .expect("binds");
    client.set_read_timeout(Some(PATIENCE)).expect("sets");
    let (known, unknown) = (interest("/known", ""), interest("/unknown", ""));
    let mut buffer = [0; 9000];
    for _ in 0..4 {
        client.send_to(&known, (node_address, 6363)).expect("sends");
        client.recv(&mut buffer).expect("an answer");
    }
    client
        .send_to(&unknown, (node_address, 6363))
        .expect("sends");
    let (mut batch, until) = (Batch::new(), Instant::now() + PATIENCE);
    let mut is_there = false;
    while !is_there {
        assert!(Instant::now() < until, "{:?}", kernel.outcomes());
        port.queues[0].rx(&mut pool, &mut batch);
        for frame in batch.iter() {
            let holds = |packet: &[u8]| frame.data().windows(packet.len()).any(|w| w == packet);
            assert!(!holds(&known), "the node gets what was answered");
            is_there |= holds(&unknown);
        }
        pool.free_batch(&mut batch);
    }
    assert_eq!(
        kernel.outcomes().expect("reads")[Outcome::Exact as usize],
        4
    );
}

/// Set for the child of the next test: the device to attach to.
const CHILD: &str = "KERNEL_CACHE_TEST_DEVICE";

#[test]
fn a_killed_process_leaves_the_port_as_it_was() {
    let test = "a_killed_process_leaves_the_port_as_it_was";
    if let Ok(device) = std::env::var(CHILD) {
        let row = row_of(&Namespace::current().expect("opens"), &device);
        let (mut kernel, _cache) = KernelCache::load(Sizes::of(4)).expect("loads");
        let _port = kernel.attach(&row, Hook::Native).expect("attaches");
        println!("attached");
        std::thread::sleep(PATIENCE * 3);
        return;
    }
    if !lab::need::root(test) {
        return;
    }
    let line = Line::new("kk", LineOptions::default()).expect("a line");
    let device = &line.left.node_device;
    let index = row_of(&line.node, device).ifindex;
    let attached = || {
        line.node
            .run(|| io::af_xdp::attached_xdp(index))
            .expect("enters")
            .expect("asks")
    };
    assert_eq!(attached(), None);
    let mut child: Command = line
        .node
        .command(std::env::current_exe().expect("is known"));
    let mut child = child
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, device)
        .stdout(Stdio::null())
        .spawn()
        .expect("starts");
    let wait = |wanted: bool| {
        let until = Instant::now() + PATIENCE;
        while attached().is_some() != wanted {
            assert!(Instant::now() < until, "attached: {}", !wanted);
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    wait(true);
    child.kill().expect("is killed");
    child.wait().expect("ends");
    wait(false);
    // And another program can come.
    let plain = pass();
    line.node
        .run(|| plain.attach_xdp(index, AttachMode::Native))
        .expect("enters")
        .expect("attaches");
}
