//! The generated parts of the docs: one list of files and what they must hold.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::{claims, conformance, tidy, workspace};

/// Returns every generated file and the text that it must hold.
pub(crate) fn generated() -> Result<Vec<(PathBuf, String)>> {
    let mut files = claims::generated()?;
    files.push(("docs/drop-reasons.md".into(), drop_reasons()?));
    files.push(("docs/configuration.md".into(), configuration()?));
    files.push(("docs/conformance.md".into(), conformance::document()?));
    Ok(files)
}

/// Writes the generated files.
pub(crate) fn write() -> Result<bool> {
    for (file, text) in generated()? {
        let path = workspace::root()?.join(&file);
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory)
                .with_context(|| format!("cannot make {}", directory.display()))?;
        }
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        println!("wrote {}", file.display());
    }
    let ledger = tidy::refreshed_ledger(&workspace::files()?)?;
    std::fs::write(workspace::root()?.join("UNSAFE.md"), ledger)
        .context("cannot write UNSAFE.md")?;
    println!("wrote UNSAFE.md (counts; write the reasons by hand)");
    Ok(true)
}

fn drop_reasons() -> Result<String> {
    let mut text = String::from(
        "# Why packets are dropped\n\n\
         Generated from `crates/wire/src/drop_reason.rs` by `cargo xtask docs`. Every reason has a counter \
         in `tidegate stats` and shows in `tidegate capture`.\n\n\
         | reason | severity | what happened | source |\n| --- | --- | --- | --- |\n",
    );
    for reason in wire::DropReason::ALL {
        let severity = format!("{:?}", reason.severity()).to_lowercase();
        writeln!(
            text,
            "| `{}` | {severity} | {} | {} |",
            reason.name(),
            reason.text(),
            reason.source()
        )?;
    }
    Ok(text)
}

fn configuration() -> Result<String> {
    let mut text = String::from(
        "# The configuration file\n\n\
         Generated from `crates/control/src/config/keys.rs` by `cargo xtask docs`; `tidegate man` makes \
         tidegate.toml(5) of the same. One TOML file; `tidegate check -c node.toml` shows what is wrong in it \
         with file, line, cause and one remedy. Keys and tables that are not listed here are errors. Files to \
         start from: [examples](../examples).\n",
    );
    for table in control::config::keys::TABLES {
        let many = if table.many {
            " May be given many times."
        } else {
            ""
        };
        write!(
            text,
            "\n## `{}`\n\n{}{many}\n\n| key | value | default | meaning | example |\n\
             | --- | --- | --- | --- | --- |\n",
            table.header(),
            table.text
        )?;
        for key in table.keys {
            writeln!(
                text,
                "| `{}` | {} | {} | {} | `{}` |",
                key.name, key.kind, key.default, key.text, key.example
            )?;
        }
    }
    Ok(text)
}
