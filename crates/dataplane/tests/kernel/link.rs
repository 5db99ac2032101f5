//! An impaired link between the stacks of two kernels: what it is told to do is what they see.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use control::api::LinkInfo;
use lab::topology::{Line, LineOptions};

use crate::common::{Bench, tcp_transfer};

const RIGHT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 6, 0, 3));

/// Two kernels in one network, whose wire is a link of the node with these keys.
fn bench(prefix: &str, driver: &str, node: &str, keys: &str) -> Bench {
    let options = LineOptions {
        addresses: false,
        ..LineOptions::default()
    };
    let line = Line::new(prefix, options).expect("a line of namespaces");
    for (side, host) in [(&line.left, 2), (&line.right, 3)] {
        let mut links = side.namespace.links().expect("netlink");
        let address = Ipv4Addr::new(10, 6, 0, host).into();
        links
            .add_address(&side.device, address, 24)
            .expect("an address");
    }
    let config = format!(
        "{node}[[port]]\nname = \"east\"\ninterface = \"{}\"\ndriver = \"{driver}\"\n\
         [[port]]\nname = \"west\"\ninterface = \"{}\"\ndriver = \"{driver}\"\n\
         [[link]]\nname = \"bad\"\nports = [\"east\", \"west\"]\n{keys}\n",
        line.left.node_device, line.right.node_device
    );
    Bench::start(line, &config)
}

fn link(bench: &Bench) -> LinkInfo {
    // Counters may be a few milliseconds old.
    std::thread::sleep(Duration::from_millis(20));
    bench.node.stats().links.remove(0)
}

/// Loss and round-trip time as ping sees them.
fn loses_and_delays(test: &str, prefix: &str, driver: &str) {
    if !lab::need::root(test) || !lab::need::program(test, "ping") {
        return;
    }
    let keys = "drop_ppm = 50000\ndelay_us = 20000\nseed = 11";
    let bench = bench(prefix, driver, "", keys);
    // Addresses are resolved first; a request or answer may be lost.
    bench.left("ping", &["-c", "20", "-i", "0.1", "-w", "5", "10.6.0.3"]);
    let before = bench.drops("fault_injected");
    let seen = bench.left(
        "ping",
        &["-q", "-c", "1000", "-i", "0.002", "-W", "1", "10.6.0.3"],
    );
    let received = number(&seen.text, " received", ',');
    // Each way 5 %: 90.25 % come back; four standard deviations of a thousand are 3.75 %.
    assert!((865.0..=940.0).contains(&received), "{}", seen.text);
    let round_trip: Vec<f64> = seen
        .text
        .split("mdev = ")
        .nth(1)
        .and_then(|times| times.split(' ').next())
        .expect("ping tells times")
        .split('/')
        .map(|time| time.parse().expect("a number"))
        .collect();
    // Twice the delay, which counts from the start of the worker's pass in which a packet was received: a pass
    // takes a part of a millisecond here. A busy machine adds its own to some.
    assert!((39.0..44.0).contains(&round_trip[0]), "{}", seen.text);
    assert!(round_trip[1] < 150.0, "{}", seen.text);
    let link = link(&bench);
    let dropped: u64 = link.directions.iter().map(|way| way.dropped_pkts).sum();
    assert_eq!(dropped, bench.drops("fault_injected"));
    let lost = (dropped - before) as f64;
    assert!(
        (lost - (1000.0 - received)).abs() < 15.0,
        "{lost} {}",
        seen.text
    );
    for way in &link.directions {
        let on = way.delivered_pkts + way.dropped_pkts + way.in_flight_pkts;
        assert_eq!(on, way.offered_pkts, "{way:?}");
    }
    assert_eq!(
        (&*link.directions[0].from, &*link.directions[0].to),
        ("east", "west")
    );
    // A reload changes the faults of the running link.
    let mut config = (*bench.node.config()).clone();
    config.link[0].drop_ppm = 1_000_000;
    assert_eq!(
        bench.node.reload(&config).expect("a link's faults"),
        [""; 0]
    );
    bench
        .left("ping", &["-c", "3", "-i", "0.1", "-W", "1", "10.6.0.3"])
        .has(&["100% packet loss"]);
    bench.finish();
}

/// Reads the number before a word of a program's output.
fn number(text: &str, word: &str, separator: char) -> f64 {
    let before = text.split(word).next().expect("there is a first part");
    let digits = before.rsplit([separator, ' ']).next();
    digits
        .and_then(|digits| digits.parse().ok())
        .unwrap_or_else(|| panic!("no number before {word:?} in {text}"))
}

#[test]
fn a_link_loses_and_delays_by_af_packet() {
    loses_and_delays(
        "a_link_loses_and_delays_by_af_packet",
        "tg-dplp",
        "af_packet",
    );
}

#[test]
fn a_link_loses_and_delays_by_af_xdp() {
    loses_and_delays("a_link_loses_and_delays_by_af_xdp", "tg-dplx", "af_xdp");
}

/// Two workers, each with a queue of each port: the rate is that of the link, not of a worker, and what
/// reordering, duplicates and damage do to TCP, TCP repairs.
#[test]
fn a_link_of_two_workers_keeps_its_rate() {
    let test = "a_link_of_two_workers_keeps_its_rate";
    let cpus = io::cpu::allowed().unwrap_or_default();
    if !lab::need::root(test) || !lab::need::need(test, "two CPUs", cpus.len() > 1) {
        return;
    }
    let node = format!("[node]\ncpus = [{}, {}]\n", cpus[0], cpus[1]);
    let keys = "rate_bps = 20000000\ndelay_us = 1000\njitter_us = 500\nduplicate_ppm = 5000\n\
                reorder_ppm = 5000\nreorder_us = 2000\ncorrupt_ppm = 1000\nqueue_pkts = 256\nseed = 5";
    let bench = bench("tg-dplw", "af_packet", &node, keys);
    let (left, right) = (&bench.line.left.namespace, &bench.line.right.namespace);
    let bytes = 2_000_000;
    // Two streams, of which the workers may get one each.
    let start = std::time::Instant::now();
    for _ in 0..2 {
        tcp_transfer(left, right, RIGHT, bytes);
    }
    let least = 2.0 * bytes as f64 * 8.0 / 20e6;
    let took = start.elapsed().as_secs_f64();
    assert!(took >= least, "{took} s for what takes {least} s at least");
    assert!(
        took < 6.0 * least,
        "{took} s for what takes {least} s at least"
    );
    let way = &link(&bench).directions[0];
    assert!(way.offered_pkts > 1000, "{way:?}");
    assert!(way.duplicated_pkts > 0 && way.reordered_pkts > 0, "{way:?}");
    bench.finish();
}
