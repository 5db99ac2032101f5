//! The keys of `[firewall]` and of the tables below it.

use super::{TableDoc, key};

pub(super) const FIREWALL: TableDoc = TableDoc {
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
            "nat64",
            "IPv6 prefix of 96 bits",
            "none",
            "nat64 = \"64:ff9b::/96\"",
            "NAT64 (RFC 6146): IPv6 hosts reach IPv4 servers under this prefix. Needs a rule that translates the source of IPv4 (or `masquerade`).",
        ),
        key(
            "nat64_clients",
            "IPv4 prefix of 8 to 30 bits",
            "\"100.127.0.0/16\"",
            "nat64_clients = \"100.126.0.0/16\"",
            "IPv4 addresses that stand for the IPv6 hosts in rules and listings, and never leave the node.",
        ),
        key(
            "state",
            "absolute path, \"off\" or \"dpdk\"",
            "the control socket's path with the ending `.state`, if that lies in a tmpfs; else \"off\"",
            "state = \"/run/tidegate/control.state\"",
            "File in memory (tmpfs or hugetlbfs) that keeps connections, mappings and ports, so that a node that was killed or upgraded goes on with them; `dpdk`: in memory that the nodes of `[dpdk]` have in common.",
        ),
    ],
};

pub(super) const CGN: TableDoc = TableDoc {
    name: "firewall.cgn",
    many: false,
    text: "Ports by subscriber: each inner IPv4 address that is translated has blocks of ports, and each block is one line of the log.",
    keys: &[
        key(
            "block_ports",
            "integer, 16 to 16384",
            "512",
            "block_ports = 1024",
            "Ports of a block.",
        ),
        key(
            "blocks",
            "integer, 1 to 32",
            "4",
            "blocks = 2",
            "Blocks that a subscriber may have at a time.",
        ),
        key(
            "first_port",
            "integer, 1 to 49152",
            "1024",
            "first_port = 4096",
            "The lowest port that is given.",
        ),
        key(
            "subscribers",
            "first and last IPv4 address",
            "none",
            "subscribers = [\"100.64.0.1\", \"100.64.3.254\"]",
            "With `outer`: address and ports of each subscriber are computed (RFC 7422), so that nothing need be logged; others get none.",
        ),
        key(
            "outer",
            "first and last IPv4 address",
            "none",
            "outer = [\"203.0.113.1\", \"203.0.113.16\"]",
            "With `subscribers`: their outer addresses, which the rules have to translate to as well.",
        ),
    ],
};

pub(super) const NPTV6: TableDoc = TableDoc {
    name: "firewall.nptv6",
    many: false,
    text: "Prefix translation (RFC 6296): hosts of an IPv6 prefix inside are known outside by another prefix, one to one and without state.",
    keys: &[
        key(
            "port",
            "name of a port or bridge",
            "required",
            "port = \"wan\"",
            "What leads outside.",
        ),
        key(
            "inside",
            "IPv6 prefix of 1 to 112 bits",
            "required",
            "inside = \"fd00:1::/48\"",
            "The prefix inside.",
        ),
        key(
            "outside",
            "IPv6 prefix of the same length",
            "required",
            "outside = \"2001:db8:1::/48\"",
            "The prefix outside; its addresses are to be routed to the node, and none of them is the node's own.",
        ),
    ],
};

pub(super) const GUARD: TableDoc = TableDoc {
    name: "firewall.guard",
    many: false,
    text: "What is refused before any state is made for it; a threshold of 0 is none. Changes take effect at a reload.",
    keys: &[
        key(
            "blocklists",
            "array of paths",
            "[]",
            "blocklists = [\"/etc/tidegate/drop.txt\"]",
            "Files of addresses and prefixes, one a line, `#` and `;` begin comments; nothing passes from or to them. Read again at each reload, swapped as a whole.",
        ),
        key(
            "source_pkts_per_s",
            "integer, packets a second",
            "0",
            "source_pkts_per_s = 100000",
            "Packets of one source (an IPv4 address or an IPv6 /64), above which they are dropped.",
        ),
        key(
            "destination_pkts_per_s",
            "integer, packets a second",
            "0",
            "destination_pkts_per_s = 1000000",
            "Packets to one destination, above which they are dropped.",
        ),
        key(
            "source_connections_per_s",
            "integer, connections a second",
            "0",
            "source_connections_per_s = 200",
            "New connections of one source, above which more are refused.",
        ),
        key(
            "destination_connections_per_s",
            "integer, connections a second",
            "0",
            "destination_connections_per_s = 5000",
            "New connections to one destination, above which the sender of a SYN has to show that it is there, and others are refused.",
        ),
        key(
            "challenge",
            "\"cookie\" or \"retry\"",
            "\"cookie\"",
            "challenge = \"retry\"",
            "How: by the answer to a SYN cookie, after which the node opens the connection to the server (SYN proxy), or by sending the SYN twice. For the node's own addresses always by sending it twice.",
        ),
        key(
            "scan_endpoints",
            "integer, addresses and ports in ten seconds",
            "0",
            "scan_endpoints = 50",
            "Endpoints that a source may ask for and be refused by the rules, above which it is held off.",
        ),
        key(
            "hold_off_s",
            "integer, 1 to 86400, seconds",
            "60",
            "hold_off_s = 60",
            "How long a scanner is held off.",
        ),
    ],
};
