//! `tidegate capture`: packets of a running node as pcapng.

use std::fs::File;
use std::io::{IsTerminal, Read, Write};
use std::path::Path;

use anyhow::Context;
use control::api::{CapturePoint, CaptureRequest};
use control::socket::Client;

use crate::cli::{CaptureArgs, Global};
use crate::exit::{Exit, Failure};
use crate::output;

pub(crate) fn run(global: &Global, args: &CaptureArgs) -> Result<(), Failure> {
    let to_stdout = args.write == Path::new("-");
    if to_stdout && std::io::stdout().is_terminal() {
        return Err(
            Failure::message(Exit::Usage, "pcapng is not for a terminal").remedy(
                "write `tidegate capture | wireshark -k -i -`, or `tidegate capture -w trace.pcapng`",
            ),
        );
    }
    let mut packets = Client::connect(&global.socket)?.capture(CaptureRequest {
        points: args.points.iter().map(|point| parse_point(point)).collect(),
        ports: args.port.clone(),
        filter: args.filter.join(" "),
        snap_bytes: args.snap,
        max_pkts: args.count,
    })?;
    let mut to: Box<dyn Write> = if to_stdout {
        Box::new(std::io::stdout().lock())
    } else {
        let file = File::create(&args.write)
            .with_context(|| format!("cannot write `{}`", args.write.display()))?;
        Box::new(file)
    };
    let bytes = copy(&mut packets, &mut to)?;
    if global.json && !to_stdout {
        output::print_json(&serde_json::json!({
            "file": args.write,
            "bytes": bytes,
        }))?;
    }
    Ok(())
}

/// Copies what arrives at once, so that a viewer sees it live.
fn copy(from: &mut impl Read, to: &mut dyn Write) -> Result<u64, Failure> {
    let mut buffer = vec![0; 64 << 10];
    let mut copied = 0;
    loop {
        let read = match from.read(&mut buffer) {
            Ok(0) => return Ok(copied),
            Ok(read) => read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.into()),
        };
        output::finish(to.write_all(&buffer[..read]).and_then(|()| to.flush()))?;
        copied += read as u64;
    }
}

fn parse_point(text: &str) -> CapturePoint {
    match text {
        "rx" => CapturePoint::Rx,
        "tx" => CapturePoint::Tx,
        "drop" => CapturePoint::Drop,
        "stages" => CapturePoint::Stages,
        stage => CapturePoint::Stage(stage.to_owned()),
    }
}
