//! A host of ours and a kernel, between them a link of the node that loses, doubles, reorders and delays: every byte
//! arrives, both ways.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use lab::topology::{Line, LineOptions};

use crate::common::Bench;

const KERNEL: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 2);
const OURS: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 3);
const PATIENCE: Option<Duration> = Some(Duration::from_secs(60));

/// A kernel on the left, a host of ours on the right, an impaired link between.
fn bench(prefix: &str, keys: &str) -> (socket::Host, Bench) {
    bench_of_mtu(prefix, keys, 1500)
}

fn bench_of_mtu(prefix: &str, keys: &str, mtu: u32) -> (socket::Host, Bench) {
    let options = LineOptions {
        addresses: false,
        mtu,
        ..LineOptions::default()
    };
    let line = Line::new(prefix, options).expect("a line of namespaces");
    let side = &line.left;
    let mut links = side.namespace.links().expect("netlink");
    let address: IpAddr = KERNEL.into();
    links
        .add_address(&side.device, address, 24)
        .expect("an address");
    let config = format!(
        "[[port]]\nname = \"east\"\ninterface = \"{}\"\ndriver = \"af_packet\"\n\
         [[port]]\nname = \"west\"\ninterface = \"{}\"\ndriver = \"af_packet\"\n\
         [[link]]\nname = \"bad\"\nports = [\"east\", \"west\"]\nqueue_pkts = 2048\n{keys}\n",
        line.left.node_device, line.right.node_device
    );
    let host = line
        .right
        .namespace
        .run(|| {
            socket::Host::on_interface(&line.right.device)
                .address(&format!("{OURS}/24"))
                .start()
                .expect("a host")
        })
        .expect("the namespace");
    (host, Bench::start(line, &config))
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect()
}

fn check(got: &[u8], data: &[u8]) {
    assert_eq!(got.len(), data.len());
    let wrong = got.iter().zip(data).position(|(a, b)| a != b);
    assert_eq!(wrong, None, "first wrong byte");
}

/// Sends so many bytes each way.
fn transfer(host: &socket::Host, bench: &Bench, bytes: usize) {
    let data = pattern(bytes);
    let left = &bench.line.left.namespace;
    // The kernel sends.
    let listener = socket::TcpListener::bind(host, (OURS, 7)).expect("a listener");
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let (mut stream, _) = listener.accept().expect("a connection");
            stream.set_read_timeout(PATIENCE).expect("a timeout");
            let mut got = Vec::new();
            stream.read_to_end(&mut got).expect("all data");
            got
        });
        let mut stream = left
            .run(|| TcpStream::connect((OURS, 7)).expect("a connection"))
            .expect("the namespace");
        stream.set_write_timeout(PATIENCE).expect("a timeout");
        stream.write_all(&data).expect("sent");
        drop(stream);
        check(&receiver.join().expect("the receiver"), &data);
    });
    // We send.
    let listener = left
        .run(|| TcpListener::bind((KERNEL, 8)).expect("a listener"))
        .expect("the namespace");
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let (mut stream, _) = listener.accept().expect("a connection");
            stream.set_read_timeout(PATIENCE).expect("a timeout");
            let mut got = Vec::new();
            stream.read_to_end(&mut got).expect("all data");
            got
        });
        let mut stream = socket::TcpStream::connect(host, (KERNEL, 8)).expect("a connection");
        stream.set_write_timeout(PATIENCE).expect("a timeout");
        stream.write_all(&data).expect("sent");
        drop(stream);
        check(&receiver.join().expect("the receiver"), &data);
    });
}

#[test]
fn bytes_survive_loss() {
    if !lab::need::root("bytes_survive_loss") {
        return;
    }
    for (prefix, ppm) in [
        ("tg-sl0", 0),
        ("tg-sl1", 1000),
        ("tg-sl2", 10_000),
        ("tg-sl3", 30_000),
    ] {
        let keys = format!("drop_ppm = {ppm}\ndelay_us = 500\nseed = {}", ppm + 1);
        let (host, bench) = bench(prefix, &keys);
        transfer(&host, &bench, 1_500_000);
        assert!(ppm < 10_000 || bench.drops("fault_injected") > 0);
        drop(host);
        bench.finish();
    }
}

#[test]
fn bytes_survive_all_faults_at_once() {
    if !lab::need::root("bytes_survive_all_faults_at_once") {
        return;
    }
    let keys = "drop_ppm = 5000\nduplicate_ppm = 10000\nreorder_ppm = 20000\nreorder_us = 2000\n\
                corrupt_ppm = 1000\ndelay_us = 1000\njitter_us = 300\nseed = 7";
    let (host, bench) = bench("tg-sla", keys);
    transfer(&host, &bench, 1_500_000);
    std::thread::sleep(Duration::from_millis(20));
    let stats = bench.node.stats();
    let ways = &stats.links[0].directions;
    assert!(ways.iter().any(|way| way.duplicated_pkts > 0), "{ways:?}");
    assert!(ways.iter().any(|way| way.reordered_pkts > 0), "{ways:?}");
    drop(host);
    bench.finish();
}

/// A program that ends with the test.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Leads clients of a port of ours to the same port of the kernel's, until the test ends.
fn relay(host: &socket::Host, port: u16) {
    fn pass(mut from: socket::TcpStream, mut to: socket::TcpStream) {
        // A reset ends both; the programs say what they miss.
        if std::io::copy(&mut from, &mut to).is_ok() {
            let _ = to.shutdown(Shutdown::Write);
        } else {
            let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
        }
    }
    let listener = socket::TcpListener::bind(host, (OURS, port)).expect("a listener");
    let host = host.clone();
    std::thread::spawn(move || {
        while let Ok((client, _)) = listener.accept() {
            let Ok(server) = socket::TcpStream::connect(&host, (KERNEL, port)) else {
                continue;
            };
            for stream in [&client, &server] {
                stream.set_nodelay(true).expect("an option");
            }
            let (from, to) = (client.try_clone(), server.try_clone());
            std::thread::spawn(move || pass(client, server));
            std::thread::spawn(move || pass(to.expect("a handle"), from.expect("a handle")));
        }
    });
}

/// Runs a program in the kernel's namespace until it succeeds: at first its server may not listen yet.
fn run(bench: &Bench, program: &str, arguments: &[&str]) -> String {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let mut command = bench.line.left.namespace.command(program);
        let output = command.args(arguments).output().expect("the program runs");
        if output.status.success() {
            return String::from_utf8_lossy(&output.stdout).into_owned();
        }
        assert!(Instant::now() < deadline, "{output:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn serve(bench: &Bench, program: &str, arguments: &[&str]) -> Program {
    let mut command = bench.line.left.namespace.command(program);
    let command = command.args(arguments).stdout(Stdio::null());
    Program(command.stderr(Stdio::null()).spawn().expect("the server"))
}

/// iperf3 and redis, each with its own client, through two connections of ours over a link with these faults.
fn programs_go_on(prefix: &str, keys: &str, mtu: u32, bytes: &str, requests: &str) {
    let (host, bench) = bench_of_mtu(prefix, keys, mtu);
    let kernel = KERNEL.to_string();
    let ours = OURS.to_string();
    relay(&host, 5201);
    relay(&host, 6379);
    let iperf3 = serve(&bench, "iperf3", &["-s", "-B", &kernel]);
    let common = ["-c", &ours, "-n", bytes];
    for reverse in [&[][..], &["-R"]] {
        let report = run(&bench, "iperf3", &[&common, reverse].concat());
        assert!(report.contains("receiver"), "{report}");
    }
    let no_files = ["--save", "", "--appendonly", "no", "--protected-mode", "no"];
    let binds = ["--port", "6379", "--bind", &kernel];
    let redis = serve(&bench, "redis-server", &[&binds[..], &no_files].concat());
    let load = [
        "-n", requests, "-c", "5", "-d", "3000", "-t", "set,get", "--csv",
    ];
    let report = run(
        &bench,
        "redis-benchmark",
        &[&["-h", &ours][..], &load].concat(),
    );
    assert!(
        report.contains("\"SET\"") && report.contains("\"GET\""),
        "{report}"
    );
    let key = ["-h", &ours, "SET", "k", "what was written"];
    assert_eq!(run(&bench, "redis-cli", &key).trim(), "OK");
    let key = ["-h", &ours, "GET", "k"];
    assert_eq!(run(&bench, "redis-cli", &key).trim(), "what was written");
    drop((iperf3, redis));
    drop(host);
    bench.finish();
}

fn has_programs(test: &str) -> bool {
    let programs = ["iperf3", "redis-server", "redis-benchmark", "redis-cli"];
    lab::need::root(test) && programs.iter().all(|name| lab::need::program(test, name))
}

/// All faults at once; with `TIDEGATE_LINKS=all` also each alone, which takes minutes.
#[test]
fn iperf3_and_redis_over_bad_links() {
    if !has_programs("iperf3_and_redis_over_bad_links") {
        return;
    }
    let keys = "drop_ppm = 5000\nduplicate_ppm = 5000\nreorder_ppm = 10000\nreorder_us = 1000\n\
                delay_us = 300\njitter_us = 100\nseed = 11";
    programs_go_on("tg-slr", keys, 1500, "2M", "200");
    if std::env::var_os("TIDEGATE_LINKS").is_none_or(|links| links != "all") {
        return;
    }
    for (prefix, keys, mtu) in [
        ("tg-sm0", "delay_us = 300", 1500),
        ("tg-sm1", "drop_ppm = 1000\ndelay_us = 300", 1500),
        ("tg-sm2", "drop_ppm = 10000\ndelay_us = 300", 1500),
        ("tg-sm3", "drop_ppm = 30000\ndelay_us = 300", 1500),
        ("tg-sm4", "reorder_ppm = 50000\nreorder_us = 2000", 1500),
        ("tg-sm5", "duplicate_ppm = 50000", 1500),
        ("tg-sm6", "delay_us = 20000\njitter_us = 2000", 1500),
        ("tg-sm7", "drop_ppm = 10000\ndelay_us = 300", 600),
    ] {
        programs_go_on(prefix, &format!("{keys}\nseed = 3"), mtu, "8M", "500");
        println!("{keys:?} at MTU {mtu}: passed");
    }
}
