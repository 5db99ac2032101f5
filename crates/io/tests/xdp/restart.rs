//! A process that is killed leaves nothing that blocks the next one.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use io::af_xdp::{AfXdpSpec, attached_xdp};

use crate::support::{Forwarder, close_all, open, pools, ready, wire};

/// Set in the process that is to be killed: the devices to forward between.
const CHILD: &str = "TIDEGATE_TEST_XDP_CHILD";

/// Not a test of its own: what the killed process runs.
#[test]
fn child_forwards_until_it_is_killed() {
    let Ok(devices) = std::env::var(CHILD) else {
        return;
    };
    let here = lab::Namespace::current().unwrap();
    let pools = pools(4096, 1);
    let port = |device: &str| open(&here, AfXdpSpec::new(device), pools[0].region(), 1).unwrap();
    let (left, right) = devices.split_once(',').unwrap();
    let (left, right) = (port(left), port(right));
    let _forwarder = Forwarder::start(left, right, pools);
    println!("\nforwarding");
    std::thread::sleep(Duration::from_secs(30));
}

#[test]
fn after_kill_9_the_next_start_is_quick() {
    if !ready("after_kill_9_the_next_start_is_quick") {
        return;
    }
    let line = wire("xr", 1);
    let devices = [&line.left.node_device, &line.right.node_device];
    let mut child = line
        .node
        .command(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "restart::child_forwards_until_it_is_killed",
            "--nocapture",
        ])
        .env(CHILD, devices.map(String::as_str).join(","))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let mut lines = output.lines().map_while(Result::ok);
    assert!(
        lines.any(|line| line == "forwarding"),
        "the child did not start"
    );
    let index = line.node.links().unwrap().get(devices[0]).unwrap().index;
    let attached = || line.node.run(|| attached_xdp(index)).unwrap().unwrap();
    assert!(attached().is_some());

    let start = Instant::now();
    child.kill().unwrap();
    child.wait().unwrap();
    let died = start.elapsed();
    let mut pool = pools(4096, 1).remove(0);
    let mapped = start.elapsed();
    let mut ports =
        devices.map(|device| open(&line.node, AfXdpSpec::new(device), pool.region(), 1).unwrap());
    let took = start.elapsed();
    println!(
        "killed and restarted in {took:?} (gone after {died:?}, memory after {mapped:?}): {}",
        ports[0].mode
    );
    assert!(took < Duration::from_secs(1), "{took:?}");
    let programs = devices.map(|device| {
        let index = line.node.links().unwrap().get(device).unwrap().index;
        let attached = line.node.run(|| attached_xdp(index)).unwrap().unwrap();
        attached.map(|attached| attached.program_id)
    });
    // Of each further one the kernel would take a grace period to be rid.
    assert!(
        programs[0].is_some() && programs[0] == programs[1],
        "{programs:?}"
    );
    assert!(ports[0].mode.starts_with("native"), "{}", ports[0].mode);
    for port in &mut ports {
        close_all(&mut port.queues, &mut pool);
    }
    drop(ports);
    assert_eq!(attached(), None, "closing detaches");
}

#[test]
fn a_port_opens_again_right_after_closing() {
    if !ready("a_port_opens_again_right_after_closing") {
        return;
    }
    let line = wire("xs", 1);
    let mut pool = pools(1024, 1).remove(0);
    for _ in 0..10 {
        let spec = AfXdpSpec::new(&line.left.node_device);
        let mut port = open(&line.node, spec, pool.region(), 1).unwrap();
        assert!(port.mode.starts_with("native copy"), "{}", port.mode);
        close_all(&mut port.queues, &mut pool);
        assert_eq!(pool.available(), pool.capacity());
    }
}
