//! The command line of `tidegate ndn`: nfdc's verbs, and the tools.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use wire::ndn::name::Name;

/// Named data: manages an NDN forwarder, and uses it.
#[derive(Debug, Args)]
pub(crate) struct Ndn {
    /// How the forwarder is reached, e.g. `unix:///run/nfd/nfd.sock` or `tcp://127.0.0.1:6363`.
    ///
    /// Without it, NDN_CLIENT_TRANSPORT and the key `transport` of client.conf (in ~/.ndn, /usr/local/etc/ndn and
    /// /etc/ndn) say it; without these, it is the Unix socket of the forwarder.
    #[arg(
        long,
        global = true,
        value_name = "FACEURI",
        env = "NDN_CLIENT_TRANSPORT"
    )]
    pub(super) transport: Option<String>,
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Faces of the forwarder.
    #[command(subcommand)]
    Face(Face),
    /// Routes of the forwarder.
    #[command(subcommand)]
    Route(Route),
    /// The content store.
    #[command(subcommand)]
    Cs(Cs),
    /// Forwarding strategies of prefixes.
    #[command(subcommand)]
    Strategy(Strategy),
    /// Version, uptime, tables and counters of the forwarder.
    Status,
    /// Fetches one Data packet and writes its content to stdout.
    Peek(Peek),
    /// Serves stdin as one Data packet to the first who asks.
    Poke(Poke),
    /// Measures the round-trip time to a `pingserver`.
    Ping(Ping),
    /// Answers `ping`.
    Pingserver(Pingserver),
    /// Fetches a segmented object and writes it to a file or stdout.
    Get(Get),
    /// Serves a file, or stdin, as a segmented object.
    Put(Put),
    /// Load: asks for many names, or serves them, and counts.
    #[command(subcommand)]
    Traffic(Traffic),
}

#[derive(Debug, Subcommand)]
pub(super) enum Face {
    /// Lists faces with their counters.
    #[command(alias = "ls")]
    List {
        /// Faces with this FaceUri at the other end.
        #[arg(long, value_name = "FACEURI")]
        remote: Option<String>,
        /// Faces of this scheme, e.g. `udp4`.
        #[arg(long)]
        scheme: Option<String>,
    },
    /// Shows one face.
    Show {
        /// Its number or FaceUri.
        face: String,
    },
    /// Makes a face.
    Create(FaceCreate),
    /// Removes a face.
    Destroy {
        /// Its number or FaceUri.
        face: String,
    },
    /// Lists where the forwarder listens.
    Channels,
    /// Writes what happens to faces, until interrupted.
    Events {
        /// Ends after so many events.
        #[arg(short = 'n', long, value_name = "COUNT")]
        count: Option<u64>,
    },
}

#[derive(Debug, Args)]
pub(super) struct FaceCreate {
    /// FaceUri of the other end, e.g. `udp://192.0.2.9` or `ether://[02:00:00:00:00:09]`.
    pub(super) remote: String,
    /// FaceUri of this end, e.g. `dev://eth0`.
    #[arg(long, value_name = "FACEURI")]
    pub(super) local: Option<String>,
    /// When the face goes away.
    #[arg(long, value_enum)]
    pub(super) persistency: Option<PersistencyArg>,
    /// Bytes of the longest link packet.
    #[arg(long, value_name = "BYTES")]
    pub(super) mtu: Option<u64>,
    /// Acknowledges and retransmits on the link.
    #[arg(long, value_enum)]
    pub(super) reliability: Option<Switch>,
    /// Marks packets when the queue stays long.
    #[arg(long, value_enum)]
    pub(super) congestion_marking: Option<Switch>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum PersistencyArg {
    /// Until its link fails.
    Persistent,
    /// Until it is removed.
    Permanent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Switch {
    /// On.
    On,
    /// Off.
    Off,
}

#[derive(Debug, Subcommand)]
pub(super) enum Route {
    /// Lists routes.
    #[command(alias = "ls")]
    List {
        /// Routes over this face: its number.
        #[arg(long, value_name = "FACE")]
        nexthop: Option<u64>,
    },
    /// Shows the routes of a prefix.
    Show {
        /// The prefix.
        prefix: Name,
    },
    /// Adds a route, and the face if there is none.
    Add(RouteAdd),
    /// Removes a route.
    Remove {
        /// The prefix.
        prefix: Name,
        /// Number or FaceUri of the next hop.
        nexthop: String,
        /// Who added it.
        #[arg(long, default_value = "255")]
        origin: u64,
    },
    /// Lists the FIB: what the routes come to.
    Fib,
}

#[derive(Debug, Args)]
pub(super) struct RouteAdd {
    /// The prefix.
    pub(super) prefix: Name,
    /// Number or FaceUri of the next hop.
    pub(super) nexthop: String,
    /// Lower is better.
    #[arg(long, default_value = "0")]
    pub(super) cost: u64,
    /// Who adds it: 255 is an operator.
    #[arg(long, default_value = "255")]
    pub(super) origin: u64,
    /// Longer prefixes with routes of their own do not use it.
    #[arg(long)]
    pub(super) no_inherit: bool,
    /// Routes of shorter prefixes are not used here.
    #[arg(long)]
    pub(super) capture: bool,
    /// Ends after so many milliseconds.
    #[arg(long, value_name = "MS")]
    pub(super) expires: Option<u64>,
}

#[derive(Debug, Subcommand)]
pub(super) enum Cs {
    /// Shows size, switches, hits and misses.
    Info,
    /// Shows the part in the kernel's packet path; asks the control socket of the node.
    Kernel,
    /// Changes size and switches.
    Config {
        /// Packets at most.
        #[arg(long, value_name = "PACKETS")]
        capacity: Option<u64>,
        /// Admits new packets.
        #[arg(long, value_enum)]
        admit: Option<Switch>,
        /// Answers Interests.
        #[arg(long, value_enum)]
        serve: Option<Switch>,
    },
    /// Removes packets under a prefix.
    Erase {
        /// The prefix.
        prefix: Name,
        /// Packets at most.
        #[arg(long)]
        count: Option<u64>,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum Strategy {
    /// Lists the choices.
    #[command(alias = "ls")]
    List,
    /// Shows the strategy that a prefix has.
    Show {
        /// The prefix.
        prefix: Name,
    },
    /// Chooses a strategy.
    Set {
        /// The prefix.
        prefix: Name,
        /// best-route, multicast, asf, random, self-learning, or a full name with parameters.
        strategy: String,
    },
    /// Removes a choice.
    Unset {
        /// The prefix.
        prefix: Name,
    },
}

#[derive(Debug, Args)]
pub(super) struct Peek {
    /// Name to ask for.
    pub(super) name: Name,
    /// The name may be a prefix of the Data's.
    #[arg(short = 'P', long)]
    pub(super) prefix: bool,
    /// Caches may answer only with fresh Data.
    #[arg(short, long)]
    pub(super) fresh: bool,
    /// Lifetime of the Interest (ms).
    #[arg(short, long, value_name = "MS", default_value = "4000")]
    pub(super) lifetime: u64,
    /// Hops at most.
    #[arg(long, value_name = "HOPS")]
    pub(super) hop_limit: Option<u8>,
    /// Writes the whole packet rather than its content.
    #[arg(long)]
    pub(super) packet: bool,
}

#[derive(Debug, Args)]
pub(super) struct Poke {
    /// Name of the Data.
    pub(super) name: Name,
    /// How long it counts as fresh (ms).
    #[arg(short = 'x', long, value_name = "MS", default_value = "0")]
    pub(super) freshness: u64,
    /// Sends it without being asked.
    #[arg(short = 'u', long)]
    pub(super) unsolicited: bool,
    /// Gives up after so many milliseconds; without it, never.
    #[arg(short = 'w', long, value_name = "MS")]
    pub(super) timeout: Option<u64>,
}

#[derive(Debug, Args)]
pub(super) struct Ping {
    /// Prefix of the server.
    pub(super) prefix: Name,
    /// Milliseconds between Interests.
    #[arg(short, long, value_name = "MS", default_value = "1000")]
    pub(super) interval: u64,
    /// Milliseconds to wait for an answer.
    #[arg(short = 'w', long, value_name = "MS", default_value = "4000")]
    pub(super) timeout: u64,
    /// Ends after so many; without it, when interrupted.
    #[arg(short = 'c', long)]
    pub(super) count: Option<u64>,
    /// First number; without it, a random one.
    #[arg(short = 'n', long)]
    pub(super) start: Option<u64>,
    /// Prints the summary only.
    #[arg(short, long)]
    pub(super) quiet: bool,
}

#[derive(Debug, Args)]
pub(super) struct Pingserver {
    /// Prefix to answer under.
    pub(super) prefix: Name,
    /// How long an answer counts as fresh (ms).
    #[arg(short = 'x', long, value_name = "MS", default_value = "1000")]
    pub(super) freshness: u64,
    /// Bytes of content.
    #[arg(short, long, value_name = "BYTES", default_value = "0")]
    pub(super) size: usize,
    /// Ends after so many answers.
    #[arg(short = 'p', long)]
    pub(super) satisfy: Option<u64>,
}

#[derive(Debug, Args)]
pub(super) struct Get {
    /// Name of the object, with or without its version.
    pub(super) name: Name,
    /// File to write; `-` is stdout.
    #[arg(short, long, value_name = "FILE", default_value = "-", value_hint = ValueHint::FilePath)]
    pub(super) output: PathBuf,
    /// Interests in flight at most.
    #[arg(short, long, value_name = "COUNT", default_value = "256")]
    pub(super) window: usize,
    /// Lifetime of the Interests (ms).
    #[arg(short, long, value_name = "MS", default_value = "4000")]
    pub(super) lifetime: u64,
    /// Times that a segment is asked for again.
    #[arg(short, long, value_name = "COUNT", default_value = "15")]
    pub(super) retries: u32,
}

#[derive(Debug, Args)]
pub(super) struct Put {
    /// Name of the object; a version is added if it has none.
    pub(super) name: Name,
    /// File to serve; `-` is stdin.
    #[arg(default_value = "-", value_hint = ValueHint::FilePath)]
    pub(super) file: PathBuf,
    /// Bytes of content of a segment.
    #[arg(short, long, value_name = "BYTES", default_value = "8000")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=8400))]
    pub(super) size: u32,
    /// How long a segment counts as fresh (ms).
    #[arg(short = 'x', long, value_name = "MS", default_value = "10000")]
    pub(super) freshness: u64,
    /// Ends once every segment was served, and nobody asked for a second.
    #[arg(long)]
    pub(super) once: bool,
}

#[derive(Debug, Subcommand)]
pub(super) enum Traffic {
    /// Asks for PREFIX/0, PREFIX/1, ... and counts answers and their times.
    Client(TrafficClient),
    /// Answers every Interest under a prefix.
    Server(TrafficServer),
}

#[derive(Debug, Args)]
pub(super) struct TrafficClient {
    /// Prefix of the names.
    pub(super) prefix: Name,
    /// Different names; then they come again.
    #[arg(long, value_name = "COUNT", default_value = "1000000000")]
    pub(super) names: u64,
    /// Number of the first name.
    #[arg(long, value_name = "NUMBER", default_value = "0")]
    pub(super) first: u64,
    /// Interests in flight.
    #[arg(short, long, value_name = "COUNT", default_value = "256")]
    pub(super) window: usize,
    /// Seconds to run.
    #[arg(long, value_name = "SECONDS", default_value = "5")]
    pub(super) seconds: f64,
    /// Milliseconds to wait for an answer.
    #[arg(long, value_name = "MS", default_value = "1000")]
    pub(super) timeout: u64,
}

#[derive(Debug, Args)]
pub(super) struct TrafficServer {
    /// Prefix of the names.
    pub(super) prefix: Name,
    /// Bytes of content.
    #[arg(short, long, value_name = "BYTES", default_value = "1000")]
    pub(super) size: usize,
    /// How long Data counts as fresh (ms).
    #[arg(short = 'x', long, value_name = "MS", default_value = "1000")]
    pub(super) freshness: u64,
    /// Seconds to run; without it, until interrupted.
    #[arg(long, value_name = "SECONDS")]
    pub(super) seconds: Option<f64>,
}
