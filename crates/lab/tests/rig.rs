//! A rig measures real devices under test, briefly.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lab::need;
use lab::rfc2544::{Options, measure_throughput};
use lab::rig::{Dut, Rig, RigOptions, TesterDriver};
use lab::traffic::{Load, Trial, TrialPlan};

/// One device at a time: some of them take a whole core, and there may be but two.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn check(test: &str, dut: Dut, tester: TesterDriver) {
    if !need::root(test) {
        return;
    }
    let _alone = alone();
    let options = RigOptions {
        tester,
        ..RigOptions::new(dut)
    };
    let mut rig = match Rig::new(&options) {
        Err(lab::rig::RigError::Libpcap(lab::peer::libpcap::LibpcapError::NoLibrary)) => {
            need::need(test, "libpcap0.8", false);
            return;
        }
        other => other.unwrap(),
    };
    println!("tester: {}", rig.tester_driver());
    for size in [64, 512, 1518] {
        let plan = TrialPlan::new(Load::Rate(2_000.0), Duration::from_millis(100));
        let is_good = |t: &Trial| t.lost_pkts == 0 && t.sent_pkts > 100;
        let mut trials = Vec::new();
        // 2,000 frames a second are nothing to anyone, unless the machine is taken away.
        while trials.len() < 20 && !trials.last().is_some_and(is_good) {
            trials.push(rig.trial(size, &plan).unwrap());
        }
        assert!(trials.last().is_some_and(is_good), "{trials:?}");
        assert!(trials.iter().all(|t| t.duplicate_pkts == 0), "{trials:?}");
    }
}

#[test]
fn kernel_router_by_the_fast_tester() {
    let test = "kernel_router_by_the_fast_tester";
    check(test, Dut::KernelRouter, TesterDriver::Auto);
}

#[test]
fn kernel_bridge_by_the_portable_tester() {
    let test = "kernel_bridge_by_the_portable_tester";
    check(test, Dut::KernelBridge, TesterDriver::AfPacket);
}

#[test]
fn libpcap_forwarder() {
    check("libpcap_forwarder", Dut::Libpcap, TesterDriver::Auto);
}

#[test]
fn testpmd_forwarder() {
    let test = "testpmd_forwarder";
    if need::program(test, lab::peer::testpmd::PROGRAM) {
        check(test, Dut::Testpmd, TesterDriver::Auto);
    }
}

#[test]
fn a_short_search_over_a_real_device_ends_with_a_rate() {
    let test = "a_short_search_over_a_real_device_ends_with_a_rate";
    if !need::root(test) {
        return;
    }
    let _alone = alone();
    let mut rig = Rig::new(&RigOptions::new(Dut::KernelRouter)).unwrap();
    let options = Options {
        trial: Duration::from_millis(50),
        resolution: 0.1,
        confirmations: 1,
        retries: 10,
        max_pps: Some(20_000.0),
        ..Options::default()
    };
    let found = measure_throughput(&options, &mut rig.device(64).unwrap());
    assert!(found.zero_loss_pps > 1_000.0, "{found:?}");
}
