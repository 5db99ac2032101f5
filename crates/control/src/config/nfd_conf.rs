//! Reading the configuration file of NFD (`nfd.conf`, Boost's INFO format).

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use super::ndn::{CachePolicy, NdnConfig, NdnKeyConfig, NdnStrategyConfig, UnsolicitedConfig};

/// What a file of NFD asks for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Imported {
    pub(super) ndn: NdnConfig,
    pub(super) strategies: Vec<NdnStrategyConfig>,
    pub(super) keys: Vec<NdnKeyConfig>,
    /// It wants Ethernet faces on every interface.
    pub(super) ethernet: bool,
    /// What it sets and this node does not have, a line each.
    pub(super) notes: Vec<String>,
}

/// An entry: `key value { ... }`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Entry {
    key: String,
    value: String,
    inside: Vec<Entry>,
    line: usize,
}

impl Entry {
    fn get(&self, key: &str) -> Option<&Self> {
        self.inside.iter().find(|entry| entry.key == key)
    }

    fn is_yes(&self, key: &str) -> bool {
        self.get(key).is_none_or(|entry| entry.value != "no")
    }
}

/// Sections and keys that only matter to NFD's own process, or that say what holds here anyway.
const WITHOUT_MEANING: [&str; 2] = ["general", "log"];

/// Reads the text of a file.
///
/// # Errors
/// What is wrong, with the line.
pub(super) fn read(text: &str) -> Result<Imported, String> {
    let top = Entry {
        inside: parse(text)?,
        ..Entry::default()
    };
    let mut out = Imported {
        ndn: NdnConfig::default(),
        strategies: Vec::new(),
        keys: Vec::new(),
        ethernet: false,
        notes: Vec::new(),
    };
    for section in &top.inside {
        match section.key.as_str() {
            "tables" => out.tables(section)?,
            "face_system" => out.face_system(section)?,
            "authorizations" => out.authorizations(section),
            "rib" => out.rib(section),
            "forwarder" => {
                for entry in &section.inside {
                    if entry.key != "default_hop_limit" || entry.value != "0" {
                        out.lacks("forwarder", entry);
                    }
                }
            }
            key if WITHOUT_MEANING.contains(&key) => {}
            _ => out.lacks("", section),
        }
    }
    Ok(out)
}

impl Imported {
    fn lacks(&mut self, section: &str, entry: &Entry) {
        let dot = if section.is_empty() { "" } else { "." };
        self.notes.push(format!(
            "line {}: {section}{dot}{} has no counterpart and is not used",
            entry.line, entry.key
        ));
    }

    fn tables(&mut self, section: &Entry) -> Result<(), String> {
        for entry in &section.inside {
            match entry.key.as_str() {
                "cs_max_packets" => self.ndn.cache_packets = number(entry)?.clamp(1, 1 << 30),
                "cs_policy" => {
                    self.ndn.cache_policy = match entry.value.as_str() {
                        "lru" => CachePolicy::Lru,
                        "priority_fifo" => CachePolicy::PriorityFifo,
                        other => return Err(unknown(entry, other, "lru or priority_fifo")),
                    }
                }
                "cs_unsolicited_policy" => {
                    self.ndn.unsolicited = match entry.value.as_str() {
                        "drop-all" => UnsolicitedConfig::DropAll,
                        "admit-local" => UnsolicitedConfig::AdmitLocal,
                        "admit-network" => UnsolicitedConfig::AdmitNetwork,
                        "admit-all" => UnsolicitedConfig::AdmitAll,
                        other => {
                            let known = "drop-all, admit-local, admit-network or admit-all";
                            return Err(unknown(entry, other, known));
                        }
                    }
                }
                "strategy_choice" => {
                    let choices = entry.inside.iter().map(|choice| NdnStrategyConfig {
                        prefix: choice.key.clone(),
                        strategy: choice.value.clone(),
                    });
                    self.strategies.extend(choices);
                }
                "network_region" => {
                    let regions = entry.inside.iter().map(|region| region.key.clone());
                    self.ndn.regions.extend(regions);
                }
                _ => self.lacks("tables", entry),
            }
        }
        Ok(())
    }

    fn face_system(&mut self, section: &Entry) -> Result<(), String> {
        // What is not there is off.
        let has = |key: &str| section.get(key).is_some();
        if !has("unix") {
            self.ndn.unix.clear();
        }
        if !has("tcp") {
            self.ndn.tcp.clear();
        }
        if !has("udp") {
            self.ndn.udp.clear();
        }
        for entry in &section.inside {
            match entry.key.as_str() {
                "general" => {
                    for inner in &entry.inside {
                        if !(inner.key == "enable_congestion_marking" && inner.value == "yes") {
                            self.lacks("face_system.general", inner);
                        }
                    }
                }
                "unix" => {
                    if let Some(path) = entry.get("path") {
                        self.ndn.unix = vec![path.value.clone().into()];
                    }
                }
                "tcp" => {
                    self.ndn.tcp = addresses(entry, 6363)?;
                    self.lacks_beside(entry, &["listen", "port", "enable_v4", "enable_v6"]);
                }
                "udp" => self.udp(entry)?,
                "websocket" => {
                    self.ndn.websocket = addresses(entry, 9696)?;
                    self.lacks_beside(entry, &["listen", "port", "enable_v4", "enable_v6"]);
                }
                "ether" => {
                    self.ethernet = entry.is_yes("listen") || entry.is_yes("mcast");
                    self.lacks_beside(entry, &["listen", "mcast", "mcast_group", "idle_timeout"]);
                }
                _ => self.lacks("face_system", entry),
            }
        }
        Ok(())
    }

    fn udp(&mut self, entry: &Entry) -> Result<(), String> {
        self.ndn.udp = addresses(entry, 6363)?;
        if let Some(idle) = entry.get("idle_timeout") {
            self.ndn.idle_s = number(idle)?.max(1);
        }
        if entry.get("mcast").is_some_and(|mcast| mcast.value == "yes") {
            self.notes.push(format!(
                "line {}: face_system.udp.mcast: write the interfaces under `udp_multicast` in [ndn]",
                entry.line
            ));
        }
        let known = [
            "listen",
            "port",
            "enable_v4",
            "enable_v6",
            "idle_timeout",
            "mcast",
        ];
        self.lacks_beside(entry, &known);
        Ok(())
    }

    fn lacks_beside(&mut self, entry: &Entry, known: &[&str]) {
        let unknown = entry
            .inside
            .iter()
            .filter(|inner| !known.contains(&inner.key.as_str()));
        for inner in unknown {
            self.lacks(&format!("face_system.{}", entry.key), inner);
        }
    }

    fn authorizations(&mut self, section: &Entry) {
        for entry in &section.inside {
            let Some(certificate) = entry.get("certfile") else {
                self.lacks("authorizations", entry);
                continue;
            };
            let privileges = entry.get("privileges");
            let modules = privileges.into_iter().flat_map(|p| &p.inside);
            self.keys.push(NdnKeyConfig {
                certificate: certificate.value.clone().into(),
                // NFD's RIB has a policy of its own, which is "any" as installed.
                modules: modules
                    .map(|module| module.key.clone())
                    .chain(["rib".to_owned()])
                    .collect(),
            });
        }
    }

    fn rib(&mut self, section: &Entry) {
        for entry in &section.inside {
            let trusts_any = entry
                .get("trust-anchor")
                .and_then(|anchor| anchor.get("type"))
                .is_some_and(|kind| kind.value == "any");
            match entry.key.as_str() {
                "localhost_security" if trusts_any => {}
                "localhop_security" => {
                    self.ndn.localhop = true;
                    if !trusts_any {
                        self.lacks("rib", entry);
                    }
                }
                _ => self.lacks("rib", entry),
            }
        }
    }
}

/// Returns where a TCP, UDP or WebSocket section listens; `default_port` is where no port is said.
fn addresses(entry: &Entry, default_port: u16) -> Result<Vec<SocketAddr>, String> {
    let mut out = Vec::new();
    if !entry.is_yes("listen") {
        return Ok(out);
    }
    let port = match entry.get("port") {
        Some(port) => u16::try_from(number(port)?)
            .map_err(|_| unknown(port, &port.value, "a port, 1 to 65535"))?,
        None => default_port,
    };
    if entry.is_yes("enable_v4") {
        out.push((Ipv4Addr::UNSPECIFIED, port).into());
    }
    if entry.is_yes("enable_v6") {
        out.push((Ipv6Addr::UNSPECIFIED, port).into());
    }
    Ok(out)
}

fn number(entry: &Entry) -> Result<u32, String> {
    let parsed = entry.value.parse();
    parsed.map_err(|_| unknown(entry, &entry.value, "a number"))
}

fn unknown(entry: &Entry, found: &str, wanted: &str) -> String {
    format!(
        "line {}: `{}` is `{found}`; write {wanted}",
        entry.line, entry.key
    )
}

/// Reads entries; braces stand on lines of their own or behind an entry.
fn parse(text: &str) -> Result<Vec<Entry>, String> {
    let mut stack = vec![Entry::default()];
    for (number, line) in text.lines().enumerate() {
        let mut words = words(line).into_iter().peekable();
        while let Some(word) = words.next() {
            let open = stack.len();
            let Some(parent) = stack.last_mut() else {
                break;
            };
            match word.as_str() {
                "{" => {
                    let entry = parent
                        .inside
                        .pop()
                        .ok_or_else(|| format!("line {}: a brace opens nothing", number + 1))?;
                    stack.push(entry);
                }
                "}" if open == 1 => {
                    return Err(format!("line {}: a brace closes nothing", number + 1));
                }
                "}" => {
                    if let Some(entry) = stack.pop()
                        && let Some(parent) = stack.last_mut()
                    {
                        parent.inside.push(entry);
                    }
                }
                _ => {
                    let value = words.next_if(|word| word != "{" && word != "}");
                    parent.inside.push(Entry {
                        key: word,
                        value: value.unwrap_or_default(),
                        inside: Vec::new(),
                        line: number + 1,
                    });
                }
            }
        }
    }
    match stack.pop() {
        Some(top) if stack.is_empty() => Ok(top.inside),
        _ => Err("a brace is not closed at the end".to_owned()),
    }
}

/// Cuts a line into words; `;` begins a comment, quotes hold a word together.
fn words(line: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut word = String::new();
    let mut is_quoted = false;
    for character in line.chars() {
        match character {
            '"' => is_quoted = !is_quoted,
            ';' if !is_quoted => break,
            '{' | '}' if !is_quoted => {
                out.extend((!word.is_empty()).then(|| core::mem::take(&mut word)));
                out.push(character.to_string());
            }
            c if c.is_whitespace() && !is_quoted => {
                out.extend((!word.is_empty()).then(|| core::mem::take(&mut word)));
            }
            c => word.push(c),
        }
    }
    out.extend((!word.is_empty()).then_some(word));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = r#"
; as installed, and a few changes
general { user ndn }
log { default_level INFO }
tables
{
  cs_max_packets 1000
  cs_policy lru
  cs_unsolicited_policy admit-local
  strategy_choice
  {
    /               /localhost/nfd/strategy/best-route
    /ndn/broadcast  "/localhost/nfd/strategy/multicast"
  }
  network_region { /example/region1 }
}
face_system
{
  general { enable_congestion_marking yes }
  unix { path /tmp/nfd.sock }
  tcp { listen yes ; by default
        port 7000 enable_v6 no }
  udp { idle_timeout 30 mcast yes mcast_group 224.0.23.170 }
  websocket { listen yes port 9696 }
}
authorizations
{
  authorize { certfile any privileges { faces fib cs strategy-choice } }
}
rib
{
  localhost_security { trust-anchor { type any } }
  auto_prefix_propagate { cost 15 }
}
"#;

    #[test]
    fn what_nfd_is_told_we_do_or_say_that_we_do_not() {
        let read = read(SAMPLE).unwrap();
        let ndn = &read.ndn;
        assert_eq!(
            (ndn.cache_packets, ndn.cache_policy),
            (1000, CachePolicy::Lru)
        );
        assert_eq!(ndn.unsolicited, UnsolicitedConfig::AdmitLocal);
        assert_eq!(ndn.unix, [std::path::PathBuf::from("/tmp/nfd.sock")]);
        assert_eq!(ndn.tcp, ["0.0.0.0:7000".parse().unwrap()]);
        assert_eq!((ndn.udp.len(), ndn.idle_s), (2, 30));
        assert_eq!(ndn.regions, ["/example/region1"]);
        assert_eq!(read.strategies.len(), 2);
        assert_eq!(read.strategies[1].prefix, "/ndn/broadcast");
        assert_eq!(read.keys[0].certificate.as_os_str(), "any");
        assert!(read.keys[0].modules.contains(&"rib".to_owned()));
        assert!(!read.ethernet);
        let notes = read.notes.join("\n");
        let websocket = ["0.0.0.0:9696", "[::]:9696"];
        assert_eq!(ndn.websocket, websocket.map(|at| at.parse().unwrap()));
        for what in ["udp.mcast:", "udp.mcast_group", "auto_prefix_propagate"] {
            assert!(notes.contains(what), "{what} in {notes}");
        }
        assert_eq!(read.notes.len(), 3, "{notes}");
    }

    #[test]
    fn faults_name_the_line() {
        for (text, wanted) in [
            (
                "tables {\n cs_policy arc\n}",
                "line 2: `cs_policy` is `arc`",
            ),
            ("tables {\n cs_max_packets many\n}", "line 2"),
            ("tables {", "not closed"),
            ("}\n", "line 1: a brace closes nothing"),
            ("{\n}", "line 1: a brace opens nothing"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(wanted), "{text:?}: {error}");
        }
    }
}
