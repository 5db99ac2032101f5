//! What the kernel refuses is tried in order, said, and worked around.

use io::af_xdp::{AfXdpSpec, Copying, Place};
use io::bpf::{AttachMode, Filter, PacketMatch, Program, asm};
use io::{Batch, HugePages, Pool};
use lab::{Line, LineOptions, Namespace};

use crate::support::{close_all, open, pools, ready, wire};

fn open_text(namespace: &Namespace, spec: AfXdpSpec, pool: &Pool) -> String {
    open(namespace, spec, pool.region(), 1)
        .expect_err("is refused")
        .to_string()
}

#[test]
fn veth_is_native_copy_and_the_rest_is_refused_with_reasons() {
    if !ready("veth_is_native_copy_and_the_rest_is_refused_with_reasons") {
        return;
    }
    let line = wire("xm", 1);
    let mut pool = pools(1024, 1).remove(0);
    let device = &line.left.node_device;
    let mut port = open(&line.node, AfXdpSpec::new(device), pool.region(), 1).unwrap();
    assert!(
        port.mode.starts_with("native copy need-wakeup"),
        "{}",
        port.mode
    );
    assert!(
        port.refused[0].contains("native zero-copy: "),
        "{:?}",
        port.refused
    );
    assert!(port.refused[0].contains("EOPNOTSUPP"), "{:?}", port.refused);
    assert!(port.refused[1].contains("busy poll"), "{:?}", port.refused);
    assert_eq!(port.queues[0].capabilities().refused, port.refused);
    assert_eq!((port.mtu, port.mac), (1500, line.left.node_mac));
    close_all(&mut port.queues, &mut pool);
    drop(port);

    let zero_copy = AfXdpSpec {
        copying: Copying::ZeroCopy,
        ..AfXdpSpec::new(device)
    };
    let text = open_text(&line.node, zero_copy, &pool);
    assert!(
        text.contains("native zero-copy") && !text.contains("generic"),
        "{text}"
    );
    assert_eq!(pool.available(), pool.capacity());
}

#[test]
fn loopback_has_no_native_mode_and_falls_back() {
    if !ready("loopback_has_no_native_mode_and_falls_back") {
        return;
    }
    let namespace = Namespace::new("xl").unwrap();
    let mut pool = Pool::new(1024, 4096, HugePages::Auto).unwrap();
    let text = open_text(&namespace, AfXdpSpec::new("lo"), &pool);
    assert!(text.contains("MTU of lo, 65536, is too large"), "{text}");
    namespace.links().unwrap().set_mtu("lo", 1500).unwrap();
    let mut port = open(&namespace, AfXdpSpec::new("lo"), pool.region(), 1).unwrap();
    assert!(port.mode.starts_with("generic copy"), "{}", port.mode);
    assert!(
        port.refused[0].starts_with("native: attach: "),
        "{:?}",
        port.refused
    );
    close_all(&mut port.queues, &mut pool);
}

#[test]
fn an_mtu_too_large_for_native_mode_is_said() {
    if !ready("an_mtu_too_large_for_native_mode_is_said") {
        return;
    }
    let options = LineOptions {
        mtu: 3600,
        ..LineOptions::default()
    };
    let line = Line::new("xu", options).unwrap();
    let device = &line.left.node_device;
    let small = pools(256, 1).remove(0);
    let text = open_text(&line.node, AfXdpSpec::new(device), &small);
    assert!(
        text.contains("3600") && text.contains("frame_bytes to 4096"),
        "{text}"
    );

    let mut large = Pool::new(256, 4096, HugePages::Auto).unwrap();
    let mut port = open(&line.node, AfXdpSpec::new(device), large.region(), 1).unwrap();
    assert!(port.mode.starts_with("generic"), "{}", port.mode);
    assert!(
        port.refused[0].contains("MTU is too large"),
        "{:?}",
        port.refused
    );
    close_all(&mut port.queues, &mut large);
}

#[test]
fn a_program_of_somebody_else_is_named() {
    if !ready("a_program_of_somebody_else_is_named") {
        return;
    }
    let line = wire("xa", 1);
    let device = &line.left.node_device;
    let index = line.node.links().unwrap().get(device).unwrap().index;
    let mut pass = asm::Asm::new();
    pass.exit_with(asm::XdpAction::Pass);
    let program = Program::load_xdp("somebody", &pass.finish().unwrap()).unwrap();
    let attach = || program.attach_xdp(index, AttachMode::Native);
    let link = line.node.run(attach).unwrap().unwrap();
    let pool = pools(256, 1).remove(0);
    let text = open_text(&line.node, AfXdpSpec::new(device), &pool);
    assert!(
        text.contains("somebody, id ") && text.contains("stop the process"),
        "{text}"
    );
    drop(link);
    let mut pool = pool;
    let mut port = open(&line.node, AfXdpSpec::new(device), pool.region(), 1).unwrap();
    close_all(&mut port.queues, &mut pool);
}

#[test]
fn a_queue_that_is_in_use_is_said() {
    if !ready("a_queue_that_is_in_use_is_said") {
        return;
    }
    let line = wire("xb", 1);
    let mut pool = pools(1024, 1).remove(0);
    let device = &line.left.node_device;
    let mut port = open(&line.node, AfXdpSpec::new(device), pool.region(), 1).unwrap();
    let other = pools(1024, 1).remove(0);
    let text = open_text(&line.node, AfXdpSpec::new(device), &other);
    assert!(text.contains("tg_redirect, id "), "{text}");
    close_all(&mut port.queues, &mut pool);
}

#[test]
fn missing_interfaces_and_bad_rings_are_said() {
    if !ready("missing_interfaces_and_bad_rings_are_said") {
        return;
    }
    let line = wire("xn", 1);
    let pool = pools(256, 1).remove(0);
    let text = open_text(&line.node, AfXdpSpec::new("nowhere"), &pool);
    assert!(text.contains("no interface nowhere"), "{text}");
    let odd = AfXdpSpec {
        ring_entries: 1000,
        ..AfXdpSpec::new(&line.left.node_device)
    };
    let text = open_text(&line.node, odd, &pool);
    assert!(text.contains("power of two"), "{text}");
}

#[test]
fn queues_without_a_worker_are_cut_and_come_back() {
    if !ready("queues_without_a_worker_are_cut_and_come_back") {
        return;
    }
    let line = wire("xw", 4);
    let device = &line.left.node_device;
    let channels = || {
        line.node
            .run(|| {
                io::ethtool::Ethtool::open(device)
                    .unwrap()
                    .channels()
                    .unwrap()
            })
            .unwrap()
            .rx_queues()
    };
    assert_eq!(channels(), 4);
    let mut pool = pools(1024, 1).remove(0);
    match open(&line.node, AfXdpSpec::new(device), pool.region(), 1) {
        Ok(mut port) => {
            assert_eq!((port.queues.len(), channels()), (1, 1));
            close_all(&mut port.queues, &mut pool);
            drop(port);
            assert_eq!(channels(), 4);
        }
        Err(error) => {
            // The peer sends on four queues: native XDP needs as many on this side.
            assert!(error.to_string().contains("use more workers"), "{error}");
            assert_eq!(channels(), 4);
        }
    }
}

#[test]
fn the_filter_leaves_the_rest_to_the_kernel() {
    let name = "the_filter_leaves_the_rest_to_the_kernel";
    if !ready(name) || !lab::need::program(name, "ping") {
        return;
    }
    let line = wire("xg", 1);
    let device = &line.left.node_device;
    let address = std::net::Ipv4Addr::new(10, 9, 0, 77).into();
    let mut links = line.node.links().unwrap();
    links.add_address(device, address, 24).unwrap();
    let mut pool = pools(1024, 1).remove(0);
    let spec = AfXdpSpec {
        filter: Filter::Only(vec![PacketMatch::UdpDestination(6363)]),
        place: Place::Native,
        ..AfXdpSpec::new(device)
    };
    let mut port = open(&line.node, spec, pool.region(), 1).unwrap();
    let mut batch = Batch::new();
    assert_eq!(port.queues[0].rx(&mut pool, &mut batch), 0);
    // The node's kernel answers ARP and ping on the device.
    let ping = line
        .left
        .namespace
        .command("ping")
        .args(["-q", "-c", "3", "-i", "0.05", "-W", "2", "10.9.0.77"])
        .stdout(std::process::Stdio::null())
        .status()
        .expect("ping starts");
    assert!(ping.success(), "the kernel got nothing");
    let send = || {
        let socket = std::net::UdpSocket::bind("10.9.0.1:0").unwrap();
        socket.send_to(b"for the kernel", "10.9.0.77:9").unwrap();
        socket.send_to(b"for the node", "10.9.0.77:6363").unwrap();
    };
    line.left.namespace.run(send).unwrap();
    crate::support::until("the datagram", std::time::Duration::from_secs(2), || {
        port.queues[0].rx(&mut pool, &mut batch) > 0
    });
    assert_eq!(batch.len(), 1);
    assert!(batch[0].data().ends_with(b"for the node"));
    pool.free_batch(&mut batch);
    close_all(&mut port.queues, &mut pool);
}
