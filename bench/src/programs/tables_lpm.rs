//! Longest-prefix match with a million prefixes, IPv4 and IPv6: time to build, lookups alone and in batches,
//! and updates in place.

use std::hint::black_box;
use std::net::{Ipv4Addr, Ipv6Addr};

use bench::sessions::Random;
use bench::{Options, Report, Table, median, rounds};
use clap::Parser;
use io::cpu::thread_time;
use serde_json::json;
use tables::lpm::{Lpm4Writer, Lpm6Writer, Prefix4, Prefix6};
use tables::quiescent::Domain;

const PREFIXES: usize = 1_000_000;
const QUERIES: usize = 1 << 18;

#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
}

/// Lengths about as in the tables of the Internet: most are /24 (IPv4) or /48 (IPv6), few are longer.
fn prefixes4(random: &mut Random) -> Vec<(Prefix4, u32)> {
    (0..PREFIXES)
        .map(|at| {
            let len = match random.below(100) {
                0..=58 => 24,
                59..=69 => 22,
                70..=79 => 23,
                80..=96 => 16 + random.below(6) as u8,
                97 => 8 + random.below(8) as u8,
                _ => 25 + random.below(8) as u8,
            };
            let address = Ipv4Addr::from(random.next_u64() as u32);
            (Prefix4::masked(address, len), at as u32 % 4096)
        })
        .collect()
}

fn prefixes6(random: &mut Random) -> Vec<(Prefix6, u32)> {
    // Blocks of providers below 2000::/3, customers within them.
    let blocks: Vec<u128> = (0..20_000)
        .map(|_| 1 << 125 | u128::from(random.next_u64() >> 3) << 64)
        .collect();
    (0..PREFIXES)
        .map(|at| {
            let len = match random.below(100) {
                0..=49 => 48,
                50..=69 => 32 + random.below(13) as u8,
                70..=94 => 40 + random.below(8) as u8,
                _ => 49 + random.below(16) as u8,
            };
            let block = blocks[random.below(blocks.len())] >> 96 << 96;
            let address = block | u128::from(random.next_u64()) << 32;
            (
                Prefix6::masked(Ipv6Addr::from(address), len),
                at as u32 % 4096,
            )
        })
        .collect()
}

/// Nanoseconds of this thread that `run` takes, for each of `operations`.
fn time(operations: usize, mut run: impl FnMut()) -> f64 {
    let begin = thread_time();
    run();
    (thread_time() - begin).as_nanos() as f64 / operations as f64
}

pub(crate) fn main() {
    let arguments = bench::parse::<Arguments>();
    let mut random = Random::new(11);
    let mut report = Report::new("tables_lpm");

    let list4 = prefixes4(&mut random);
    let mut writer = None;
    let build4_ns = time(1, || {
        writer = Some(Lpm4Writer::build(&list4, 1024, Domain::new(1)).expect("values fit"));
    });
    let mut writer = writer.expect("built");
    let table4 = writer.table();
    let queries4: Vec<u32> = (0..QUERIES).map(|_| random.next_u64() as u32).collect();

    let list6 = prefixes6(&mut random);
    let mut writer6 = None;
    let build6_ns = time(1, || {
        writer6 = Some(Lpm6Writer::build(&list6, 100_000, Domain::new(1)).expect("values fit"))
    });
    let mut writer6 = writer6.expect("built");
    let table6 = writer6.table();
    let queries6: Vec<u128> = (0..QUERIES)
        .map(|_| {
            let (prefix, _) = list6[random.below(list6.len())];
            u128::from(prefix.address()) | u128::from(random.next_u64() >> 1)
        })
        .collect();

    let mut values = vec![0; QUERIES];
    let mut values6 = vec![0; QUERIES];
    let mut subjects: [Box<dyn FnMut() -> f64 + '_>; 4] = [
        Box::new(|| {
            time(QUERIES, || {
                for &query in &queries4 {
                    black_box(table4.lookup(query.into()));
                }
            })
        }),
        Box::new(|| time(QUERIES, || table4.lookup_batch(&queries4, &mut values))),
        Box::new(|| {
            time(QUERIES, || {
                for &query in &queries6 {
                    black_box(table6.lookup(query.into()));
                }
            })
        }),
        Box::new(|| time(QUERIES, || table6.lookup_batch(&queries6, &mut values6))),
    ];
    let mut borrowed: Vec<&mut dyn FnMut() -> f64> =
        subjects.iter_mut().map(|run| &mut **run as _).collect();
    let samples = rounds(arguments.options.rounds, &mut borrowed);
    let ns: Vec<f64> = samples.iter().map(|samples| median(samples)).collect();
    drop(subjects);

    let changes = 50_000;
    let update_ns = time(2 * changes, || {
        for (prefix, value) in &list4[..changes] {
            black_box(writer.remove(*prefix));
            let _ = black_box(writer.insert(*prefix, *value));
        }
    });
    let update6_ns = time(2 * changes, || {
        for (prefix, value) in &list6[..changes] {
            black_box(writer6.remove(*prefix).expect("there are spare nodes"));
            let _ = black_box(writer6.insert(*prefix, *value));
        }
    });
    let mut table = Table::new(
        "Longest-prefix match, 1 M prefixes",
        &[
            "family",
            "build, ms",
            "lookup, ns",
            "batch of 32, ns",
            "change, ns",
            "bytes a prefix",
        ],
    );
    let bytes6 = table6.size_bytes() as f64 / table6.len() as f64;
    table.rows.push(vec![
        json!("IPv4"),
        json!(build4_ns / 1e6),
        json!(ns[0]),
        json!(ns[1]),
        json!(update_ns),
        json!(null),
    ]);
    table.rows.push(vec![
        json!("IPv6"),
        json!(build6_ns / 1e6),
        json!(ns[2]),
        json!(ns[3]),
        json!(update6_ns),
        json!(bytes6),
    ]);
    report.table(table);
    report.figure("build4_ms", build4_ns / 1e6);
    report.figure("build6_ms", build6_ns / 1e6);
    report.figure("lookup4_ns", ns[0]);
    report.figure("lookup4_batch_ns", ns[1]);
    report.figure("lookup6_ns", ns[2]);
    report.figure("lookup6_batch_ns", ns[3]);
    report.figure("update4_ns", update_ns);
    report.figure("update6_ns", update6_ns);
    report.figure("bytes6_per_prefix", bytes6);
    report.figure("prefixes4", writer.len() as f64);
    report.figure("prefixes6", table6.len() as f64);
    report.print(&arguments.options);
}
