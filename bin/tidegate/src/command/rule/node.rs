//! The node that is rehearsed: a configuration's, or one of a few networks.

use std::path::Path;

use control::Config;
use control::config;
use dataplane::firewall::{RehearseError, Rehearsed};

use crate::cli::RehearsalArgs;
use crate::command::check;
use crate::exit::{Exit, Failure};

/// Loads what the arguments name.
pub(super) fn config_of(args: &RehearsalArgs) -> Result<Config, Failure> {
    if args.net.is_empty() {
        return check::load(&args.config);
    }
    let text = of_networks(&args.net).map_err(|what| {
        Failure::message(Exit::Usage, what)
            .remedy("write --net NAME=ADDRESS/LENGTH, e.g. --net lan=10.0.0.1/24")
    })?;
    config::parse("--net", &text).map_err(|error| {
        let first = error
            .problems()
            .first()
            .map(|problem| problem.message.clone());
        Failure::message(Exit::Usage, first.unwrap_or_else(|| error.to_string()))
            .remedy("write --net NAME=ADDRESS/LENGTH, e.g. --net lan=10.0.0.1/24")
    })
}

/// A configuration of these networks; all else lies behind the last one.
fn of_networks(nets: &[String]) -> Result<String, String> {
    let mut ports: Vec<(&str, Vec<&str>)> = Vec::new();
    for net in nets {
        let (name, address) = net
            .split_once('=')
            .ok_or_else(|| format!("`{net}` names no port"))?;
        let is_plain = |text: &str| !text.contains(['"', '\\', '\n']);
        if name.is_empty() || !is_plain(name) || !is_plain(address) {
            return Err(format!("`{net}` is no name and network"));
        }
        match ports.iter_mut().find(|(known, _)| *known == name) {
            Some((_, addresses)) => addresses.push(address),
            None => ports.push((name, vec![address])),
        }
    }
    let mut text = String::new();
    for (name, addresses) in &ports {
        let list: Vec<String> = addresses.iter().map(|one| format!("\"{one}\"")).collect();
        let list = list.join(", ");
        text.push_str(&format!(
            "[[port]]\nname = \"{name}\"\ndriver = \"mem\"\naddresses = [{list}]\n"
        ));
    }
    let last = ports.last().map_or("", |(name, _)| *name);
    for to in ["0.0.0.0/0", "::/0"] {
        text.push_str(&format!("[[route]]\nto = \"{to}\"\nport = \"{last}\"\n"));
    }
    Ok(text)
}

/// Makes the firewall with the configuration's rules, or with others.
pub(super) fn rehearse(config: &Config, rules: Option<&Path>) -> Result<Rehearsed, Failure> {
    Rehearsed::new(config, rules).map_err(|error| {
        let failure = Failure::new(Exit::Failed, error_text(&error));
        match error {
            RehearseError::NoFirewall => {
                failure.remedy("name a file of rules, e.g. --rules rules.nft")
            }
            _ => failure,
        }
    })
}

/// An error with its cause, as one.
fn error_text(error: &RehearseError) -> anyhow::Error {
    let cause =
        std::error::Error::source(error).map_or(String::new(), |cause| format!(": {cause}"));
    anyhow::anyhow!("{}{cause}", error.to_string().trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_make_a_configuration() {
        let nets = [
            "lan=10.0.0.1/24",
            "wan=203.0.113.1/24",
            "lan=2001:db8::1/64",
        ];
        let text = of_networks(&nets.map(str::to_owned)).unwrap();
        let config = config::parse("--net", &text).unwrap();
        assert_eq!((config.port.len(), config.route.len()), (2, 2));
        assert_eq!(config.port[0].addresses.len(), 2);
        assert!(of_networks(&["10.0.0.0/8".to_owned()]).is_err());
    }
}
