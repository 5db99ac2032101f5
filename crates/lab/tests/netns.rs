//! The namespaces do what the lab relies on, and vanish.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use lab::{Line, LineOptions, Namespace, Offload, VethEnd, need};

#[test]
fn a_line_carries_packets_when_the_kernel_forwards() {
    if !need::root("a_line_carries_packets_when_the_kernel_forwards") {
        return;
    }
    let line = Line::new("tgl", LineOptions::default()).unwrap();
    let mut node = line.node.links().unwrap();
    for side in [&line.left, &line.right] {
        node.add_address(&side.node_device, side.node_address(), 24)
            .unwrap();
    }
    line.node.set_sysctl("net/ipv4/ip_forward", "1").unwrap();
    let receiver = line
        .right
        .namespace
        .run(|| UdpSocket::bind("10.2.0.2:7").unwrap())
        .unwrap();
    let sender = line
        .left
        .namespace
        .run(|| UdpSocket::bind("10.1.0.2:0").unwrap())
        .unwrap();
    receiver
        .set_read_timeout(Some(Duration::from_secs(2)))
        .unwrap();
    sender.send_to(b"over the line", "10.2.0.2:7").unwrap();
    let mut buffer = [0; 64];
    let (length, from) = receiver.recv_from(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"over the line");
    assert_eq!(from.ip(), line.left.address());
    let counters = node.get(&line.left.node_device).unwrap().counters;
    assert!(counters.rx_pkts > 0, "{counters:?}");
}

#[test]
fn veth_ends_have_what_was_asked_for() {
    if !need::root("veth_ends_have_what_was_asked_for") {
        return;
    }
    let (a, b) = (Namespace::new("a").unwrap(), Namespace::new("b").unwrap());
    let mac = [2, 0, 0, 0, 0, 9];
    let mut links = a.links().unwrap();
    links
        .add_veth(
            &VethEnd::new("tga", &a).mac(mac).mtu(2000).queues(2),
            &VethEnd::new("tgb", &b).queues(2),
        )
        .unwrap();
    let link = links.get("tga").unwrap();
    assert_eq!((link.mac, link.mtu), (mac, 2000));
    assert_eq!((link.rx_queues, link.tx_queues), (2, 2));
    assert!(!link.up && !link.carrier);
    b.links().unwrap().set_up("tgb").unwrap();
    links
        .set_up_and_wait("tga", Duration::from_secs(1))
        .unwrap();
    assert_eq!(
        links
            .list()
            .unwrap()
            .iter()
            .filter(|l| l.name == "tgb")
            .count(),
        0,
        "the peer is in the other namespace"
    );
    links.set_mtu("tga", 1400).unwrap();
    links.set_mac("tga", [2, 0, 0, 0, 0, 8]).unwrap();
    let link = links.get("tga").unwrap();
    assert_eq!((link.mac[5], link.mtu), (8, 1400));
    links.move_to("tga", &b).unwrap();
    assert!(links.get("tga").is_err());
    let error = links
        .add_veth(&VethEnd::new("lo", &a), &VethEnd::new("tgc", &b))
        .unwrap_err();
    assert!(
        error.to_string().contains("make the veth pair lo"),
        "{error}"
    );
    b.links().unwrap().remove("tga").unwrap();
    assert!(b.links().unwrap().get("tgb").is_err(), "its peer goes too");
}

#[test]
fn receiving_moves_to_a_thread_of_the_receivers() {
    if !need::root("receiving_moves_to_a_thread_of_the_receivers") {
        return;
    }
    let line = Line::new("tgn", LineOptions::default()).unwrap();
    let device = &line.left.node_device;
    let threads = line.node.receive_on_cpu(device, 0).unwrap();
    assert_eq!(threads.len(), 1);
    let name = std::fs::read_to_string(format!("/proc/{}/comm", threads[0])).unwrap();
    assert!(name.starts_with("napi/tgn"), "{name}");
    line.node
        .set_offload(device, Offload::GenericReceive, false)
        .unwrap();
}

#[test]
fn a_bridge_joins_two_wires() {
    if !need::root("a_bridge_joins_two_wires") {
        return;
    }
    let line = Line::new("tgb", LineOptions::default()).unwrap();
    let mut node = line.node.links().unwrap();
    node.add_bridge("br0").unwrap();
    for side in [&line.left, &line.right] {
        node.set_bridge(&side.node_device, "br0").unwrap();
    }
    node.set_up_and_wait("br0", Duration::from_secs(2)).unwrap();
    // Same network on both sides now: give the right one an address in the left network.
    line.right
        .namespace
        .links()
        .unwrap()
        .add_address(&line.right.device, "10.1.0.3".parse().unwrap(), 24)
        .unwrap();
    let receiver = line
        .right
        .namespace
        .run(|| UdpSocket::bind("10.1.0.3:7").unwrap())
        .unwrap();
    receiver
        .set_read_timeout(Some(Duration::from_secs(2)))
        .unwrap();
    line.left
        .namespace
        .run(|| {
            let socket = UdpSocket::bind("10.1.0.2:0").unwrap();
            socket.send_to(b"x", "10.1.0.3:7").unwrap();
        })
        .unwrap();
    assert_eq!(receiver.recv_from(&mut [0; 8]).unwrap().0, 1);
}

#[test]
fn a_command_sees_its_namespace_and_dies_with_its_thread() {
    if !need::root("a_command_sees_its_namespace_and_dies_with_its_thread") {
        return;
    }
    let line = Line::new("tgc", LineOptions::default()).unwrap();
    let output = line
        .node
        .command("ls")
        .arg("/sys/class/net")
        .output()
        .unwrap();
    let listed = String::from_utf8(output.stdout).unwrap();
    assert!(listed.contains(&line.left.node_device), "{listed}");
    let pid = std::thread::scope(|scope| {
        scope
            .spawn(|| line.node.command("sleep").arg("60").spawn().unwrap().id())
            .join()
            .unwrap()
    });
    let stat = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let end = Instant::now() + Duration::from_secs(5);
    while !stat().is_empty() && !stat().contains(" Z ") {
        assert!(Instant::now() < end, "the child outlived its thread");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Not a test by itself: what the next test runs, first as an ordinary user, then as root of a user
/// namespace of that user.
#[test]
fn inner_line_as_a_user() {
    match std::env::var("TIDEGATE_TEST_STAGE").as_deref() {
        Ok("user") => {
            assert!(!lab::netns::is_root());
            assert!(Namespace::new("refused").is_err(), "a user may not, so far");
            let mut again = again(&std::env::current_exe().unwrap(), "inside");
            lab::netns::start_in_user_namespace(&mut again);
            assert!(again.status().unwrap().success());
        }
        Ok("inside") => {
            let line = Line::new("tgu", LineOptions::default()).unwrap();
            assert_eq!(line.node.links().unwrap().list().unwrap().len(), 3);
            println!("made a line as a user");
        }
        _ => {}
    }
}

fn again(program: &std::path::Path, stage: &str) -> std::process::Command {
    let mut command = std::process::Command::new(program);
    command
        .args(["--exact", "inner_line_as_a_user", "--nocapture"])
        .env("TIDEGATE_TEST_STAGE", stage)
        .current_dir("/");
    command
}

#[test]
fn an_ordinary_user_makes_a_line_in_a_user_namespace() {
    use std::os::unix::process::CommandExt;
    let test = "an_ordinary_user_makes_a_line_in_a_user_namespace";
    if !need::root(test) {
        return;
    }
    // A copy, since the build directory may be closed to other users.
    let program = std::env::temp_dir().join(format!("tidegate-lab-netns-{}", std::process::id()));
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let output = again(&program, "user").uid(65534).gid(65534).output();
    std::fs::remove_file(&program).unwrap();
    let output = output.unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("made a line"),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
