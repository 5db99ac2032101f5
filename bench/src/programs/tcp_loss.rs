//! Measures goodput under random loss in virtual time: `cargo run --release -p tidegate-bench -- tcp_loss`.
//!
//! Two stacks, a link of 1 Gbit/s with a queue of 20 ms, data segments lost at random by a seed: the figures are the same on
//! every machine. "theory" is min(link, MSS / RTT x sqrt(1.5 / p)), the response function of CUBIC's Reno-friendly region,
//! where RTT is that of the empty link. At 0.1 ms a segment's own transmission, its wait in a burst and for the next one's
//! acknowledgement are a third of the round trip: "at its RTT" is the part of the same function of the round trip that the
//! sender saw.

use bench::{Options, Report, Table};
use clap::Parser;
use serde_json::json;
use stack::Algorithm;

#[expect(dead_code, unreachable_pub, reason = "the world of the stack's tests; they use the rest")]
#[path = "../../../crates/stack/tests/it/support.rs"]
mod support;

use support::{Faults, World};

/// Measures goodput under random loss in virtual time.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    /// Virtual milliseconds of each run.
    #[arg(long, default_value_t = 10_000)]
    virtual_ms: u64,
    /// Seed of the losses.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only this loss, parts per million.
    #[arg(long)]
    loss: Option<u32>,
    /// Only this round-trip time, us.
    #[arg(long)]
    rtt: Option<u64>,
    /// Print counters of each run.
    #[arg(long)]
    verbose: bool,
}

const LINK_BPS: f64 = 1e9;
const MSS: f64 = 1448.0;

/// Runs one transfer; returns goodput in Mbit/s, and the mean of the smoothed round-trip time in us.
fn goodput(algorithm: Algorithm, rtt_us: u64, loss_ppm: u32, arguments: &Arguments) -> (f64, f64) {
    let mut world = World::with(arguments.seed, |_, config| config.tcp.congestion = algorithm);
    world.set_link(LINK_BPS as u64, rtt_us * 1000);
    let (client, server) = world.connect(80);
    world.ways[0].faults = Faults { drop: loss_ppm, data_only: true, ..Faults::default() };
    let data = vec![7; 65_536];
    let mut received = 0_u64;
    let start = world.now;
    let mut sink = vec![0; 65_536];
    let (mut last, mut rtt_sum) = (start, 0.0);
    world.run(arguments.virtual_ms * 1_000_000, |world| {
        let now = world.time();
        while world.hosts[0].tcp_send(now, client, &data).is_ok() {}
        while let Ok(bytes) = world.hosts[1].tcp_recv(now, server, &mut sink) {
            received += bytes as u64;
        }
        if let Ok(info) = world.hosts[0].tcp_info(client) {
            rtt_sum += (world.now - last) as f64 * f64::from(info.srtt_us);
            last = world.now;
        }
        false
    });
    if arguments.verbose {
        eprintln!("{algorithm:?} {rtt_us} us {loss_ppm} ppm: {:?} {:?}", world.hosts[0].tcp_stats(), world.hosts[0].tcp_info(client));
    }
    let time = (world.now - start) as f64;
    (received as f64 * 8000.0 / time, rtt_sum / time)
}

pub(crate) fn main() {
    let arguments = bench::parse::<Arguments>();
    let mut report = Report::new("tcp_loss");
    let mut table = Table::new(
        "Goodput in virtual time, 1 Gbit/s, Mbit/s",
        &["RTT, ms", "loss, %", "theory", "CUBIC", "of theory", "at its RTT", "BBR", "of link", "NewReno"],
    );
    let link = LINK_BPS / 1e6 * MSS / (MSS + 66.0 + 24.0);
    let (mut least_cubic, mut least_bbr) = (f64::MAX, f64::MAX);
    for rtt_us in [100, 10_000] {
        for loss_ppm in [0, 1000, 10_000, 30_000] {
            if arguments.loss.is_some_and(|loss| loss != loss_ppm) || arguments.rtt.is_some_and(|rtt| rtt != rtt_us) {
                continue;
            }
            let p = f64::from(loss_ppm) / 1e6;
            let response = MSS * 8.0 / rtt_us as f64 * (1.5 / p).sqrt();
            let most = link * (1.0 - p);
            let theory = most.min(response);
            let (cubic, cubic_rtt_us) = goodput(Algorithm::Cubic, rtt_us, loss_ppm, &arguments);
            let (bbr, _) = goodput(Algorithm::Bbr, rtt_us, loss_ppm, &arguments);
            let (reno, _) = goodput(Algorithm::NewReno, rtt_us, loss_ppm, &arguments);
            let (of_theory, of_link) = (cubic / theory, bbr / most);
            let at_its_rtt = cubic / most.min(response * rtt_us as f64 / cubic_rtt_us);
            least_cubic = least_cubic.min(of_theory);
            least_bbr = least_bbr.min(of_link);
            let name = format!("{rtt_us}us_{loss_ppm}ppm");
            report.figure(&format!("cubic_{name}_of_theory"), of_theory);
            report.figure(&format!("cubic_{name}_of_theory_at_its_rtt"), at_its_rtt);
            report.figure(&format!("bbr_{name}_of_link"), of_link);
            table.rows.push(vec![
                json!(rtt_us as f64 / 1000.0),
                json!(p * 100.0),
                json!(theory),
                json!(cubic),
                json!(of_theory),
                json!(at_its_rtt),
                json!(bbr),
                json!(of_link),
                json!(reno),
            ]);
        }
    }
    report.figure("least_cubic_of_theory", least_cubic);
    report.figure("least_bbr_of_link", least_bbr);
    report.table(table);
    report.print(&arguments.options);
}
