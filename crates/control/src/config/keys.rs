//! Every key of the configuration file, described once: for remedies, for the manual page and for
//! the reference in the documentation.

mod firewall;

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
        name: "dpdk",
        many: false,
        text: "Nodes of this machine that share DPDK: one is the primary process, the others are its guests, each with one worker and a queue of each port. All need huge pages and a mounted hugetlbfs.",
        keys: &[
            key(
                "group",
                "letters, digits, `-` and `_`; 32 at most",
                "required",
                "group = \"edge\"",
                "Name that the nodes have in common: DPDK's file prefix.",
            ),
            key(
                "guests",
                "integer, 0 to 63",
                "0",
                "guests = 1",
                "Guests that may join this node, the primary process: each port has a queue more for each.",
            ),
            key(
                "guest",
                "integer, 0 to 62",
                "none: the node is the primary process",
                "guest = 0",
                "This node is that guest of the primary process, whose frames and devices it uses.",
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
    firewall::FIREWALL,
    firewall::CGN,
    firewall::NPTV6,
    firewall::GUARD,
    TableDoc {
        name: "ndn",
        many: false,
        text: "The named-data (NDN) forwarder; without the table there is none.",
        keys: &[
            key(
                "unix",
                "array of absolute paths",
                "[\"/run/nfd/nfd.sock\", \"/run/nfd.sock\"]",
                "unix = [\"/run/nfd/nfd.sock\"]",
                "Sockets for applications; ndn-cxx, python-ndn and NDNts look at the two of the default.",
            ),
            key(
                "tcp",
                "array of addresses with ports",
                "[\"0.0.0.0:6363\", \"[::]:6363\"]",
                "tcp = [\"127.0.0.1:6363\"]",
                "Where TCP is listened on.",
            ),
            key(
                "udp",
                "array of addresses with ports",
                "[\"0.0.0.0:6363\", \"[::]:6363\"]",
                "udp = [\"0.0.0.0:6363\"]",
                "Where UDP is listened on; each peer gets a face.",
            ),
            key(
                "websocket",
                "array of addresses with ports",
                "[]",
                "websocket = [\"0.0.0.0:9696\"]",
                "Where WebSocket is listened on, for browsers; NFD's port is 9696.",
            ),
            key(
                "udp_multicast",
                "array of kernel interfaces",
                "[]",
                "udp_multicast = [\"eth0\"]",
                "Interfaces with a face to the group 224.0.23.170, port 56363.",
            ),
            key(
                "ethernet",
                "array of port names",
                "[]",
                "ethernet = [\"wan\"]",
                "Ports with Ethernet faces (EtherType 0x8624): one to the group 01:00:5e:00:17:aa, and one for each peer.",
            ),
            key(
                "cache_packets",
                "integer, 1 to 1073741824",
                "65536",
                "cache_packets = 1000000",
                "Packets in the content store.",
            ),
            key(
                "cache_bytes",
                "integer, bytes",
                "0 (1536 a packet, at least 64 MiB)",
                "cache_bytes = 1073741824",
                "Memory of the content store.",
            ),
            key(
                "cache_policy",
                "\"s3_fifo\", \"fifo\", \"clock\", \"lru\" or \"priority_fifo\"",
                "\"s3_fifo\"",
                "cache_policy = \"lru\"",
                "Which packet leaves when room is needed.",
            ),
            key(
                "cache_disk",
                "absolute path",
                "none",
                "cache_disk = \"/var/cache/tidegate/ndn\"",
                "File or device for packets that leave memory; they are answered from there, after a restart or a crash too.",
            ),
            key(
                "cache_disk_bytes",
                "integer, 1048576 to 8796093022208, bytes",
                "1073741824",
                "cache_disk_bytes = 1000000000000",
                "Size of `cache_disk`; its index takes 23 bytes of memory for each 1024 of it.",
            ),
            key(
                "cache_disk_sync_s",
                "integer, seconds",
                "5",
                "cache_disk_sync_s = 1",
                "How often what was written to `cache_disk` is synchronised; 0 leaves it to the kernel.",
            ),
            key(
                "cache_disk_stop_s",
                "integer, 0 to 3600, seconds",
                "10",
                "cache_disk_stop_s = 30",
                "How long a node that stops may take to write what is in memory to `cache_disk`; 0 leaves it out.",
            ),
            key(
                "unsolicited",
                "\"drop_all\", \"admit_local\", \"admit_network\" or \"admit_all\"",
                "\"drop_all\"",
                "unsolicited = \"admit_local\"",
                "Whether Data that nobody asked for is cached.",
            ),
            key(
                "pit_entries",
                "integer, 64 to 67108864",
                "65536",
                "pit_entries = 65536",
                "Pending Interests a worker.",
            ),
            key(
                "fib_prefixes",
                "integer, 16 to 67108864",
                "65536",
                "fib_prefixes = 1000000",
                "Prefixes in the FIB.",
            ),
            key(
                "faces",
                "integer, 16 to 1048576",
                "1024",
                "faces = 1024",
                "Faces at most.",
            ),
            key(
                "idle_s",
                "integer, at least 1, seconds",
                "600",
                "idle_s = 600",
                "After how long an idle face that a packet made is closed.",
            ),
            key(
                "localhop",
                "true or false",
                "false",
                "localhop = true",
                "Lets other machines register prefixes, under /localhop/nfd.",
            ),
            key(
                "regions",
                "array of names",
                "[]",
                "regions = [\"/example/site\"]",
                "Producer regions of this node: forwarding hints that lead here are removed.",
            ),
            key(
                "nfd_conf",
                "path",
                "none",
                "nfd_conf = \"/etc/ndn/nfd.conf\"",
                "A configuration file of NFD that is read first; `tidegate check` says what it sets that has no counterpart.",
            ),
        ],
    },
    TableDoc {
        name: "ndn.kernel_cache",
        many: false,
        text: "The part of the content store that answers in the kernel, before any socket: what was asked for again. Needs Linux 6.6 and root; without the table there is none.",
        keys: &[
            key(
                "ports",
                "array of port names",
                "[]",
                "ports = [\"wan\"]",
                "Ports of the node (drivers `af_xdp`, `af_packet`, `auto`) on which Interests are answered.",
            ),
            key(
                "interfaces",
                "array of kernel interfaces",
                "[]",
                "interfaces = [\"eth0\"]",
                "Interfaces on which Interests by UDP are answered before the node's sockets, whatever their address.",
            ),
            key(
                "packets",
                "integer, 1 to 16777216",
                "16384",
                "packets = 100000",
                "Packets in the kernel, 2.3 KB each; those of more than 2040 bytes stay in the content store.",
            ),
            key(
                "bytes",
                "integer, bytes",
                "0 (as many as the packets need)",
                "bytes = 268435456",
                "Memory for them, where it is less than the packets need.",
            ),
            key(
                "mode",
                "\"auto\", \"xdp\" or \"tc\"",
                "\"auto\"",
                "mode = \"tc\"",
                "Where the program stands: in the driver (XDP), where frames of a veth device have no room for most replies, or at TC; a port of AF_XDP always has it in front of the driver's sockets.",
            ),
        ],
    },
    TableDoc {
        name: "ndn_face",
        many: true,
        text: "A face of the NDN forwarder that is made at start.",
        keys: &[
            key(
                "remote",
                "FaceUri",
                "required",
                "remote = \"udp4://192.0.2.9:6363\"",
                "The other end: udp4, udp6, tcp4, tcp6 or ether.",
            ),
            key(
                "local",
                "FaceUri",
                "none",
                "local = \"dev://wan\"",
                "The port that an Ethernet face is on, if there are several.",
            ),
            key(
                "permanent",
                "true or false",
                "false",
                "permanent = true",
                "The face stays although its link fails; TCP is connected again.",
            ),
            key(
                "mtu",
                "integer, bytes",
                "by the link",
                "mtu = 1400",
                "Longest link packet; longer ones are cut.",
            ),
            key(
                "reliability",
                "true or false",
                "false",
                "reliability = true",
                "Acknowledges and retransmits on the link (NDNLPv2).",
            ),
            key(
                "congestion_marking",
                "true or false",
                "true",
                "congestion_marking = false",
                "Marks packets when the face's queue stays long.",
            ),
        ],
    },
    TableDoc {
        name: "ndn_route",
        many: true,
        text: "A static route of the NDN forwarder.",
        keys: &[
            key(
                "prefix",
                "name",
                "required",
                "prefix = \"/example\"",
                "The prefix.",
            ),
            key(
                "face",
                "FaceUri",
                "required",
                "face = \"udp4://192.0.2.9:6363\"",
                "The next hop; its face is made if there is no `[[ndn_face]]` for it.",
            ),
            key("cost", "integer", "0", "cost = 10", "Lower is better."),
        ],
    },
    TableDoc {
        name: "ndn_strategy",
        many: true,
        text: "Which strategy forwards Interests under a prefix.",
        keys: &[
            key(
                "prefix",
                "name",
                "required",
                "prefix = \"/example\"",
                "The prefix.",
            ),
            key(
                "strategy",
                "name of a strategy",
                "required",
                "strategy = \"multicast\"",
                "best-route, multicast, asf, random, self-learning, or NFD's full name with parameters.",
            ),
        ],
    },
    TableDoc {
        name: "ndn_key",
        many: true,
        text: "Who may give management commands; without a table, every local application may.",
        keys: &[
            key(
                "certificate",
                "path, or \"any\"",
                "required",
                "certificate = \"/etc/ndn/operator.cert\"",
                "A certificate as `ndnsec cert-dump` writes it.",
            ),
            key(
                "modules",
                "array of \"faces\", \"fib\", \"rib\", \"cs\", \"strategy-choice\"",
                "required",
                "modules = [\"faces\", \"rib\"]",
                "What its key may give commands to.",
            ),
        ],
    },
    TableDoc {
        name: "host",
        many: false,
        text: "TCP and UDP for programs of this machine, by sockets of the library; without the table, the node refuses both.",
        keys: &[
            key(
                "addresses",
                "array of IP addresses",
                "[] (all of the node's)",
                "addresses = [\"192.0.2.1\"]",
                "Addresses of ports or bridges on which programs may listen and from which they connect.",
            ),
            key(
                "sockets",
                "integer, 1 to 4096",
                "256",
                "sockets = 256",
                "Sockets that each program may have, for each worker.",
            ),
            key(
                "ring_bytes",
                "power of two, 4096 to 67108864, bytes",
                "262144",
                "ring_bytes = 262144",
                "Room between a program and a worker, a socket and direction; the longest datagram must fit.",
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

/// Finds the table that a path such as `port.0.addresses` lies in: the longest that there is.
pub(super) fn table_of(path: &str) -> Option<&'static TableDoc> {
    let mut parts = path.split('.');
    let first = parts.next()?;
    let nested = parts
        .next()
        .and_then(|second| table(&format!("{first}.{second}")));
    nested.or_else(|| table(first))
}

/// Finds the key at a path such as `port.0.addresses.1`.
pub(super) fn at_path(path: &str) -> Option<(&'static TableDoc, &'static KeyDoc)> {
    let mut parts = path
        .split('.')
        .filter(|part| part.parse::<usize>().is_err());
    let (first, mut name) = (parts.next()?, parts.next()?);
    let nested = TABLES
        .iter()
        .find(|table| table.name.split_once('.') == Some((first, name)));
    let table = match nested {
        Some(nested) => {
            name = parts.next()?;
            nested
        }
        None => table(first)?,
    };
    let key = table.keys.iter().find(|key| key.name == name)?;
    Some((table, key))
}
