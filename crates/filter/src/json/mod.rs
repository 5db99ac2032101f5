//! libnftables JSON (schema version 1), out of a model and into nft text.
//!
//! [`write()`] gives what `nft -j list ruleset` would; [`to_text`] turns JSON into nft commands, one a line, which the
//! parser reads like any others, so that there is one place that knows the rules of the language.

mod read;
mod write;

pub use read::{JsonError, to_text};
pub use write::write;

#[cfg(test)]
mod tests {
    use crate::lang::{Memory, Source, print};
    use alloc::string::String;

    const RULES: &str = r#"
table inet filter {
    comment "all of it"
    counter web { packets 3 bytes 180 }
    quota day { over 10 mbytes }
    limit slow { rate 10/minute burst 3 packets }
    ct helper ftp-standard { type "ftp" protocol tcp }
    set admins { type ipv4_addr . inet_service; flags interval; elements = { 192.0.2.0/24 . 22-23, 198.51.100.7 . 80 comment "x y" } }
    set seen { type ipv4_addr; flags dynamic,timeout; timeout 1m; size 100 }
    map verdicts { type inet_service : verdict; elements = { 22 : accept, 23 : jump sub } }
    chain sub { tcp flags & (fin|syn) == fin|syn drop; goto other; }
    chain other { ip dscp set cs1 meta mark set ct mark | 0x10 return; }
    chain input {
        type filter hook input priority -10; policy drop
        ct state established,related accept comment "known"
        iifname != { "eth0", "ppp*" } ip saddr . tcp dport @admins counter packets 1 bytes 2 accept
        tcp dport vmap @verdicts
        ct state vmap { invalid : drop, new : continue }
        icmpv6 type { nd-neighbor-solicit, echo-request } limit rate over 10/second burst 4 packets drop
        log prefix "in: " level warn flags tcp sequence,options
        update @seen { ip saddr timeout 30s limit rate 3/second } counter name web
        meter m size 10 { ip saddr limit rate over 1 mbytes/second } drop
        tcp flags syn tcp option maxseg size set rt mtu
        fib saddr . iif oif missing drop
        ct helper set "ftp-standard"
        meta l4proto tcp reject with tcp reset
        reject with icmpx admin-prohibited
    }
}
table ip nat {
    chain pre { type nat hook prerouting priority -100; policy accept; tcp dport 80 dnat to 10.0.0.1:8080; udp dport { 53, 5353 } redirect to :53; }
    chain post { type nat hook postrouting priority 100; policy accept; oifname "wan" masquerade random,persistent; snat to 10.0.0.1-10.0.0.9; }
}
"#;

    fn read(text: &str) -> Source {
        let mut source = Source::default();
        let read = source.read("rules.nft", text, &Memory::default());
        read.unwrap_or_else(|error| panic!("{}", error.render(&source.sources)));
        source
    }

    /// Text to JSON to text gives the same ruleset, which compiles.
    #[test]
    fn there_and_back() {
        let source = read(RULES);
        let json = super::write(&source.model);
        let text = super::to_text(&json).unwrap();
        let again = read(&text);
        // Words and quoted strings mean the same where both may stand, and JSON does not tell them apart.
        let unquoted = |source: &Source| print::ruleset(&source.model).replace('"', "");
        assert_eq!(unquoted(&again), unquoted(&source));
        again.compile(crate::lang::Options::default()).unwrap();
        // What is printed can be read, and prints the same.
        let printed = print::ruleset(&source.model);
        assert_eq!(print::ruleset(&read(&printed).model), printed);
    }

    /// As `nft -j list ruleset` writes it.
    #[test]
    fn what_nft_writes() {
        let json = r#"{"nftables": [{"metainfo": {"version": "1.0.6", "json_schema_version": 1}},
            {"table": {"family": "ip", "name": "t", "handle": 1}},
            {"chain": {"family": "ip", "table": "t", "name": "c", "handle": 1, "type": "filter", "hook": "input", "prio": 0, "policy": "accept"}},
            {"rule": {"family": "ip", "table": "t", "chain": "c", "handle": 2, "comment": "hi", "expr": [
                {"match": {"op": "in", "left": {"ct": {"key": "state"}}, "right": ["established", "related"]}},
                {"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": {"set": [22, {"range": [80, 90]}]}}},
                {"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "saddr"}}, "right": {"prefix": {"addr": "10.0.0.0", "len": 8}}}},
                {"counter": {"packets": 0, "bytes": 0}}, {"accept": null}]}}]}"#;
        let text = super::to_text(json).unwrap();
        let source = read(&text);
        let rule: String = print::rule(&source.model.tables[0].chains[0].rules[0]);
        assert_eq!(
            rule,
            "ct state established,related tcp dport { 22, 80-90 } ip saddr 10.0.0.0/8 counter packets 0 bytes 0 accept comment \"hi\""
        );
        source.compile(crate::lang::Options::default()).unwrap();
        assert!(
            super::to_text(r#"{"nftables": [{"rule": {"expr": [{"frobnicate": 1}]}}]}"#).is_err()
        );
        assert!(super::to_text("[]").is_err());
    }
}
