//! From a file of rules in nft syntax to what the workers evaluate.

use std::path::PathBuf;
use std::sync::Arc;

use control::Config;
use filter::lang::{Disk, Options, Source};
use filter::packet::{Family, Hook, InterfaceId};
use filter::rules::interface::Interface;
use filter::rules::{Interfaces, Ruleset};

use crate::plan::Plan;

/// Why a file of rules is not in force.
#[derive(Debug, thiserror::Error)]
pub enum RulesError {
    /// It cannot be read.
    #[error("the rules in {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// It is wrong: each fault with file, line, column and remedy.
    #[error("{0}")]
    Language(String),
    /// It asks for what the node does not do.
    #[error("{}: {what} (remove it, or do without the firewall of this node)", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// What that is.
        what: String,
    },
}

/// Rules of a file, compiled.
#[derive(Debug)]
pub struct FileRules {
    /// What workers evaluate.
    pub ruleset: Arc<Ruleset>,
    /// What was read: the file and all that it includes.
    texts: Vec<(String, String)>,
    interfaces: Interfaces,
}

impl FileRules {
    /// The name of an interface as rules number it; `None` for none.
    pub(super) fn interface_name(&self, id: InterfaceId) -> Option<&str> {
        let found = self.interfaces.get(id)?;
        (id != InterfaceId::NONE).then_some(found.name.as_str())
    }
}

/// Reads and compiles the rules of a configuration, if its firewall has any, with the plan's interfaces: names are
/// those of ports and bridges. Gives `old` back if nothing has changed, so that counters and sets go on.
///
/// # Errors
/// The file cannot be read, or what is wrong with it.
pub fn load_rules(
    config: &Config,
    plan: &Plan,
    old: Option<&Arc<FileRules>>,
) -> Result<Option<Arc<FileRules>>, RulesError> {
    let firewall = config.firewall.as_ref();
    let Some(path) = firewall.and_then(|firewall| firewall.rules.clone()) else {
        return Ok(None);
    };
    let text = std::fs::read_to_string(&path).map_err(|source| RulesError::Read {
        path: path.clone(),
        source,
    })?;
    let mut source = Source::default();
    let name = path.to_string_lossy();
    source
        .read(&name, &text, &Disk::default())
        .map_err(|error| RulesError::Language(error.render(&source.sources)))?;
    let files = source.sources.files().iter();
    let texts: Vec<_> = files
        .map(|file| (file.name.clone(), file.text.clone()))
        .collect();
    let interfaces = interfaces(plan);
    let unchanged = old.filter(|old| old.texts == texts && old.interfaces == interfaces);
    if let Some(old) = unchanged {
        return Ok(Some(Arc::clone(old)));
    }
    let options = Options {
        interfaces: interfaces.clone(),
        workers: config.node.cpus.len().max(1),
        loaded_at: io::cpu::now(),
        ..Options::default()
    };
    let ruleset = source.compile(options).map_err(|errors| {
        let rendered = errors.iter().map(|error| error.render(&source.sources));
        RulesError::Language(rendered.collect())
    })?;
    if let Some(what) = unsupported(&ruleset) {
        return Err(RulesError::Unsupported { path, what });
    }
    Ok(Some(Arc::new(FileRules {
        ruleset: Arc::new(ruleset),
        texts,
        interfaces,
    })))
}

/// Compiles rules that are no file's, with the plan's interfaces, for one worker.
pub(super) fn compile_text(name: &str, text: &str, plan: &Plan) -> Result<Ruleset, RulesError> {
    let mut source = Source::default();
    source
        .read(name, text, &Disk::default())
        .map_err(|error| RulesError::Language(error.render(&source.sources)))?;
    let options = Options {
        interfaces: interfaces(plan),
        loaded_at: io::cpu::now(),
        ..Options::default()
    };
    source.compile(options).map_err(|errors| {
        let rendered = errors.iter().map(|error| error.render(&source.sources));
        RulesError::Language(rendered.collect())
    })
}

/// The plan's interfaces by the numbers that the engine uses: their own and 1, 0 is none.
fn interfaces(plan: &Plan) -> Interfaces {
    let mut interfaces = Interfaces::default();
    for interface in &plan.interfaces {
        interfaces.add(Interface {
            name: interface.name.clone(),
            present: true,
            kind: 1,
            ..Interface::default()
        });
    }
    interfaces
}

/// What rules may say and this node does not do: refused rather than ignored.
fn unsupported(ruleset: &Ruleset) -> Option<String> {
    let elsewhere = ruleset.all_base_chains().iter().find(|base| {
        let is_ip = matches!(base.family, Family::Ip | Family::Ip6 | Family::Inet);
        !is_ip || matches!(base.hook, Hook::Ingress | Hook::Egress)
    })?;
    let family = match elsewhere.family {
        Family::Arp => "arp",
        Family::Bridge => "bridge",
        _ => "netdev",
    };
    Some(format!(
        "a base chain at the hooks of {family}: the node asks those of ip, ip6 and inet tables at prerouting, input, \
         forward, output and postrouting"
    ))
}
