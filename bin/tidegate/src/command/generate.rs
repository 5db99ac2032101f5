//! `tidegate completions` and `tidegate man`: made from the definition of the command line.

use std::io::Write;

use anyhow::Context;
use clap::CommandFactory;
use control::config::keys;

use crate::cli::{Cli, CompletionsArgs, ManArgs};
use crate::exit::Failure;
use crate::output;

pub(crate) fn completions(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut out = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "tidegate", &mut out);
    output::finish(std::io::stdout().write_all(&out))
}

pub(crate) fn man(args: &ManArgs) -> Result<(), Failure> {
    let Some(directory) = &args.directory else {
        let mut out = Vec::new();
        clap_mangen::Man::new(Cli::command()).render(&mut out)?;
        return output::finish(std::io::stdout().write_all(&out));
    };
    let write = || -> std::io::Result<()> {
        std::fs::create_dir_all(directory)?;
        clap_mangen::generate_to(Cli::command(), directory)?;
        std::fs::write(directory.join("tidegate.toml.5"), configuration_page())
    };
    write().with_context(|| format!("cannot write the pages to `{}`", directory.display()))?;
    Ok(())
}

/// tidegate.toml(5), from the description of the keys.
fn configuration_page() -> String {
    let mut page = String::from(
        ".TH tidegate.toml 5 \"\" \"tidegate\"\n\
         .SH NAME\ntidegate.toml \\- configuration of a tidegate node\n\
         .SH DESCRIPTION\nOne TOML file. Keys and tables that are not listed here are errors. \
         \\fBtidegate check\\fR tells whether a file is right.\n",
    );
    for table in keys::TABLES {
        page.push_str(&format!(
            ".SH {}\n{}",
            roff(&table.header()),
            roff(table.text)
        ));
        if table.many {
            page.push_str(" May be given many times.");
        }
        page.push('\n');
        for key in table.keys {
            page.push_str(&format!(
                ".TP\n\\fB{}\\fR = {}\n{} Default: {}. Example: \\fB{}\\fR\n",
                roff(key.name),
                roff(key.kind),
                roff(key.text),
                roff(key.default),
                roff(key.example)
            ));
        }
    }
    page.push_str(".SH FILES\n/etc/tidegate/node.toml\n.SH SEE ALSO\n.BR tidegate (1)\n");
    page
}

fn roff(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}
