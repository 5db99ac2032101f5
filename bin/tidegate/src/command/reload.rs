//! `tidegate reload`: the node reads its configuration file again.

use control::api::{Reply, Request};
use control::socket::{Client, ClientError};

use crate::cli::Global;
use crate::exit::Failure;
use crate::output;

pub(crate) fn run(global: &Global) -> Result<(), Failure> {
    let reply = Client::connect(&global.socket)?.request(&Request::Reload)?;
    let Reply::Reloaded {
        generation,
        needs_restart,
    } = &reply
    else {
        return Err(ClientError::Protocol.into());
    };
    if global.json {
        return output::print_json(&reply);
    }
    let mut text = format!("configuration {generation} is in force\n");
    for key in needs_restart {
        text.push_str(&format!("{key} takes effect at the next start\n"));
    }
    output::print(&text)
}
