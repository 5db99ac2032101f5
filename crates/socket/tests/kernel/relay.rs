//! Programs that speak TCP with each other by the kernel's stack, our relay between them: each byte goes through two of
//! our connections, one accepted and one opened.

use std::io::{Read, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

use lab::topology::{Line, LineOptions};

use crate::{KERNEL, OURS, PATIENCE, Program, connect, example, needs, run, start, wire};

/// Starts the relay from a port of ours to the same port of the kernel's.
fn relay(line: &Line, port: u16) -> Program {
    let device = line.left.node_device.as_str();
    let arguments = [
        device,
        &format!("{OURS}/24"),
        &port.to_string(),
        &format!("{KERNEL}:{port}"),
    ];
    start(&line.node, &example("relay"), &arguments)
}

/// Returns the bytes that the receiver counted, from iperf3's report; `None` if the report has no sum.
fn received(report: &[u8]) -> Option<u64> {
    let text = String::from_utf8_lossy(report);
    let sum = text.split("\"sum_received\"").nth(1)?;
    let bytes = sum.split("\"bytes\":").nth(1)?;
    bytes.trim_start().split(',').next()?.trim().parse().ok()
}

/// Runs an iperf3 client to its end; again while the relay or the server do not listen yet.
fn measure(line: &Line, arguments: &[&str]) -> u64 {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut command = line.left.namespace.command("iperf3");
        let command = command.args(["-c", OURS, "-J"]).args(arguments);
        let output = command.output().expect("iperf3 runs");
        if let Some(bytes) = received(&output.stdout) {
            assert!(output.status.success(), "{output:?}");
            return bytes;
        }
        assert!(Instant::now() < deadline, "{output:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn iperf3_both_ways_and_at_small_mtu() {
    if !needs("iperf3_both_ways_and_at_small_mtu", &["iperf3"]) {
        return;
    }
    const BYTES: u64 = 30_000_000;
    for (prefix, mtu) in [("tg-ski", 1500), ("tg-skn", 600)] {
        let options = LineOptions {
            mtu,
            ..LineOptions::default()
        };
        let line = wire(prefix, options);
        let iperf3 = lab::need::find_program("iperf3").expect("iperf3");
        let _relay = relay(&line, 5201);
        let _server = start(&line.left.namespace, &iperf3, &["-s", "-B", KERNEL]);
        for reverse in [&[][..], &["-R"]] {
            let bytes = BYTES.to_string();
            let got = measure(&line, &[&["-n", bytes.as_str()][..], reverse].concat());
            // What is under way when the sender stops is not counted.
            assert!(got > BYTES / 2, "{got} bytes at MTU {mtu}, {reverse:?}");
        }
    }
}

#[test]
fn redis_answers_its_benchmark() {
    let test = "redis_answers_its_benchmark";
    if !needs(test, &["redis-server", "redis-benchmark"]) {
        return;
    }
    let line = wire("tg-skr", LineOptions::default());
    let redis = lab::need::find_program("redis-server").expect("redis-server");
    let serves = ["--port", "6379", "--bind", KERNEL, "--save", ""];
    let open = ["--protected-mode", "no", "--appendonly", "no"];
    let _server = start(&line.left.namespace, &redis, &[&serves[..], &open].concat());
    let _relay = relay(&line, 6379);
    // Until the server listens, the relay closes what it accepted.
    let deadline = Instant::now() + PATIENCE;
    let ask = |request: &[u8]| {
        let mut stream = connect(&line, 6379);
        let mut answer = vec![0; 1 << 20];
        stream
            .write_all(request)
            .and_then(|()| stream.read(&mut answer))
            .map(|n| answer[..n].to_vec())
    };
    while !matches!(ask(b"PING\r\n").as_deref(), Ok(b"+PONG\r\n")) {
        assert!(Instant::now() < deadline, "redis does not answer");
        std::thread::sleep(Duration::from_millis(50));
    }
    let load = ["-n", "2000", "-c", "20", "-P", "4", "-d", "3000"];
    let common = ["-h", OURS, "-p", "6379", "-t", "set,get", "--csv"];
    let report = run(&line, "redis-benchmark", &[&common[..], &load].concat());
    let report = String::from_utf8_lossy(&report).into_owned();
    assert!(
        report.contains("\"SET\"") && report.contains("\"GET\""),
        "{report}"
    );
    // A value of many segments comes back as it was.
    let value: String = (0..500_000_u32)
        .map(|n| char::from(b'a' + (n.wrapping_mul(n) % 23) as u8))
        .collect();
    let set = format!(
        "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n{value}\r\n",
        value.len()
    );
    assert_eq!(ask(set.as_bytes()).expect("an answer"), b"+OK\r\n");
    let mut stream = connect(&line, 6379);
    stream.write_all(b"GET k\r\nQUIT\r\n").expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    let expected = format!("${}\r\n{value}\r\n+OK\r\n", value.len());
    assert!(answer == expected.as_bytes(), "{} bytes", answer.len());
}

/// As a terminal's: keys one by one, each echoed by a program before the next.
#[test]
fn an_interactive_session_through_the_relay() {
    let test = "an_interactive_session_through_the_relay";
    if !needs(test, &["python3"]) {
        return;
    }
    let line = wire("tg-skt", LineOptions::default());
    let echo = format!(
        "import socket\nl = socket.create_server(('{KERNEL}', 2222))\nwhile True:\n  s, _ = l.accept()\n  \
         while (b := s.recv(100)): s.sendall(b)\n  s.close()"
    );
    let python = lab::need::find_program("python3").expect("python3");
    let mut command = line.left.namespace.command(&python);
    let command = command.args(["-c", &echo]).stdout(Stdio::null());
    let _server = Program(command.spawn().expect("python3 starts"));
    let _relay = relay(&line, 2222);
    let deadline = Instant::now() + PATIENCE;
    // Until the server listens, the relay closes what it accepted.
    let mut stream = loop {
        let mut stream = connect(&line, 2222);
        let mut back = [0; 1];
        if stream.write_all(b"$").is_ok() && stream.read_exact(&mut back).is_ok() {
            break stream;
        }
        assert!(Instant::now() < deadline, "no echo");
        std::thread::sleep(Duration::from_millis(50));
    };
    stream.set_nodelay(true).expect("an option");
    for key in 0..300_u32 {
        let key = [b'a' + (key % 26) as u8];
        stream.write_all(&key).expect("sent");
        let mut back = [0];
        stream.read_exact(&mut back).expect("an echo");
        assert_eq!(back, key);
    }
    stream.shutdown(std::net::Shutdown::Write).expect("FIN");
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).expect("the end");
    assert!(rest.is_empty());
}
