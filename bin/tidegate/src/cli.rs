//! The command line: one definition, from which the parser, the help, the manual pages and the shell
//! completions come.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use control::api::AddressRange;

const EXIT_CODES: &str = "Exit codes:
  0  done
  1  failed
  2  wrong usage
  3  no node answers on the control socket
  4  refused: this user or this machine may not do it
  5  what was named does not exist";

/// A software data plane: turns a Linux machine into a fast, safe network node.
///
/// Workers poll under load and sleep when idle; packets go by AF_XDP where the kernel allows it, by
/// AF_PACKET elsewhere. `tidegate demo` shows it at work without touching the machine's network.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, after_help = EXIT_CODES, max_term_width = 100)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every command.
#[derive(Clone, Debug, Args)]
pub(crate) struct Global {
    /// Writes results to stdout as JSON, one schema for all commands.
    #[arg(long, global = true, help_heading = "Global options")]
    pub(crate) json: bool,
    /// When to colour; `auto` obeys NO_COLOR and CLICOLOR_FORCE.
    #[arg(
        long,
        global = true,
        value_enum,
        default_value = "auto",
        value_name = "WHEN"
    )]
    #[arg(help_heading = "Global options")]
    pub(crate) color: ColorWhen,
    /// Control socket of the node to ask.
    #[arg(long, global = true, env = "TIDEGATE_SOCKET", value_name = "PATH")]
    #[arg(default_value = "/run/tidegate/control.sock", value_hint = ValueHint::FilePath)]
    #[arg(help_heading = "Global options")]
    pub(crate) socket: PathBuf,
    /// Form of the log on stderr.
    #[arg(
        long,
        global = true,
        value_enum,
        default_value = "logfmt",
        value_name = "FORM"
    )]
    #[arg(help_heading = "Global options")]
    pub(crate) log_format: LogFormat,
    /// What is logged: a level, or `target=level` pairs with commas.
    #[arg(long, global = true, env = "TIDEGATE_LOG", value_name = "FILTER")]
    #[arg(help_heading = "Global options")]
    pub(crate) log: Option<String>,
}

/// When to colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorWhen {
    /// On a terminal.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Form of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// key=value pairs.
    Logfmt,
    /// One JSON object a line.
    Json,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Runs the node in the foreground until SIGTERM or SIGINT.
    ///
    /// SIGHUP reads the configuration again; SIGUSR1 writes the counters to the log. Under systemd it
    /// reports readiness, reloads and its watchdog by sd_notify.
    Run(RunArgs),
    /// Checks a configuration file without touching the network.
    Check(CheckArgs),
    /// Tells what this machine allows, and what to do where it does not.
    Doctor(DoctorArgs),
    /// Shows a node at work: real programs' packets through network namespaces of its own.
    ///
    /// Makes namespaces client - node - server, starts a node in the middle and sends a ping, an HTTP
    /// download and a UDP stream of kernel programs through it; its firewall masquerades them, and stops a
    /// port scan and a SYN flood. Runs as root (AF_XDP) or as an
    /// ordinary user (AF_PACKET in a user namespace); leaves nothing behind. On a terminal it runs
    /// until a key is pressed.
    Demo(DemoArgs),
    /// Prints the counters of a running node.
    Stats(StatsArgs),
    /// Shows rates of a running node, live.
    Top(TopArgs),
    /// Writes packets of a running node as pcapng, with the place and the drop reason of each.
    ///
    /// Live in Wireshark: tidegate capture | wireshark -k -i -
    Capture(CaptureArgs),
    /// Ports of a running node.
    #[command(subcommand)]
    Port(List),
    /// Routes of a running node.
    #[command(subcommand)]
    Route(List),
    /// Neighbours (ARP and NDP) of a running node.
    #[command(subcommand)]
    Neighbour(List),
    /// Connections that the firewall of a running node tracks.
    #[command(subcommand)]
    Session(Session),
    /// Bridges of a running node, with the stations that they have learnt.
    #[command(subcommand)]
    Bridge(List),
    /// Manages an NDN forwarder, and uses it: peek, ping, get, put and more.
    Ndn(crate::command::ndn::Ndn),
    /// Tells what the firewall does with a packet, hook by hook, and why; no node need run.
    ///
    /// Each argument is a packet, quoted: 'iif=lan tcp 10.0.0.2:1234 > 1.2.3.4:80 syn'. A later packet meets the
    /// connections of the earlier ones. The engine is the node's own, with empty tables.
    Explain(ExplainArgs),
    /// Rules of the firewall: lists, compares, tries and applies them.
    #[command(subcommand)]
    Rule(Rule),
    /// Measures this program as a node, or any device between two interfaces.
    #[command(subcommand)]
    Bench(crate::command::bench::Bench),
    /// Makes a running node read its configuration file again.
    Reload,
    /// Prints shell completions.
    Completions(CompletionsArgs),
    /// Writes the manual pages.
    Man(ManArgs),
}

/// A listing.
#[derive(Clone, Copy, Debug, Subcommand)]
pub(crate) enum List {
    /// Lists them.
    Ls,
}

/// What to do with connections.
#[derive(Debug, Subcommand)]
pub(crate) enum Session {
    /// Lists them, one a line, as conntrack does.
    ///
    /// For example: tidegate session ls -p tcp -s 10.0.0.0/8 --dport 443 --state established
    Ls(SessionLs),
    /// Prints one line for each connection that is opened or ends, until interrupted.
    Events(SessionMatch),
    /// Ends connections: the next packet of one is judged as the first of a new one.
    Rm(SessionRm),
}

#[derive(Debug, Args)]
pub(crate) struct SessionLs {
    #[command(flatten)]
    pub(crate) which: SessionMatch,
    /// Prints how many there are, by protocol and state, not each of them.
    #[arg(long)]
    pub(crate) count: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SessionRm {
    #[command(flatten)]
    pub(crate) which: SessionMatch,
    /// Ends all connections; without it, some filter is required.
    #[arg(long)]
    pub(crate) all: bool,
}

/// Which connections; each option narrows.
#[derive(Clone, Debug, Args)]
pub(crate) struct SessionMatch {
    /// IP protocol: tcp, udp, icmp, icmpv6, sctp, dccp, gre, esp, or a number.
    #[arg(short = 'p', long = "proto", value_name = "PROTOCOL", value_parser = parse_protocol)]
    pub(crate) protocol: Option<u8>,
    /// Original source: an address or prefix.
    #[arg(short = 's', long = "src", value_name = "PREFIX")]
    pub(crate) source: Option<AddressRange>,
    /// Original destination: an address or prefix.
    #[arg(short = 'd', long = "dst", value_name = "PREFIX")]
    pub(crate) destination: Option<AddressRange>,
    /// Any of the addresses, translated ones too.
    #[arg(short = 'a', long = "address", value_name = "PREFIX")]
    pub(crate) address: Option<AddressRange>,
    /// Original source port.
    #[arg(long = "sport", value_name = "PORT")]
    pub(crate) source_port: Option<u16>,
    /// Original destination port.
    #[arg(long = "dport", value_name = "PORT")]
    pub(crate) destination_port: Option<u16>,
    /// Any of the ports, translated ones too.
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<u16>,
    /// TCP state, such as established or syn_sent.
    #[arg(long, value_name = "STATE")]
    pub(crate) state: Option<String>,
    /// Mark.
    #[arg(long, value_name = "MARK")]
    pub(crate) mark: Option<u32>,
    /// Zone.
    #[arg(long, value_name = "ZONE")]
    pub(crate) zone: Option<u16>,
    /// Translated ones only.
    #[arg(long)]
    pub(crate) nat: bool,
}

/// What to do with rules.
#[derive(Debug, Subcommand)]
pub(crate) enum Rule {
    /// Tells what changes from one file of rules to another.
    Diff(RuleDiffArgs),
    /// Tells which flows of a capture other rules would treat differently, and which line is responsible.
    Try(RuleTryArgs),
    /// Lists the rules of a running node, with what their counters say.
    Ls,
    /// Puts a file of rules in force in a running node, between two packets; connections go on.
    ///
    /// Until the node reads its configuration again: to keep them, put them into the file that the configuration
    /// names.
    Apply(RuleApplyArgs),
    /// The rules that were applied with --confirm stay.
    Confirm,
    /// The rules from before `apply --confirm` come back at once.
    Rollback,
    /// Lists the live connections of a running node that a file of rules would not let start.
    Rematch(RuleRematchArgs),
}

/// A file of rules to hold live connections against.
#[derive(Debug, Args)]
pub(crate) struct RuleRematchArgs {
    /// The rules, in nft syntax.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Ends them: their next packets are judged by the rules in force, as the first ones of new connections.
    #[arg(long)]
    pub(crate) end: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RuleApplyArgs {
    /// The rules, in nft syntax.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// The old rules come back after so many seconds, unless `tidegate rule confirm` comes first.
    #[arg(long, value_name = "SECONDS", value_parser = parse_interval)]
    pub(crate) confirm: Option<std::time::Duration>,
    /// Lists the live connections that the new rules would deny, first.
    #[arg(long)]
    pub(crate) rematch: bool,
    /// Ends these connections once the new rules are in force; they do not come back with the old rules.
    #[arg(long, requires = "rematch")]
    pub(crate) end: bool,
}

/// The node whose firewall is rehearsed.
#[derive(Debug, Args)]
pub(crate) struct RehearsalArgs {
    /// Configuration file: ports, addresses, routes, and the rules unless others are named.
    #[arg(
        short,
        long,
        value_name = "FILE",
        default_value = "/etc/tidegate/node.toml"
    )]
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) config: PathBuf,
    /// Instead of a configuration: a port, the node's address there, and the network's length. The rest of the
    /// world lies behind the last one.
    #[arg(long, value_name = "NAME=ADDRESS/LENGTH")]
    pub(crate) net: Vec<String>,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(true).args(["packets", "pcap"]))]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    pub(crate) node: RehearsalArgs,
    /// Rules instead of the configuration's.
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) rules: Option<PathBuf>,
    /// Explains the packets of a capture (pcap or pcapng), before those in words.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) pcap: Option<PathBuf>,
    /// Shows only this packet of the capture, from 1.
    #[arg(short = 'n', long = "number", value_name = "NUMBER", requires = "pcap")]
    pub(crate) packet_number: Option<u64>,
    /// A packet in words, e.g. 'iif=lan tcp 10.0.0.2:1234 > 1.2.3.4:80 syn'.
    #[arg(value_name = "PACKET")]
    pub(crate) packets: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RuleDiffArgs {
    /// The old rules.
    #[arg(value_name = "OLD", value_hint = ValueHint::FilePath)]
    pub(crate) old: PathBuf,
    /// The new rules.
    #[arg(value_name = "NEW", value_hint = ValueHint::FilePath)]
    pub(crate) new: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct RuleTryArgs {
    #[command(flatten)]
    pub(crate) node: RehearsalArgs,
    /// The traffic: a capture (pcap or pcapng), taken inside or in front of the node.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) pcap: PathBuf,
    /// The old rules; without it, the configuration's.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) against: Option<PathBuf>,
    /// The new rules.
    #[arg(value_name = "NEW", value_hint = ValueHint::FilePath)]
    pub(crate) new: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Configuration file.
    #[arg(
        short,
        long,
        value_name = "FILE",
        default_value = "/etc/tidegate/node.toml"
    )]
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) config: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Configuration file.
    #[arg(
        short,
        long,
        value_name = "FILE",
        default_value = "/etc/tidegate/node.toml"
    )]
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) config: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Interfaces to look at; without them, all Ethernet interfaces that are up.
    #[arg(value_name = "INTERFACE")]
    pub(crate) interfaces: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Seconds to run where there is no terminal, or to end at on one.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(4..=3600))]
    pub(crate) seconds: Option<u32>,
    /// Packet driver of the node.
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) driver: DemoDriver,
    /// Shows named data instead: consumer - node - producer over Ethernet frames, with the node's hits, pending
    /// Interests and FIB.
    #[arg(long)]
    pub(crate) ndn: bool,
}

/// Driver of the demo's node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DemoDriver {
    /// AF_XDP, or AF_PACKET where it is refused.
    Auto,
    /// AF_XDP or nothing.
    AfXdp,
    /// AF_PACKET.
    AfPacket,
}

#[derive(Debug, Args)]
pub(crate) struct StatsArgs {
    /// Prints them again every so many seconds (JSON: one object a line).
    #[arg(short, long, value_name = "SECONDS", value_parser = parse_interval)]
    pub(crate) watch: Option<std::time::Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Seconds between two readings.
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = parse_interval)]
    pub(crate) interval: std::time::Duration,
    /// Ends after so many readings.
    #[arg(short = 'n', long, value_name = "COUNT")]
    pub(crate) count: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct CaptureArgs {
    /// Where to capture, with commas: `rx`, `tx`, `drop`, `stages`, or a stage such as `ip4-forward`.
    #[arg(
        long = "at",
        value_name = "POINT",
        value_delimiter = ',',
        default_value = "rx,tx,drop"
    )]
    pub(crate) points: Vec<String>,
    /// Ports to capture on, with commas; without it all.
    #[arg(short, long, value_name = "PORT", value_delimiter = ',')]
    pub(crate) port: Vec<String>,
    /// File to write; `-` is stdout.
    #[arg(short, long, value_name = "FILE", default_value = "-", value_hint = ValueHint::FilePath)]
    pub(crate) write: PathBuf,
    /// Ends after so many packets.
    #[arg(
        short = 'c',
        long,
        value_name = "COUNT",
        default_value = "0",
        hide_default_value = true
    )]
    pub(crate) count: u64,
    /// Keeps so many bytes of each packet.
    #[arg(
        short,
        long,
        value_name = "BYTES",
        default_value = "0",
        hide_default_value = true
    )]
    pub(crate) snap: u32,
    /// Which packets, in tcpdump's words: hosts, networks, ports, protocols, VLANs; `and`, `or`, `not`.
    ///
    /// For example `host 192.0.2.7 and not tcp port 22`. VLAN tags hide nothing: `tcp` finds tagged packets,
    /// too, and `vlan 5` may stand anywhere.
    #[arg(value_name = "FILTER")]
    pub(crate) filter: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Directory to write all pages to; without it, tidegate(1) goes to stdout.
    #[arg(value_name = "DIRECTORY", value_hint = ValueHint::DirPath)]
    pub(crate) directory: Option<PathBuf>,
}

/// Names of IP protocols that connections have (IANA's keywords).
pub(crate) const PROTOCOLS: [(&str, u8); 8] = [
    ("icmp", 1),
    ("tcp", 6),
    ("udp", 17),
    ("dccp", 33),
    ("gre", 47),
    ("esp", 50),
    ("icmpv6", 58),
    ("sctp", 132),
];

fn parse_protocol(text: &str) -> Result<u8, String> {
    let named = PROTOCOLS.iter().find(|(name, _)| *name == text);
    named
        .map(|(_, number)| *number)
        .or_else(|| text.parse().ok())
        .ok_or_else(|| "neither the name nor the number of an IP protocol".to_owned())
}

/// Reads seconds, fractions allowed, from 0.05 to a day.
fn parse_interval(text: &str) -> Result<std::time::Duration, String> {
    let seconds: f64 = text
        .strip_suffix('s')
        .unwrap_or(text)
        .parse()
        .map_err(|_| "not a number of seconds".to_owned())?;
    if (0.05..=86_400.0).contains(&seconds) {
        Ok(std::time::Duration::from_secs_f64(seconds))
    } else {
        Err("must be 0.05 to 86400 seconds".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn definition_is_sound() {
        super::Cli::command().debug_assert();
    }
}
