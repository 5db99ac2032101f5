//! From `[firewall.guard]` to the guard of the workers: thresholds, and blocklists read from files.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use control::Config;
use control::config::{ChallengeConfig, GuardConfig};
use filter::guard::blocklist::{Blocklist, Feed};
use filter::guard::{Challenge, GuardPolicy};

/// Why the guard's blocklists are not in force.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// A file cannot be read.
    #[error("the blocklist {}: {source} (give the file, or remove it from `blocklists`)", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// A line is no address.
    #[error(
        "{}:{line}: `{text}` is neither an address nor a prefix{more} (mend the line, or begin it with `#`)",
        path.display()
    )]
    Line {
        /// The file.
        path: PathBuf,
        /// Its number, from 1.
        line: usize,
        /// What stands there.
        text: String,
        /// How many more there are.
        more: String,
    },
    /// More prefixes than the tables hold.
    #[error("the blocklists: {0} (give fewer prefixes)")]
    Build(#[from] tables::lpm::LpmError),
}

/// What the guard of every worker goes by; published with the routes.
#[derive(Debug)]
pub struct GuardSettings {
    /// Thresholds.
    pub policy: GuardPolicy,
    /// Who is refused whatever it sends.
    pub blocklist: Option<Arc<Blocklist>>,
    /// What the files held.
    digest: u64,
}

/// Reads the blocklists of a configuration's guard, if it has one. A list that has not changed is taken over from
/// `old`.
///
/// # Errors
/// A file cannot be read, or what is wrong with it.
pub fn load_guard(
    config: &Config,
    old: Option<&Arc<GuardSettings>>,
) -> Result<Option<Arc<GuardSettings>>, GuardError> {
    let firewall = config.firewall.as_ref();
    let Some(guard) = firewall.and_then(|firewall| firewall.guard.as_ref()) else {
        return Ok(None);
    };
    let policy = policy(guard);
    if guard.blocklists.is_empty() {
        return Ok(Some(Arc::new(GuardSettings {
            policy,
            blocklist: None,
            digest: 0,
        })));
    }
    let mut texts = Vec::new();
    for path in &guard.blocklists {
        let text = std::fs::read_to_string(path).map_err(|source| GuardError::Read {
            path: path.clone(),
            source,
        })?;
        texts.push((path.as_path(), text));
    }
    let mut hasher = DefaultHasher::new();
    texts.hash(&mut hasher);
    let digest = hasher.finish();
    let unchanged = old
        .filter(|old| old.digest == digest)
        .and_then(|old| old.blocklist.clone());
    let blocklist = match unchanged {
        Some(list) => list,
        None => Arc::new(build(&texts)?),
    };
    Ok(Some(Arc::new(GuardSettings {
        policy,
        blocklist: Some(blocklist),
        digest,
    })))
}

fn build(texts: &[(&Path, String)]) -> Result<Blocklist, GuardError> {
    let start = std::time::Instant::now();
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    for (feed, (path, text)) in (0..).zip(texts) {
        let read = Blocklist::read(text, feed);
        if let Some(&line) = read.bad_lines.first() {
            return Err(bad_line(path, text, line, &read));
        }
        v4.extend(read.v4);
        v6.extend(read.v6);
    }
    let list = Blocklist::build(&v4, &v6)?;
    tracing::info!(
        prefixes = list.len(),
        took_ms = start.elapsed().as_millis() as u64,
        "blocklists read"
    );
    Ok(list)
}

fn bad_line(path: &Path, text: &str, line: usize, read: &Feed) -> GuardError {
    let written = text.lines().nth(line - 1).unwrap_or_default().trim();
    GuardError::Line {
        path: path.to_owned(),
        line,
        text: written.chars().take(60).collect(),
        more: match read.bad_lines.len() {
            1 => String::new(),
            all => format!(", and {} lines more", all - 1),
        },
    }
}

pub(super) fn policy(guard: &GuardConfig) -> GuardPolicy {
    GuardPolicy {
        source_packets: guard.source_pkts_per_s,
        destination_packets: guard.destination_pkts_per_s,
        source_connections: guard.source_connections_per_s,
        destination_connections: guard.destination_connections_per_s,
        challenge: match guard.challenge {
            ChallengeConfig::Cookie => Challenge::Cookie,
            ChallengeConfig::Retry => Challenge::Retry,
        },
        scan: guard.scan_endpoints,
        hold_off_s: guard.hold_off_s,
        ..GuardPolicy::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use control::config::FirewallConfig;

    #[test]
    fn lists_are_read_once_and_a_bad_line_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("list");
        std::fs::write(&path, "# feed\n192.0.2.0/24\n2001:db8::/32\n").unwrap();
        let guard = GuardConfig {
            blocklists: vec![path.clone()],
            ..GuardConfig::default()
        };
        let config = Config {
            firewall: Some(FirewallConfig {
                guard: Some(guard),
                ..toml::from_str("inside = \"lan\"").unwrap()
            }),
            ..Config::default()
        };
        let first = load_guard(&config, None).unwrap().unwrap();
        let list = first.blocklist.as_ref().unwrap();
        assert_eq!(list.len(), 2);
        let second = load_guard(&config, Some(&first)).unwrap().unwrap();
        assert!(Arc::ptr_eq(list, second.blocklist.as_ref().unwrap()));
        std::fs::write(&path, "192.0.2.0/24\nhost.example\nx\n").unwrap();
        let error = load_guard(&config, Some(&first)).unwrap_err().to_string();
        let wanted = format!(
            "{}:2: `host.example` is neither an address nor a prefix, and 1 lines more",
            path.display()
        );
        assert!(error.starts_with(&wanted), "{error}");
    }
}
