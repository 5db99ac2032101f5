//! Every key of the configuration file, described once: for remedies, for the manual page and for
//! the reference in the documentation.

/// A table of the file.
#[derive(Clone, Copy, Debug)]
pub struct TableDoc {
    /// Its name, e.g. `port`.
    pub name: &'static str,
    /// Whether it may be given many times, as `[[name]]`.
    pub many: bool,
    /// What it is: one sentence.
    pub text: &'static str,
    /// Its keys.
    pub keys: &'static [KeyDoc],
}

impl TableDoc {
    /// Returns its header as written in the file.
    pub fn header(&self) -> String {
        if self.many {
            format!("[[{}]]", self.name)
        } else {
            format!("[{}]", self.name)
        }
    }
}

/// A key of a table.
#[derive(Clone, Copy, Debug)]
pub struct KeyDoc {
    /// Its name.
    pub name: &'static str,
    /// What its values are, with unit and range.
    pub kind: &'static str,
    /// The value without it; `required` where there is none.
    pub default: &'static str,
    /// A line that is right.
    pub example: &'static str,
    /// What it does: one sentence.
    pub text: &'static str,
}

/// The tables of the file, in the order of the reference.
pub const TABLES: &[TableDoc] = &[
    TableDoc {
        name: "node",
        many: false,
        text: "The process and its workers.",
        keys: &[
            key(
                "name",
                "text",
                "\"tidegate\"",
                "name = \"edge-1\"",
                "Name shown in stats and metrics.",
            ),
            key(
                "cpus",
                "array of CPU numbers",
                "[] (the first CPU allowed)",
                "cpus = [0, 1]",
                "CPUs to pin workers to, one worker each.",
            ),
            key(
                "frames_per_worker",
                "integer, 256 to 1048576",
                "8192",
                "frames_per_worker = 8192",
                "Frames that each worker owns: rings, queues and packets in flight.",
            ),
            key(
                "frame_bytes",
                "2048, 4096, 8192, 16384 or 32768",
                "2048",
                "frame_bytes = 2048",
                "Bytes of a frame; the largest packet and 278 bytes must fit.",
            ),
            key(
                "huge_pages",
                "\"auto\", \"require\" or \"never\"",
                "\"auto\"",
                "huge_pages = \"auto\"",
                "Whether frames lie in huge pages.",
            ),
            key(
                "control_socket",
                "absolute path",
                "\"/run/tidegate/control.sock\"",
                "control_socket = \"/run/tidegate/control.sock\"",
                "The Unix socket of the commands.",
            ),
        ],
    },
    TableDoc {
        name: "idle",
        many: false,
        text: "How workers wait for packets.",
        keys: &[
            key(
                "mode",
                "\"hybrid\", \"poll\", \"interrupt\" or \"paper\"",
                "\"hybrid\"",
                "mode = \"hybrid\"",
                "Hybrid polls under load and sleeps when idle, within the latency budget.",
            ),
            key(
                "latency_budget_us",
                "integer, 1 to 1000000, microseconds",
                "100",
                "latency_budget_us = 100",
                "Latency that the hybrid mode may add, p99.",
            ),
            key(
                "window_us",
                "integer, 1 to 1000000, microseconds",
                "100",
                "window_us = 100",
                "Mode `paper`: length of the window.",
            ),
            key(
                "window_pkts",
                "integer, at least 1",
                "4",
                "window_pkts = 4",
                "Mode `paper`: packets in a window above which polling goes on.",
            ),
            key(
                "interrupts_per_ms",
                "integer, at least 1",
                "20",
                "interrupts_per_ms = 20",
                "Mode `paper`: interrupts in a millisecond above which polling starts.",
            ),
        ],
    },
    TableDoc {
        name: "port",
        many: true,
        text: "A port: where packets enter and leave.",
        keys: &[
            key(
                "name",
                "text, letters, digits, `-`, `_`, `.`",
                "required",
                "name = \"wan\"",
                "Name in this file, stats and captures.",
            ),
            key(
                "driver",
                "\"auto\", \"af_xdp\", \"af_packet\", \"tap\", \"pcap\", \"dpdk\" or \"mem\"",
                "\"auto\"",
                "driver = \"auto\"",
                "Auto is AF_XDP where the kernel allows it, else AF_PACKET, with the reason shown.",
            ),
            key(
                "interface",
                "text of 1 to 15 bytes",
                "the port's name",
                "interface = \"eth0\"",
                "The kernel's interface, or the one to create (`tap`).",
            ),
            key(
                "addresses",
                "array of addresses with prefix length",
                "[]",
                "addresses = [\"192.0.2.1/24\", \"2001:db8::1/64\"]",
                "Addresses that the node answers on.",
            ),
            key(
                "mac",
                "MAC address",
                "the interface's own",
                "mac = \"02:00:00:00:00:01\"",
                "MAC address of the port.",
            ),
            key(
                "mtu",
                "integer, 68 to 32000, bytes",
                "the interface's own",
                "mtu = 1500",
                "Largest IP packet that the port sends.",
            ),
            key(
                "idle",
                "\"hybrid\", \"poll\", \"interrupt\" or \"paper\"",
                "as in `[idle]`",
                "idle = \"poll\"",
                "How workers wait for this port's packets.",
            ),
            key(
                "file",
                "path",
                "none",
                "file = \"trace.pcapng\"",
                "Capture file to replay (`pcap`).",
            ),
            key(
                "device",
                "PCI address, or a virtual device with its arguments as DPDK writes them",
                "none",
                "device = \"0000:03:00.0\"",
                "Device to take from the kernel (`dpdk`).",
            ),
        ],
    },
    TableDoc {
        name: "bridge",
        many: true,
        text: "A learning bridge over ports.",
        keys: &[
            key(
                "name",
                "text, letters, digits, `-`, `_`, `.`",
                "required",
                "name = \"lan\"",
                "Name, shared with no port.",
            ),
            key(
                "ports",
                "array of port names",
                "required",
                "ports = [\"lan0\", \"lan1\"]",
                "Its ports; a port belongs to one bridge at most.",
            ),
            key(
                "addresses",
                "array of addresses with prefix length",
                "[]",
                "addresses = [\"192.0.2.1/24\"]",
                "Addresses that the node answers on through the bridge.",
            ),
            key(
                "ageing_s",
                "integer, 10 to 1000000, seconds",
                "300",
                "ageing_s = 300",
                "Time after which a silent station is forgotten.",
            ),
        ],
    },
    TableDoc {
        name: "link",
        many: true,
        text: "An impaired link: what one of two ports receives leaves by the other, with faults.",
        keys: &[
            key(
                "name",
                "text, letters, digits, `-`, `_`, `.`",
                "required",
                "name = \"bad\"",
                "Name, shared with no port and no bridge.",
            ),
            key(
                "ports",
                "array of two port names",
                "required",
                "ports = [\"east\", \"west\"]",
                "Its ends; they have no addresses and belong to no bridge.",
            ),
            key(
                "drop_ppm",
                "integer, 0 to 1000000, of a million packets",
                "0",
                "drop_ppm = 10000",
                "Packets lost.",
            ),
            key(
                "duplicate_ppm",
                "integer, 0 to 1000000, of a million packets",
                "0",
                "duplicate_ppm = 1000",
                "Packets sent twice.",
            ),
            key(
                "corrupt_ppm",
                "integer, 0 to 1000000, of a million packets",
                "0",
                "corrupt_ppm = 1000",
                "Packets with one bit flipped.",
            ),
            key(
                "reorder_ppm",
                "integer, 0 to 1000000, of a million packets",
                "0",
                "reorder_ppm = 5000",
                "Packets that others may overtake; needs `reorder_us`.",
            ),
            key(
                "reorder_us",
                "integer, 0 to 10000000, microseconds",
                "0",
                "reorder_us = 2000",
                "Most extra delay of a packet that others may overtake.",
            ),
            key(
                "delay_us",
                "integer, 0 to 10000000, microseconds",
                "0",
                "delay_us = 20000",
                "Delay of every packet, from the start of the worker's pass in which it was received.",
            ),
            key(
                "jitter_us",
                "integer, 0 to 10000000, microseconds",
                "0",
                "jitter_us = 1000",
                "Most additional random delay; keeps the order.",
            ),
            key(
                "rate_bps",
                "integer, at least 1, bits a second",
                "no limit",
                "rate_bps = 10000000",
                "Rate of each direction, Ethernet header included.",
            ),
            key(
                "mtu",
                "integer, 68 to 32000, bytes",
                "no limit",
                "mtu = 1400",
                "Longest Ethernet payload that passes; a VLAN tag counts as payload.",
            ),
            key(
                "queue_pkts",
                "integer, 1 to 524288, packets",
                "1024",
                "queue_pkts = 1000",
                "Packets on the link at once in each direction; beyond it new ones are lost.",
            ),
            key(
                "seed",
                "integer, 0 to 4294967295",
                "0",
                "seed = 7",
                "Start of the pseudorandom numbers: equal seeds and packets meet equal faults.",
            ),
        ],
    },
    TableDoc {
        name: "route",
        many: true,
        text: "A static route.",
        keys: &[
            key(
                "to",
                "prefix",
                "required",
                "to = \"0.0.0.0/0\"",
                "Destination.",
            ),
            key(
                "via",
                "IP address",
                "none (on the link of `port`)",
                "via = \"192.0.2.254\"",
                "Next hop.",
            ),
            key(
                "port",
                "name of a port or bridge",
                "the one that reaches `via`",
                "port = \"wan\"",
                "Where packets leave.",
            ),
            key(
                "blackhole",
                "true or false",
                "false",
                "blackhole = true",
                "Discards what matches.",
            ),
        ],
    },
    TableDoc {
        name: "neighbour",
        many: true,
        text: "A static neighbour: a host whose MAC address is not asked for.",
        keys: &[
            key(
                "address",
                "IP address",
                "required",
                "address = \"192.0.2.7\"",
                "The host's address.",
            ),
            key(
                "mac",
                "MAC address",
                "required",
                "mac = \"02:00:00:00:00:07\"",
                "The host's MAC address.",
            ),
            key(
                "port",
                "name of a port or bridge",
                "required",
                "port = \"wan\"",
                "What reaches it.",
            ),
        ],
    },
    TableDoc {
        name: "firewall",
        many: false,
        text: "The stateful firewall; without the table, packets are forwarded without state.",
        keys: &[
            key(
                "rules",
                "path",
                "none",
                "rules = \"/etc/tidegate/rules.nft\"",
                "Rules in nft syntax, as `nft -f` takes them, in a file beside this one; interfaces are ports and bridges.",
            ),
            key(
                "inside",
                "name of a port or bridge",
                "none; one of `rules` and `inside` is required",
                "inside = \"lan\"",
                "Where connections may be opened from; answers to them may come from anywhere.",
            ),
            key(
                "masquerade",
                "true or false",
                "true",
                "masquerade = true",
                "Translates the source of what leaves by another interface to that interface's address.",
            ),
            key(
                "connections",
                "integer, 1024 to 67108864",
                "65536",
                "connections = 1000000",
                "Connections that the table is made for; about 330 bytes each are taken at start.",
            ),
            key(
                "filtering",
                "\"endpoint_independent\", \"address\" or \"address_and_port\"",
                "\"address_and_port\"",
                "filtering = \"endpoint_independent\"",
                "Which packets from outside may use a mapping (RFC 4787 5).",
            ),
            key(
                "random_ports",
                "true or false",
                "false",
                "random_ports = true",
                "Gives mappings random ports (RFC 6056) rather than the inner ones.",
            ),
            key(
                "state",
                "absolute path, or \"off\"",
                "the control socket's path with the ending `.state`, if that lies in a tmpfs; else \"off\"",
                "state = \"/run/tidegate/control.state\"",
                "File in memory (tmpfs or hugetlbfs) that keeps connections, mappings and ports, so that a node that was killed or upgraded goes on with them.",
            ),
        ],
    },
];

const fn key(
    name: &'static str,
    kind: &'static str,
    default: &'static str,
    example: &'static str,
    text: &'static str,
) -> KeyDoc {
    KeyDoc {
        name,
        kind,
        default,
        example,
        text,
    }
}

/// Finds a table by name.
pub fn table(name: &str) -> Option<&'static TableDoc> {
    TABLES.iter().find(|table| table.name == name)
}

/// Finds the key at a path such as `port.0.addresses.1`.
pub(super) fn at_path(path: &str) -> Option<(&'static TableDoc, &'static KeyDoc)> {
    let mut parts = path
        .split('.')
        .filter(|part| part.parse::<usize>().is_err());
    let table = table(parts.next()?)?;
    let name = parts.next()?;
    let key = table.keys.iter().find(|key| key.name == name)?;
    Some((table, key))
}
