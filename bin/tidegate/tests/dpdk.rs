//! A node whose ports are devices of DPDK, between two kernels.
#![cfg(feature = "dpdk")]

mod common;
#[path = "common/gateway.rs"]
#[expect(
    dead_code,
    reason = "some of it serves the tests over kernel interfaces"
)]
mod gateway;

use std::process::{Child, Stdio};
use std::time::Duration;

use common::{finish, wait_until};
use lab::peer::testpmd;
use lab::vdev::Vdev;
use lab::{Line, LineOptions, need};
use rustix::process::{Pid, Signal, kill_process};

struct Node(Child);

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a router between both sides of the line over DPDK devices named after `driver`, pings through
/// it, and ends it in order.
fn routes_ping(test: &str, driver: &str) {
    if !need::root(test) || !need::program(test, "ping") {
        return;
    }
    let line = Line::new("tgd", LineOptions::default()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("control.sock");
    let file = directory.path().join("node.toml");
    let port = |name: &str, device: &str, address| {
        format!(
            "[[port]]\nname = \"{name}\"\ndriver = \"dpdk\"\ndevice = \"{driver}_{name},iface={device}\"\n\
             addresses = [\"{address}/24\"]\n"
        )
    };
    let text = format!(
        "[node]\nframe_bytes = 4096\ncontrol_socket = \"{}\"\n{}{}",
        socket.display(),
        port("left", &line.left.node_device, line.left.node_address()),
        port("right", &line.right.node_device, line.right.node_address()),
    );
    std::fs::write(&file, text).unwrap();
    let mut command = line.node.command(env!("CARGO_BIN_EXE_tidegate"));
    let child = command
        .args(["run", "-c"])
        .arg(&file)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut node = Node(child);
    assert!(wait_until(Duration::from_secs(20), || socket.exists()));
    let right = line.right.address().to_string();
    let ping = ["-c", "20", "-i", "0.01", "-W", "2", &right];
    let answered = wait_until(Duration::from_secs(10), || {
        let run = finish(line.left.namespace.command("ping").args(ping));
        run.stdout.contains("20 received")
    });
    assert!(answered, "20 pings through {driver}");
    let mut stats = line.node.command(env!("CARGO_BIN_EXE_tidegate"));
    let stats = finish(stats.args(["stats", "--json", "--socket"]).arg(&socket));
    assert_eq!(stats.code, 0, "{}", stats.stderr);
    assert!(
        stats.stdout.contains("\"driver\":\"dpdk\"")
            || stats.stdout.contains("\"driver\": \"dpdk\"")
    );
    assert!(stats.stdout.contains(driver), "{}", stats.stdout);
    assert!(stats.stdout.contains("rx_good_packets"), "{}", stats.stdout);
    let pid = Pid::from_raw(node.0.id() as i32).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    let mut code = None;
    assert!(wait_until(Duration::from_secs(20), || {
        code = node.0.try_wait().unwrap().map(|status| status.code());
        code.is_some()
    }));
    assert_eq!(code, Some(Some(0)), "it drains and ends in order");
}

#[test]
fn routes_over_net_af_packet() {
    routes_ping("routes_over_net_af_packet", "net_af_packet");
}

#[test]
fn routes_over_net_af_xdp() {
    routes_ping("routes_over_net_af_xdp", "net_af_xdp");
}

/// The firewall's test over a kind of device.
fn guards(test: &str, kind: Vdev) {
    if !kind.has_relay() || need::program(test, testpmd::PROGRAM) {
        gateway::guards(test, Some(kind));
    }
}

#[test]
fn guards_over_net_af_packet() {
    guards("guards_over_net_af_packet", Vdev::AfPacket);
}

#[test]
fn guards_over_net_af_xdp() {
    guards("guards_over_net_af_xdp", Vdev::AfXdp);
}

#[test]
fn guards_over_net_tap() {
    guards("guards_over_net_tap", Vdev::Tap);
}

#[test]
fn guards_over_net_memif() {
    guards("guards_over_net_memif", Vdev::Memif);
}

#[test]
fn guards_over_net_vhost() {
    guards("guards_over_net_vhost", Vdev::Vhost);
}
