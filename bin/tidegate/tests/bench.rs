//! `tidegate bench rfc2544` with small settings: every device under test gives a report.

mod common;

use common::{Run, run};
use lab::need;
use lab::rfc2544::Report;

fn bench(dut: &str, more: &[&str]) -> Run {
    let mut arguments = vec![
        "--json", "bench", "rfc2544", "--dut", dut, "--sizes", "64,1518",
    ];
    arguments.extend([
        "--trial",
        "0.05",
        "--confirmations",
        "1",
        "--resolution",
        "0.2",
    ]);
    arguments.extend(["--max-rate", "4000", "--max-burst", "64", "--retries", "8"]);
    arguments.extend(more);
    run(&arguments)
}

fn reports(test: &str, dut: &str, more: &[&str]) {
    if !need::root(test) {
        return;
    }
    let run = bench(dut, more);
    if run.stderr.contains("install the Debian package libpcap0.8") {
        need::need(test, "libpcap0.8", false);
        return;
    }
    assert_eq!(run.code, 0, "{}", run.stderr);
    let report: Report = serde_json::from_str(&run.stdout).unwrap();
    let sizes: Vec<u16> = report.sizes.iter().map(|size| size.size_bytes).collect();
    assert_eq!(sizes, [64, 1518]);
    assert!(report.machine_line.contains("Linux"), "{report:?}");
    for size in &report.sizes {
        // A busy machine may lose frames at any rate, but never offers more than was asked for.
        assert!(size.throughput.zero_loss_pps <= 4_400.0, "{size:?}");
        assert!(size.throughput.trials > 0 && !size.loss_curve.is_empty());
    }
}

#[test]
fn our_node_over_af_xdp() {
    reports("our_node_over_af_xdp", "tidegate", &[]);
}

#[test]
fn our_node_as_a_bridge_over_af_packet() {
    let more = ["--driver", "af-packet", "--role", "bridge"];
    reports("our_node_as_a_bridge_over_af_packet", "tidegate", &more);
}

#[test]
fn the_kernel() {
    reports("the_kernel", "kernel", &["--tester-driver", "af-packet"]);
    reports("the_kernel", "bridge", &[]);
}

#[test]
fn libpcap() {
    reports("libpcap", "libpcap", &[]);
}

#[test]
fn what_cannot_be_is_refused_with_the_reason() {
    let run = bench("external", &[]);
    assert_eq!(run.code, 2, "{}", run.stderr);
    assert!(run.stderr.contains("--tx"), "{}", run.stderr);
    if need::root("what_cannot_be_is_refused_with_the_reason") {
        let run = bench("external", &["--tx", "tg-none", "--rx", "lo"]);
        assert_eq!(run.code, 5, "{}", run.stderr);
        assert!(run.stderr.contains("tg-none"), "{}", run.stderr);
    }
    let run = bench("kernel", &["--resolution", "0"]);
    assert_eq!(run.code, 2, "{}", run.stderr);
}
