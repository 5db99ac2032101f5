//! Hit ratio of each policy with still and moving popularity, scans and long files, by size of the cache.

use bench::cs::hit_ratio::{Variant, measure};
use bench::cs::names::Sites;
use bench::{Options, Plot, Report, Series, Table};
use clap::Parser;
use content_store::Policy;
use serde_json::json;

#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    /// Blocks of the catalogue.
    #[arg(long, default_value_t = 200_000)]
    blocks: u64,
}

const PERCENTS: [usize; 4] = [1, 5, 10, 25];

pub(crate) fn main() -> anyhow::Result<()> {
    let arguments: Arguments = bench::parse();
    let sites = Sites::read(None)?;
    let mut report = Report::new("cs_hit_ratio");
    for variant in Variant::ALL {
        let mut columns = vec!["cache / catalogue"];
        columns.extend(Policy::ALL.map(Policy::name));
        let mut table = Table::new(&format!("Hit ratio, %: {}", variant.name()), &columns);
        let mut plot = Plot {
            title: format!("Hit ratio, {}", variant.name().replace('_', " ")),
            x: "cache / catalogue, %".to_owned(),
            y: "requests answered, %".to_owned(),
            log_x: true,
            log_y: false,
            series: Policy::ALL
                .map(|policy| Series { name: policy.name().to_owned(), points: Vec::new() })
                .to_vec(),
        };
        for percent in PERCENTS {
            let mut row = vec![json!(format!("{percent} %"))];
            for (policy, series) in Policy::ALL.into_iter().zip(&mut plot.series) {
                let ratio = measure(&sites, policy, variant, percent, arguments.blocks);
                row.push(json!(ratio));
                series.points.push((percent as f64, ratio));
                let name = policy.name().replace('-', "_");
                report.figure(&format!("{}_{percent}_{name}_percent", variant.name()), ratio);
            }
            table.rows.push(row);
        }
        report.table(table);
        report.plot(plot);
    }
    report.print(&arguments.options);
    Ok(())
}
