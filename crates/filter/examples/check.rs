//! Checks rule files: prints each one's errors, or how many rules it compiled to.
//!
//! `cargo run --example check -- FILE.nft...`

use filter::lang::{Disk, Options, Source};

fn main() {
    let mut failed = false;
    for path in std::env::args().skip(1) {
        let result = std::fs::read(&path)
            .map_err(|error| format!("{path}: {error}\n"))
            .and_then(|bytes| check(&path, &String::from_utf8_lossy(&bytes)));
        match result {
            Ok(rules) => println!("{path}: {rules} rules"),
            Err(text) => {
                failed = true;
                print!("{text}");
            }
        }
    }
    std::process::exit(failed.into());
}

fn check(path: &str, text: &str) -> Result<usize, String> {
    let mut source = Source::default();
    let read = source.read(path, text, &Disk::default());
    read.map_err(|error| error.render(&source.sources))?;
    let compiled = source.compile(Options::default());
    let ruleset = compiled.map_err(|errors| {
        let rendered = errors.iter().map(|error| error.render(&source.sources));
        rendered.collect::<String>()
    })?;
    Ok(ruleset.rules().len())
}
