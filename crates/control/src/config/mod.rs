//! The node's configuration: one TOML file.
//!
//! [`load`] reads a file and checks all of it; what is wrong comes back as a [`ConfigError`] that
//! shows the place, the cause and one remedy a problem.

mod error;
mod explain;
mod firewall;
pub mod keys;
mod locate;
mod ndn;
mod nfd_conf;
mod schema;
mod validate;

use std::path::Path;

pub use error::{ConfigError, Finding, Problem};
pub use firewall::{
    CgnConfig, ChallengeConfig, FilteringConfig, FirewallConfig, GuardConfig, Nptv6Config,
};
pub use ndn::{
    CachePolicy, KernelCacheConfig, KernelCacheMode, NdnConfig, NdnFaceConfig, NdnKeyConfig,
    NdnRouteConfig, NdnStrategyConfig, UnsolicitedConfig,
};
pub use schema::{
    BridgeConfig, Config, DpdkConfig, DriverConfig, HostConfig, HugePagesConfig, IdleConfig,
    IdleMode, LinkConfig, NeighbourConfig, NodeConfig, PortConfig, RouteConfig,
};

/// Reads and checks a configuration file.
///
/// # Errors
/// The file cannot be read, is not TOML, has keys or values that the schema does not know, or
/// contradicts itself.
pub fn load(path: &Path) -> Result<Config, ConfigError> {
    let (file, text) = (path.display().to_string(), read(path)?);
    let mut config = parse(&file, &text)?;
    import_nfd_conf(&mut config, path, &text)?;
    // A file of rules lies beside the configuration, wherever the program runs.
    if let Some(rules) = config.firewall.as_mut().and_then(|f| f.rules.as_mut())
        && let Some(directory) = path.parent()
    {
        *rules = directory.join(&*rules);
    }
    let guard = config.firewall.as_mut().and_then(|f| f.guard.as_mut());
    if let Some(directory) = path.parent() {
        for list in guard.into_iter().flat_map(|guard| &mut guard.blocklists) {
            *list = directory.join(&*list);
        }
    }
    // Connections are kept beside the control socket, if that is a place in memory.
    let socket = &config.node.control_socket;
    if let Some(firewall) = &mut config.firewall
        && firewall.state.is_none()
        && let Some(directory) = socket.parent()
        && is_in_memory(directory)
    {
        firewall.state = Some(socket.with_extension("state"));
    }
    Ok(config)
}

/// Tells whether files in a directory are memory: the kernel does not write them to a disk.
fn is_in_memory(directory: &Path) -> bool {
    /// `include/uapi/linux/magic.h`.
    const TMPFS_MAGIC: u64 = 0x0102_1994;
    rustix::fs::statfs(directory).is_ok_and(|found| found.f_type as u64 == TMPFS_MAGIC)
}

/// Takes from a file of NFD what `[ndn]` does not say itself, if it names one.
fn import_nfd_conf(config: &mut Config, path: &Path, text: &str) -> Result<(), ConfigError> {
    let named = config.ndn.as_ref().and_then(|ndn| ndn.nfd_conf.clone());
    let Some(named) = named else {
        return Ok(());
    };
    let directory = path.parent().unwrap_or(Path::new(""));
    let nfd_conf = directory.join(&named);
    let invalid = |message: String| {
        let span = locate::Places::new(text).of("ndn.nfd_conf");
        let remedy = "correct it, or remove `nfd_conf`";
        ConfigError::Invalid {
            file: path.display().to_string(),
            text: text.to_owned(),
            problems: vec![Problem::new(text, span, message, "a file of NFD", remedy)],
        }
    };
    let imported = nfd_conf::read(&read(&nfd_conf)?)
        .map_err(|error| invalid(format!("{}: {error}", nfd_conf.display())))?;
    // What this file says itself, not its defaults.
    let own: Option<toml::Table> = toml::from_str::<toml::Table>(text)
        .ok()
        .and_then(|mut table| table.remove("ndn"))
        .and_then(|ndn| ndn.try_into().ok());
    let mut merged = toml::Table::try_from(&imported.ndn).unwrap_or_default();
    let own = own.unwrap_or_default();
    let chooses_ethernet = own.contains_key("ethernet");
    merged.extend(own);
    let mut ndn: NdnConfig = merged
        .try_into()
        .map_err(|error: toml::de::Error| invalid(error.message().to_owned()))?;
    if imported.ethernet && !chooses_ethernet {
        let joined = |name: &String| {
            config
                .bridge
                .iter()
                .any(|bridge| bridge.ports.contains(name))
                || config.link.iter().any(|link| link.ports.contains(name))
        };
        let ports = config.port.iter().map(|port| port.name.clone());
        ndn.ethernet = ports.filter(|name| !joined(name)).collect();
    }
    config.ndn = Some(ndn);
    config.ndn_strategy.splice(0..0, imported.strategies);
    config
        .ndn_key
        .extend(imported.keys.into_iter().map(|mut key| {
            if key.certificate.as_os_str() != "any"
                && let Some(directory) = nfd_conf.parent()
            {
                key.certificate = directory.join(&key.certificate);
            }
            key
        }));
    let name = nfd_conf.display();
    let notes = imported.notes.iter();
    config.notes = notes.map(|note| format!("{name}: {note}")).collect();
    match &check(config)[..] {
        [] => Ok(()),
        [first, ..] => Err(invalid(format!("{name}: {first}"))),
    }
}

/// Reads a configuration file's text.
///
/// # Errors
/// The file cannot be read, or is not UTF-8.
pub fn read(path: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
        file: path.display().to_string(),
        source,
    })
}

/// Checks a configuration; `file` is its name in messages.
///
/// # Errors
/// As [`load`], but for reading.
pub fn parse(file: &str, text: &str) -> Result<Config, ConfigError> {
    let invalid = |problems| ConfigError::Invalid {
        file: file.to_owned(),
        text: text.to_owned(),
        problems,
    };
    let config: Config =
        toml::from_str(text).map_err(|error| invalid(vec![explain::explain(text, &error)]))?;
    let places = locate::Places::new(text);
    let problems = validate::validate(&config, text, &places);
    if problems.is_empty() {
        Ok(config)
    } else {
        Err(invalid(problems))
    }
}

/// Checks a configuration that a program made, without a file: what [`parse`] checks behind the schema.
/// Returns all that is wrong.
pub fn check(config: &Config) -> Vec<Finding> {
    let mut found = validate::check(config);
    for finding in &mut found {
        finding.path = bracketed(&finding.path);
    }
    found
}

/// Writes `port.0.addresses.1` as `port[0].addresses[1]`.
fn bracketed(path: &str) -> String {
    let mut out = String::new();
    for part in path.split('.') {
        if part.parse::<usize>().is_ok() {
            out.push_str(&format!("[{part}]"));
        } else {
            if !out.is_empty() {
                out.push('.');
            }
            out.push_str(part);
        }
    }
    out
}

impl Config {
    /// Writes the configuration as TOML that [`parse`] reads back to an equal one.
    ///
    /// # Panics
    /// Never: every value of the schema has a TOML form.
    pub fn to_toml(&self) -> String {
        toml::to_string_pretty(self).expect("every value of the schema has a TOML form")
    }
}
