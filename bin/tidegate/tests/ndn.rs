//! The named-data forwarder: `tidegate run` with `[ndn]`, the tools of `tidegate ndn`, and nodes over Ethernet.

mod common;
#[path = "common/ndn_node.rs"]
mod ndn_node;

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{finish, tidegate, wait_until};
use lab::{Line, LineOptions, need};
use ndn_node::{LOOPBACK, Node, PATIENCE, Process, bytes, channel};
use serde_json::Value;

/// Serves a file and fetches it by each transport, then from the content store alone, until it is erased.
fn segmented_fetch(workers: &str, megabytes: usize) {
    let directory = tempfile::tempdir().unwrap();
    let node = Node::start(directory.path(), None, workers, LOOPBACK);
    let original = bytes(megabytes * 1_000_000);
    let segments = original.len().div_ceil(8000) as u64;
    let file = directory.path().join("original");
    std::fs::write(&file, &original).unwrap();
    let (server, versioned) = node.serve(&["put", "/t/file", file.to_str().unwrap()], None);
    node.get("/t/file", &original);
    drop(server);
    let before = node.json(&["cs", "info"])["hits"].as_u64().unwrap();
    for scheme in ["unix", "tcp4", "udp4"] {
        let uri = channel(&node, scheme);
        let copy = directory.path().join("copy");
        let mut command = tidegate();
        command.args(["ndn", "--transport", &uri, "get", &versioned, "-o"]);
        let run = finish(command.arg(&copy));
        assert_eq!(run.code, 0, "{uri}: {}", run.stderr);
        assert!(std::fs::read(&copy).unwrap() == original, "by {uri}");
    }
    // The figures count as fresh for a second, as NFD's.
    let hits = || node.json(&["cs", "info"])["hits"].as_u64().unwrap();
    let are_counted = wait_until(PATIENCE, || hits() >= before + 3 * segments);
    assert!(are_counted, "{} hits after {before}", hits());
    let erased = node.json(&["cs", "erase", "/t/file"]);
    assert!(erased["erased"].as_u64().unwrap() >= segments, "{erased}");
    let gone = node.run(&["peek", "-P", "/t/file", "-l", "300"]);
    assert_eq!(gone.code, 5, "{}", gone.stderr);
    assert!(
        gone.stderr.contains("no Data for /t/file"),
        "{}",
        gone.stderr
    );
}

#[test]
fn a_file_by_unix_tcp_and_udp() {
    segmented_fetch("", 4);
}

#[test]
fn a_file_over_two_workers() {
    let test = "a_file_over_two_workers";
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    if need::need(test, "two CPUs", cpus >= 2) {
        segmented_fetch("cpus = [0, 1]\n", 4);
    }
}

#[test]
fn fifty_megabytes() {
    let directory = tempfile::tempdir().unwrap();
    let node = Node::start(directory.path(), None, "", LOOPBACK);
    let original = bytes(50_000_000);
    let (_server, _) = node.serve(&["put", "/t/large"], Some(&original));
    node.get("/t/large", &original);
}

#[test]
fn management_does_what_nfdc_asks() {
    let directory = tempfile::tempdir().unwrap();
    let more = format!(
        "{LOOPBACK}cache_packets = 1000\n[[ndn_route]]\nprefix = \"/far\"\nface = \"udp4://127.0.0.1:9\"\ncost = 7\n\
         [[ndn_strategy]]\nprefix = \"/far\"\nstrategy = \"multicast\"\n"
    );
    let node = Node::start(directory.path(), None, "", &more);
    // What the configuration says is there.
    let routes = node.json(&["route", "list"]);
    assert_eq!(routes[0]["prefix"], "/far");
    assert_eq!(routes[0]["cost"], 7);
    assert_eq!(routes[0]["origin"], 255);
    let chosen = node.json(&["strategy", "show", "/far/away"]);
    let strategy = chosen[0]["strategy"].as_str().unwrap();
    assert!(
        strategy.starts_with("/localhost/nfd/strategy/multicast"),
        "{strategy}"
    );

    // Events tell of faces as they come and go.
    let mut listener = node
        .command(&["--json", "face", "events", "-n", "1000"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let pending = || node.json(&["status"])["pit_entries"].as_u64().unwrap();
    assert!(wait_until(PATIENCE, || pending() >= 1));
    let created = node.json(&["face", "create", "udp://127.0.0.1:10", "--mtu", "1300"]);
    let face = created["face_id"].as_u64().unwrap().to_string();
    assert_eq!(created["remote"], "udp4://127.0.0.1:10");
    let mut events = BufReader::new(listener.stdout.take().unwrap()).lines();
    let mut event = || -> Value { serde_json::from_str(&events.next().unwrap().unwrap()).unwrap() };
    // Other faces are those of the tools, one a command.
    let is_heard = (0..20).any(|_| {
        let event = event();
        event["event"] == "created" && event["remote"] == "udp4://127.0.0.1:10"
    });
    assert!(is_heard, "the new face is among the next events");
    let _listener = Process(listener);

    let shown = node.json(&["face", "show", &face]);
    assert_eq!(
        (&shown["mtu"], &shown["persistency"]),
        (&1300.into(), &"persistent".into())
    );
    let twice = node.run(&["face", "create", "udp://127.0.0.1:10"]);
    assert_eq!(twice.code, 1, "{}", twice.stderr);
    assert!(twice.stderr.contains("409"), "{}", twice.stderr);
    node.ok(&["route", "add", "/a", "udp://127.0.0.1:10", "--cost", "5"]);
    let fib = node.json(&["route", "fib"]);
    let entry = fib
        .as_array()
        .unwrap()
        .iter()
        .find(|entry| entry["prefix"] == "/a");
    assert_eq!(entry.unwrap()["next_hops"][0]["cost"], 5);
    node.ok(&["route", "remove", "/a", &face]);
    assert_eq!(node.run(&["route", "show", "/a"]).code, 5);
    node.ok(&["face", "destroy", &face]);
    // A list counts as fresh for a second, as NFD's.
    let mut gone = node.run(&["face", "destroy", &face]);
    let is_gone = wait_until(PATIENCE, || {
        gone = node.run(&["face", "destroy", &face]);
        gone.code == 5
    });
    assert!(is_gone, "{}", gone.stderr);
    assert!(gone.stderr.contains("help:"), "{}", gone.stderr);

    node.ok(&["strategy", "set", "/a", "asf"]);
    node.ok(&["strategy", "unset", "/a"]);
    let unknown = node.run(&["strategy", "set", "/a", "fastest"]);
    assert_eq!(unknown.code, 5, "{}", unknown.stderr);
    node.ok(&["cs", "config", "--capacity", "500", "--admit", "off"]);
    let info = node.json(&["cs", "info"]);
    assert_eq!(
        (&info["capacity"], &info["admit"]),
        (&500.into(), &"off".into())
    );
    for wrong in [
        &["face", "create", "127.0.0.1"][..],
        &["face", "create", "quic://127.0.0.1"],
    ] {
        assert_eq!(node.run(wrong).code, 2, "{wrong:?}");
    }
    // The node's own statistics know of it.
    let socket = directory.path().join("control.sock");
    let stats = finish(
        tidegate()
            .args(["--json", "stats", "--socket"])
            .arg(&socket),
    );
    let stats: Value = serde_json::from_str(&stats.stdout).unwrap();
    assert!(
        stats["ndn"]["fib_prefixes"].as_u64().unwrap() >= 2,
        "{}",
        stats["ndn"]
    );
}

#[test]
fn ping_peek_and_poke_by_each_transport() {
    let directory = tempfile::tempdir().unwrap();
    let node = Node::start(directory.path(), None, "", LOOPBACK);
    for (index, scheme) in ["unix", "tcp4", "udp4"].iter().enumerate() {
        let uri = channel(&node, scheme);
        let prefix = format!("/p{index}");
        let mut server = tidegate();
        server.args(["ndn", "--transport", &uri, "pingserver", &prefix]);
        let _server = Process(server.stderr(Stdio::null()).spawn().unwrap());
        let ping = || {
            node.run(&[
                "--json", "ping", &prefix, "-c", "3", "-i", "1", "-w", "2000",
            ])
        };
        let mut last = ping();
        assert!(wait_until(PATIENCE, || {
            last = ping();
            last.code == 0
        }));
        let result: Value = serde_json::from_str(&last.stdout).unwrap();
        assert!(result["received"].as_u64().unwrap() >= 1, "{result}");
        assert!(result["rtt_us"]["p50"].as_u64().unwrap() > 0, "{result}");
    }
    let mut poke = node.command(&["poke", "/greeting", "-x", "60000"]);
    let mut poke = poke.stdin(Stdio::piped()).spawn().unwrap();
    poke.stdin.take().unwrap().write_all(b"hello").unwrap();
    let mut said = String::new();
    assert!(wait_until(PATIENCE, || {
        said = node.run(&["peek", "/greeting", "-l", "500"]).stdout;
        said == "hello"
    }));
    assert!(poke.wait().unwrap().success());
    // Nobody serves it any more; a cache does.
    assert_eq!(node.ok(&["peek", "/greeting"]), "hello");
    let nobody = node.run(&["peek", "/nobody"]);
    assert_eq!(nobody.code, 5, "{}", nobody.stderr);
    assert!(nobody.stderr.contains("NoRoute"), "{}", nobody.stderr);
}

#[test]
fn a_killed_node_answers_from_its_disk_whose_end_is_torn() {
    let directory = tempfile::tempdir().unwrap();
    let more = format!(
        "{LOOPBACK}\ncache_packets = 64\ncache_disk = \"{}/cache\"\ncache_disk_bytes = 16777216\n\
         cache_disk_sync_s = 1\n",
        directory.path().display()
    );
    // Text, as `peek` prints it.
    let file: Vec<u8> = (0..2_u32 << 20).map(|at| b'a' + (at % 23) as u8).collect();
    let name = {
        let node = Node::start(directory.path(), None, "", &more);
        let path = directory.path().join("original");
        std::fs::write(&path, &file).unwrap();
        let (_server, name) = node.serve(&["put", "/disk", path.to_str().unwrap()], None);
        node.get("/disk", &file);
        let written = |wanted: u64| {
            let stats = node.stats();
            stats["ndn"]["store"]["disk"]["written"].as_u64() >= Some(wanted)
        };
        assert!(wait_until(PATIENCE, || written(100)), "{}", node.stats());
        name
        // SIGKILL: nothing is said or closed.
    };
    // And the end of the file is gone, in the middle of a packet.
    let log = directory.path().join("cache");
    let log = std::fs::OpenOptions::new().write(true).open(log).unwrap();
    let length = log.metadata().unwrap().len();
    log.set_len(length - 1000).unwrap();
    let node = Node::start(directory.path(), None, "", &more);
    let found = node.stats()["ndn"]["store"]["disk"]["recovered"].as_u64();
    assert!(found >= Some(90), "{found:?}");
    assert_eq!(
        node.stats()["ndn"]["store"]["disk"]["cut"].as_u64(),
        Some(1)
    );
    // Nobody serves it any more.
    let first = finish(&mut node.command(&["peek", &format!("{name}/seg=0")]));
    assert_eq!(first.code, 0, "{}", first.stderr);
    let read = node.stats()["ndn"]["store"]["disk"]["found"].as_u64();
    assert_eq!(read, Some(1));
}

/// A node that is told to stop writes what is in memory to its disk; what is erased is gone from there too.
#[test]
fn a_stopped_node_has_all_on_disk_but_what_was_erased() {
    let directory = tempfile::tempdir().unwrap();
    let more = format!(
        "{LOOPBACK}\ncache_packets = 4096\ncache_disk = \"{}/cache\"\ncache_disk_bytes = 16777216\n",
        directory.path().display()
    );
    // Text, as `peek` prints it.
    let file: Vec<u8> = (0..1_u32 << 20).map(|at| b'a' + (at % 23) as u8).collect();
    let stop = |mut node: Node| {
        let process = &mut node.process.0;
        let mut term = Command::new("kill");
        assert!(
            term.arg(process.id().to_string())
                .status()
                .unwrap()
                .success()
        );
        let ended = || process.try_wait().unwrap().is_some();
        assert!(wait_until(PATIENCE, ended), "the node does not stop");
    };
    let fetch_all = |node: &Node, name: &str| {
        let last = finish(&mut node.command(&["peek", &format!("{name}/seg=2")]));
        last.code
    };
    let (name, other) = {
        let node = Node::start(directory.path(), None, "", &more);
        let info = node.json(&["cs", "info"]);
        assert_eq!(
            info["disk"]["disk_bytes"].as_u64(),
            Some(16 << 20),
            "{info}"
        );
        let (_server, name) = node.serve(&["put", "/kept"], Some(&file));
        let (_other, other) = node.serve(&["put", "/erased"], Some(&file));
        node.get("/kept", &file);
        node.get("/erased", &file);
        assert_eq!(
            node.json(&["cs", "info"])["disk"]["written"].as_u64(),
            Some(0)
        );
        stop(node);
        (name, other)
    };
    {
        let node = Node::start(directory.path(), None, "", &more);
        let info = node.json(&["cs", "info"]);
        assert!(info["disk"]["recovered"].as_u64() >= Some(260), "{info}");
        assert!(node.ok(&["cs", "info"]).contains("recovered"));
        // Memory is empty: it is all on the disk.
        assert_eq!(info["packets"].as_u64(), Some(0), "{info}");
        let erased = node.json(&["cs", "erase", "/erased"]);
        assert_eq!(erased["erased"].as_u64(), Some(0), "{erased}");
        assert_eq!(fetch_all(&node, &name), 0);
        assert_ne!(fetch_all(&node, &other), 0);
        stop(node);
    }
    let node = Node::start(directory.path(), None, "", &more);
    assert_eq!(fetch_all(&node, &name), 0);
    assert_ne!(fetch_all(&node, &other), 0);
}

/// A full disk costs packets on disk, which are counted, and nothing else: then, and at the next start.
#[test]
fn a_full_disk_does_not_stop_a_node() {
    if !need::root("a_full_disk_does_not_stop_a_node") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mount = Mounted::new(directory.path().join("small"), "4m");
    let more = format!(
        "{LOOPBACK}\ncache_packets = 64\ncache_disk = \"{}/cache\"\ncache_disk_bytes = 16777216\n\
         cache_disk_sync_s = 1\n",
        mount.0.display()
    );
    let file = bytes(8 << 20);
    let disk = |node: &Node| node.json(&["cs", "info"])["disk"].clone();
    {
        let node = Node::start(directory.path(), None, "", &more);
        let (_server, _) = node.serve(&["put", "/disk"], Some(&file));
        // 8 MiB through a disk of 4: the file arrives whole, the disk's failures are counted.
        node.get("/disk", &file);
        let has_failed = || disk(&node)["failures"].as_u64() > Some(0);
        assert!(wait_until(PATIENCE, has_failed), "{}", disk(&node));
        node.get("/disk", &file);
    }
    let node = Node::start(directory.path(), None, "", &more);
    let info = disk(&node);
    assert!(info["recovered"].as_u64() >= Some(100), "{info}");
}

/// A small file system in memory, unmounted with the test.
struct Mounted(PathBuf);

impl Mounted {
    fn new(path: PathBuf, size: &str) -> Self {
        std::fs::create_dir(&path).unwrap();
        let mut mount = Command::new("mount");
        mount.args([
            "-t",
            "tmpfs",
            "-o",
            &format!("size={size}"),
            "tidegate-test",
        ]);
        assert!(mount.arg(&path).status().unwrap().success());
        Self(path)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn without_a_forwarder_the_tools_say_so() {
    let mut command = tidegate();
    command.env("NDN_CLIENT_TRANSPORT", "unix:///nowhere/nfd.sock");
    let run = finish(command.args(["ndn", "status"]));
    assert_eq!(run.code, 3, "{}", run.stderr);
    assert!(run.stderr.contains("[ndn]"), "{}", run.stderr);
    // client.conf is read where the variable is not set.
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join(".ndn")).unwrap();
    let conf = home.path().join(".ndn/client.conf");
    std::fs::write(conf, "; ours\ntransport=unix:///from/client.conf\n").unwrap();
    let mut command = tidegate();
    command
        .env_remove("NDN_CLIENT_TRANSPORT")
        .env("HOME", home.path());
    let run = finish(command.args(["ndn", "status"]));
    assert_eq!(run.code, 3);
    assert!(run.stderr.contains("/from/client.conf"), "{}", run.stderr);
}

/// Two nodes with an Ethernet link between them: fetches over it, once by a unicast and once by the multicast face.
fn over_ethernet(test: &str, driver: &str) {
    if !need::root(test) {
        return;
    }
    let line = Line::new("tgn", LineOptions::default()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let port = |device: &str| {
        format!("[[port]]\nname = \"e\"\ninterface = \"{device}\"\ndriver = \"{driver}\"\n")
    };
    let no_sockets = "tcp = []\nudp = []\nethernet = [\"e\"]\n";
    let consumer = directory.path().join("consumer");
    let producer = directory.path().join("producer");
    let near = Node::start(
        &consumer,
        Some(&line.left.namespace),
        &port(&line.left.device),
        no_sockets,
    );
    let far = Node::start(
        &producer,
        Some(&line.node),
        &port(&line.left.node_device),
        no_sockets,
    );
    let original = bytes(3_000_000);
    let (_server, _) = far.serve(&["put", "/far/file"], Some(&original));
    let mac: Vec<String> = line
        .left
        .node_mac
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let remote = format!("ether://[{}]", mac.join(":"));
    near.ok(&["route", "add", "/far", &remote]);
    near.get("/far/file", &original);
    let faces = near.json(&["face", "list", "--remote", &remote]);
    assert!(faces[0]["in_data"].as_u64().unwrap() >= 375, "{faces}");
    // The other node made a face for who asked.
    let others = far.json(&["face", "list", "--scheme", "ether"]);
    let is_known = |face: &&Value| face["persistency"] == "on-demand";
    assert!(
        others
            .as_array()
            .unwrap()
            .iter()
            .any(|face| is_known(&face)),
        "{others}"
    );
    // By the group.
    near.ok(&["cs", "erase", "/"]);
    near.ok(&["face", "destroy", &remote]);
    near.ok(&["route", "add", "/far", "ether://[01:00:5e:00:17:aa]"]);
    near.get("/far/file", &original);
}

#[test]
fn two_nodes_over_ethernet_by_af_xdp() {
    over_ethernet("two_nodes_over_ethernet_by_af_xdp", "af_xdp");
}

#[test]
fn two_nodes_over_ethernet_by_af_packet() {
    over_ethernet("two_nodes_over_ethernet_by_af_packet", "af_packet");
}

/// The figures of the part of a node's content store that is in the kernel.
fn kernel_cache(node: &Node) -> Value {
    let mut command = tidegate();
    command.args(["--json", "ndn", "cs", "kernel", "--socket"]);
    let run = finish(command.arg(node.directory.join("control.sock")));
    assert_eq!(run.code, 0, "{}", run.stderr);
    serde_json::from_str(&run.stdout).unwrap()
}

/// A file of two nodes, `near` asking `far`, whose kernel answers once the file was asked for again: without the
/// producer, byte for byte, until management erases it. `remote` is the face to `far`.
fn kernel_answers(near: &Node, far: &Node, remote: &str, mode: &str) -> String {
    const SEGMENTS: u64 = 60;
    let original = bytes(60_000);
    let (server, versioned) = far.serve(
        &["put", "/far/file", "-s", "1000", "-x", "600000"],
        Some(&original),
    );
    near.ok(&["route", "add", "/far", remote]);
    near.ok(&["cs", "config", "--admit", "off"]);
    let figure = |name: &str| kernel_cache(far)[name].as_u64().unwrap();
    let is_promoted = wait_until(PATIENCE, || {
        near.get(&versioned, &original);
        figure("packets") >= SEGMENTS
    });
    assert!(is_promoted, "{}", kernel_cache(far));
    drop(server);
    let before = figure("hits");
    near.get(&versioned, &original);
    let figures = kernel_cache(far);
    assert_eq!(figures["ports"][0]["mode"], mode, "{figures}");
    assert!(figure("hits") >= before + SEGMENTS, "{figures}");

    let first = format!("{versioned}/seg=0");
    far.ok(&["cs", "erase", "/far/file"]);
    assert_eq!(figure("packets"), 0);
    let answered = figure("hits");
    let gone = near.run(&["peek", &first, "-l", "500"]);
    assert_eq!(gone.code, 5, "{}", gone.stderr);
    assert_eq!(figure("hits"), answered);
    first
}

#[test]
fn the_kernel_answers_before_the_udp_sockets_of_a_node() {
    if !need::root("the_kernel_answers_before_the_udp_sockets_of_a_node") {
        return;
    }
    let line = Line::new("tgku", LineOptions::default()).unwrap();
    let left = &line.left;
    let address = left.node_address();
    let mut links = line.node.links().unwrap();
    links.add_address(&left.node_device, address, 24).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let sockets = "tcp = []\nudp = [\"0.0.0.0:6363\"]\n";
    let near = Node::start(
        &directory.path().join("near"),
        Some(&left.namespace),
        "",
        sockets,
    );
    let cache = format!(
        "{sockets}[ndn.kernel_cache]\ninterfaces = [\"{}\"]\npackets = 1000\n",
        left.node_device
    );
    let far = Node::start(&directory.path().join("far"), Some(&line.node), "", &cache);
    let remote = format!("udp4://{address}:6363");
    let name = kernel_answers(&near, &far, &remote, "tc");

    // Put there again, and the node killed: the port is as it was, and a plain socket gets what is asked.
    let (_server, _) = far.serve(&["put", &name, "-x", "600000"], Some(b"again"));
    let is_promoted = wait_until(PATIENCE, || {
        near.run(&["peek", "-P", &name, "-l", "500"]);
        kernel_cache(&far)["packets"].as_u64().unwrap() > 0
    });
    assert!(is_promoted, "{}", kernel_cache(&far));
    drop(far);
    let socket = line
        .node
        .run(|| std::net::UdpSocket::bind("0.0.0.0:6363"))
        .unwrap()
        .unwrap();
    socket
        .set_read_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    let mut datagram = [0; 2000];
    let is_asked = wait_until(PATIENCE, || {
        let asks = near.run(&["peek", "-P", &name, "-l", "100"]);
        assert_ne!(asks.code, 0, "{}", asks.stdout);
        socket.recv(&mut datagram).is_ok()
    });
    assert!(is_asked);
}

/// Two nodes with an Ethernet link; the far one has the cache in the kernel.
fn kernel_cache_over_ethernet(test: &str, driver: &str, check: impl Fn(&Node, &Node, &str)) {
    if !need::root(test) {
        return;
    }
    let line = Line::new("tgke", LineOptions::default()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let port = |device: &str, driver: &str| {
        format!("[[port]]\nname = \"e\"\ninterface = \"{device}\"\ndriver = \"{driver}\"\n")
    };
    let faces = "tcp = []\nudp = []\nethernet = [\"e\"]\n";
    let near = Node::start(
        &directory.path().join("near"),
        Some(&line.left.namespace),
        &port(&line.left.device, "af_packet"),
        faces,
    );
    let far = Node::start(
        &directory.path().join("far"),
        Some(&line.node),
        &port(&line.left.node_device, driver),
        &format!("{faces}[ndn.kernel_cache]\nports = [\"e\"]\npackets = 1000\n"),
    );
    let mac = line.left.node_mac.map(|byte| format!("{byte:02x}"));
    check(&near, &far, &format!("ether://[{}]", mac.join(":")));
}

#[test]
fn the_kernel_answers_beside_an_af_packet_port() {
    let test = "the_kernel_answers_beside_an_af_packet_port";
    kernel_cache_over_ethernet(test, "af_packet", |near, far, remote| {
        kernel_answers(near, far, remote, "tc");
        // What the kernel answered did not come to the node as well.
        let hits = kernel_cache(far)["hits"].as_u64().unwrap();
        let faces = near.json(&["face", "list", "--remote", remote]);
        let got = faces[0]["in_data"].as_u64().unwrap();
        let asked = faces[0]["out_interests"].as_u64().unwrap();
        assert!(hits > 0 && got <= asked, "{hits} hits, {faces}");
    });
}

#[test]
fn an_af_xdp_port_has_the_cache_in_front() {
    let test = "an_af_xdp_port_has_the_cache_in_front";
    kernel_cache_over_ethernet(test, "af_xdp", |near, far, remote| {
        let original = bytes(20_000);
        let (_server, versioned) = far.serve(&["put", "/far/file", "-s", "1000"], Some(&original));
        near.ok(&["route", "add", "/far", remote]);
        near.ok(&["cs", "config", "--admit", "off"]);
        let outcomes = || {
            let figures = kernel_cache(far);
            let outcomes = figures["outcomes"].as_array().unwrap().clone();
            let found = outcomes
                .iter()
                .filter(|o| o["outcome"] == "no_room" || o["outcome"] == "exact");
            (found.count(), figures)
        };
        // Frames that a veth device makes of a socket's packets hardly grow: what has no room goes on to the node.
        let is_looked_up = wait_until(PATIENCE, || {
            near.get(&versioned, &original);
            outcomes().0 > 0
        });
        let (_, figures) = outcomes();
        assert!(is_looked_up, "{figures}");
        assert_eq!(figures["ports"][0]["mode"], "af_xdp", "{figures}");
    });
}
