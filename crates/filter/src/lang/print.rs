//! The tree as nft text: what `list ruleset` and `fmt` print, and what can be loaded again.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::Write;

use super::ast::{
    ChainAst, DataAst, Element, Expr, ExprKind, LimitAst, LogAst, NatAst, ObjectAst, ObjectKind,
    ObjectRef, QuotaAst, RejectAst, RelOp, RuleAst, SetAst, Stmt, StmtKind, SynproxyAst, TableAst,
    TypeAst, VerdictAst,
};
use super::lexer::parse_time;
use super::model::Model;
use super::selector::{CT, EXTHDR, FibResultAst, META, Selector, TCP_OPTIONS};
use crate::packet::CtDirection;
use crate::rules::field::Base;

/// Prints all tables.
pub fn ruleset(model: &Model) -> String {
    model
        .tables
        .iter()
        .map(table)
        .collect::<Vec<_>>()
        .join("\n")
}

/// Prints a table.
pub fn table(table: &TableAst) -> String {
    let mut out = format!("table {} {} {{\n", table.family.name(), table.name.text);
    if let Some(comment) = &table.comment {
        let _ = writeln!(out, "\tcomment \"{comment}\"");
    }
    if table.dormant {
        out.push_str("\tflags dormant\n");
    }
    let mut blocks: Vec<String> = Vec::new();
    blocks.extend(table.objects.iter().map(object));
    blocks.extend(table.sets.iter().map(set));
    blocks.extend(table.chains.iter().map(chain));
    out.push_str(&blocks.join("\n"));
    out.push_str("}\n");
    out
}

fn chain(chain: &ChainAst) -> String {
    let mut out = format!("\tchain {} {{\n", chain.name.text);
    if let Some(comment) = &chain.comment {
        let _ = writeln!(out, "\t\tcomment \"{comment}\"");
    }
    if let Some(base) = &chain.base {
        let devices = match base.devices.as_slice() {
            [] => String::new(),
            [device] => format!(" device \"{device}\""),
            many => format!(" devices = {{ {} }}", quoted(many)),
        };
        let policy = if base.policy_drop { "drop" } else { "accept" };
        let (kind, hook) = (&base.kind, base.hook.name());
        let _ = writeln!(
            out,
            "\t\ttype {kind} hook {hook}{devices} priority {}; policy {policy};",
            base.priority
        );
    }
    for entry in &chain.rules {
        let _ = writeln!(out, "\t\t{}", rule(entry));
    }
    out.push_str("\t}\n");
    out
}

fn quoted(names: &[String]) -> String {
    names
        .iter()
        .map(|name| format!("\"{name}\""))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Prints a set or map.
pub fn set(set: &SetAst) -> String {
    let mut out = format!(
        "\t{} {} {{\n",
        if set.is_map { "map" } else { "set" },
        set.name.text
    );
    let (keyword, key) = match &set.key {
        Some(TypeAst::Of(of)) => ("typeof", expr(of)),
        Some(TypeAst::Names(names)) => (
            "type",
            names
                .iter()
                .map(|n| n.text.as_str())
                .collect::<Vec<_>>()
                .join(" . "),
        ),
        None => ("type", String::new()),
    };
    let data = match &set.data {
        None => String::new(),
        Some(DataAst::Verdict) => " : verdict".to_string(),
        Some(DataAst::Object(kind)) => format!(" : {kind}"),
        Some(DataAst::Type(TypeAst::Of(of))) => format!(" : {}", expr(of)),
        Some(DataAst::Type(TypeAst::Names(names))) => {
            format!(
                " : {}",
                names
                    .iter()
                    .map(|n| n.text.as_str())
                    .collect::<Vec<_>>()
                    .join(" . ")
            )
        }
    };
    let _ = writeln!(out, "\t\t{keyword} {key}{data}");
    let flags = [
        (set.constant, "constant"),
        (set.interval, "interval"),
        (set.timeout && set.timeout_ms.is_none(), "timeout"),
        (set.dynamic, "dynamic"),
    ];
    let flags: Vec<&str> = flags
        .iter()
        .filter(|(on, _)| *on)
        .map(|(_, name)| *name)
        .collect();
    if !flags.is_empty() {
        let _ = writeln!(out, "\t\tflags {}", flags.join(","));
    }
    if let Some(size) = set.size {
        let _ = writeln!(out, "\t\tsize {size}");
    }
    if let Some(policy) = &set.policy {
        let _ = writeln!(out, "\t\tpolicy {policy}");
    }
    if let Some(ms) = set.timeout_ms {
        let _ = writeln!(out, "\t\ttimeout {}", time(ms));
    }
    if let Some(ms) = set.gc_ms {
        let _ = writeln!(out, "\t\tgc-interval {}", time(ms));
    }
    if set.auto_merge {
        out.push_str("\t\tauto-merge\n");
    }
    if let Some(comment) = &set.comment {
        let _ = writeln!(out, "\t\tcomment \"{comment}\"");
    }
    for entry in &set.stmts {
        let _ = writeln!(out, "\t\t{}", stmt(entry));
    }
    if !set.elements.is_empty() {
        let elements: Vec<String> = set.elements.iter().map(element).collect();
        let _ = writeln!(
            out,
            "\t\telements = {{ {} }}",
            elements.join(",\n\t\t\t     ")
        );
    }
    out.push_str("\t}\n");
    out
}

/// Prints a named object.
pub fn object(object: &ObjectAst) -> String {
    let mut out = format!("\t{} {} {{\n", object.kind.name(), object.name.text);
    if let Some(comment) = &object.comment {
        let _ = writeln!(out, "\t\tcomment \"{comment}\"");
    }
    match &object.kind {
        ObjectKind::Counter { packets, bytes } => {
            let _ = writeln!(out, "\t\tpackets {packets} bytes {bytes}");
        }
        ObjectKind::Quota(body) => {
            let _ = writeln!(out, "\t\t{}", quota(body));
        }
        ObjectKind::Limit(body) => {
            let _ = writeln!(out, "\t\t{}", limit(body));
        }
        ObjectKind::Synproxy(options) => {
            for option in synproxy(options) {
                let _ = writeln!(out, "\t\t{option}");
            }
        }
        ObjectKind::Helper {
            kind,
            protocol,
            l3proto,
        } => {
            let _ = writeln!(out, "\t\ttype \"{kind}\" protocol {protocol}");
            if let Some(l3proto) = l3proto {
                let _ = writeln!(out, "\t\tl3proto {l3proto}");
            }
        }
        ObjectKind::Flowtable {
            priority,
            devices,
            flags,
        } => {
            let _ = writeln!(out, "\t\thook ingress priority {priority}");
            let _ = writeln!(out, "\t\tdevices = {{ {} }}", quoted(devices));
            for flag in flags {
                let _ = writeln!(
                    out,
                    "\t\t{}",
                    if flag == "counter" {
                        flag.clone()
                    } else {
                        format!("flags {flag}")
                    }
                );
            }
        }
        ObjectKind::Timeout {
            protocol,
            l3proto,
            policy,
        } => {
            let _ = writeln!(out, "\t\tprotocol {protocol}");
            if let Some(l3proto) = l3proto {
                let _ = writeln!(out, "\t\tl3proto {l3proto}");
            }
            let policy: Vec<String> = policy
                .iter()
                .map(|(state, seconds)| format!("{state} : {seconds}"))
                .collect();
            let _ = writeln!(out, "\t\tpolicy = {{ {} }}", policy.join(", "));
        }
        ObjectKind::Expectation {
            protocol,
            dport,
            timeout_ms,
            size,
            l3proto,
        } => {
            let _ = writeln!(
                out,
                "\t\tprotocol {protocol}\n\t\tdport {dport}\n\t\ttimeout {}\n\t\tsize {size}",
                time(*timeout_ms)
            );
            if let Some(l3proto) = l3proto {
                let _ = writeln!(out, "\t\tl3proto {l3proto}");
            }
        }
        ObjectKind::Secmark(context) => {
            let _ = writeln!(out, "\t\t\"{context}\"");
        }
    }
    out.push_str("\t}\n");
    out
}

/// Prints a time as nft does: `1d2h3m4s5ms`.
pub fn time(ms: u64) -> String {
    let mut out = String::new();
    let mut rest = ms;
    for (unit, scale) in [
        ("d", 86_400_000),
        ("h", 3_600_000),
        ("m", 60_000),
        ("s", 1000),
        ("ms", 1),
    ] {
        if rest >= scale {
            let _ = write!(out, "{}{unit}", rest / scale);
            rest %= scale;
        }
    }
    if out.is_empty() {
        out.push_str("0s");
    }
    debug_assert_eq!(parse_time(&out), Some(ms));
    out
}

/// Prints a rule.
pub fn rule(rule: &RuleAst) -> String {
    let mut parts: Vec<String> = rule.stmts.iter().map(stmt).collect();
    if let Some(comment) = &rule.comment {
        parts.push(format!("comment \"{comment}\""));
    }
    parts.join(" ")
}

fn limit(limit: &LimitAst) -> String {
    let over = if limit.over { "over " } else { "" };
    let unit = match limit.per_s {
        1 => "second",
        60 => "minute",
        3600 => "hour",
        86_400 => "day",
        _ => "week",
    };
    let bytes = if limit.bytes { " bytes" } else { "" };
    let burst = match limit.burst {
        Some(burst) => format!(
            " burst {burst} {}",
            if limit.bytes { "bytes" } else { "packets" }
        ),
        None => String::new(),
    };
    format!("rate {over}{}{bytes}/{unit}{burst}", limit.rate)
}

fn quota(quota: &QuotaAst) -> String {
    let over = if quota.over { "over " } else { "" };
    let used = if quota.used > 0 {
        format!(" used {} bytes", quota.used)
    } else {
        String::new()
    };
    format!("{over}{} bytes{used}", quota.bytes)
}

fn synproxy(options: &SynproxyAst) -> Vec<String> {
    let mut out = Vec::new();
    if options.mss > 0 {
        out.push(format!("mss {}", options.mss));
    }
    if let Some(scale) = options.wscale {
        out.push(format!("wscale {scale}"));
    }
    if options.timestamp {
        out.push("timestamp".to_string());
    }
    if options.sack_perm {
        out.push("sack-perm".to_string());
    }
    out
}

pub(crate) const LEVELS: [&str; 9] = [
    "emerg", "alert", "crit", "err", "warn", "notice", "info", "debug", "audit",
];

fn log(log: &LogAst) -> String {
    let mut out = "log".to_string();
    if let Some(prefix) = &log.prefix {
        let _ = write!(out, " prefix \"{prefix}\"");
    }
    if let Some(level) = log.level.and_then(|level| LEVELS.get(usize::from(level))) {
        let _ = write!(out, " level {level}");
    }
    if let Some(group) = log.group {
        let _ = write!(out, " group {group}");
    }
    if let Some(snaplen) = log.snaplen {
        let _ = write!(out, " snaplen {snaplen}");
    }
    if let Some(threshold) = log.queue_threshold {
        let _ = write!(out, " queue-threshold {threshold}");
    }
    for flag in &log.flags {
        let _ = write!(out, " flags {flag}");
    }
    out
}

fn object_ref(object: &ObjectRef) -> String {
    match object {
        ObjectRef::Name(name) => format!("\"{}\"", name.text),
        ObjectRef::Map(map) => expr(map),
    }
}

/// Prints a statement.
pub fn stmt(stmt: &Stmt) -> String {
    match &stmt.kind {
        StmtKind::Match { left, op, right } => {
            let op = match op {
                RelOp::Implicit => "",
                RelOp::Eq => "== ",
                RelOp::Ne => "!= ",
                RelOp::Lt => "< ",
                RelOp::Le => "<= ",
                RelOp::Gt => "> ",
                RelOp::Ge => ">= ",
                RelOp::Not => "! ",
            };
            format!("{} {op}{}", expr(left), expr(right))
        }
        StmtKind::Verdict(verdict) => verdict_text(verdict),
        StmtKind::Vmap { key, map } => format!("{} vmap {}", expr(key), expr(map)),
        StmtKind::Counter { packets, bytes } => format!("counter packets {packets} bytes {bytes}"),
        StmtKind::CounterRef(object) => format!("counter name {}", object_ref(object)),
        StmtKind::Quota(body) => format!("quota {}", quota(body)),
        StmtKind::QuotaRef(object) => format!("quota name {}", object_ref(object)),
        StmtKind::Limit(body) => format!("limit {}", limit(body)),
        StmtKind::LimitRef(object) => format!("limit name {}", object_ref(object)),
        StmtKind::ConnLimit { count, over } => {
            format!("ct count {}{count}", if *over { "over " } else { "" })
        }
        StmtKind::Last => "last".to_string(),
        StmtKind::Log(body) => log(body),
        StmtKind::Reject(reject) => match reject {
            RejectAst::Default => "reject".to_string(),
            RejectAst::TcpReset => "reject with tcp reset".to_string(),
            RejectAst::Icmp(code) => format!("reject with icmp {}", expr(code)),
            RejectAst::Icmpv6(code) => format!("reject with icmpv6 {}", expr(code)),
            RejectAst::Icmpx(code) => format!("reject with icmpx {}", expr(code)),
        },
        StmtKind::Nat { .. } => nat(&stmt.kind),
        StmtKind::Mangle { target, value } => format!("{} set {}", selector(target), expr(value)),
        StmtKind::CtObject { kind, object } => format!("ct {kind} set {}", object_ref(object)),
        StmtKind::Dynset {
            op,
            set,
            element: body,
        } => format!("{} @{} {{ {} }}", op.name(), set.text, element(body)),
        StmtKind::Meter {
            name,
            size,
            element: body,
        } => {
            let size = size.map(|size| format!(" size {size}")).unwrap_or_default();
            format!("meter {}{size} {{ {} }}", name.text, element(body))
        }
        StmtKind::Notrack => "notrack".to_string(),
        StmtKind::Synproxy(options) => {
            let mut parts = Vec::from(["synproxy".to_string()]);
            parts.extend(synproxy(options));
            parts.join(" ")
        }
        StmtKind::SynproxyRef(object) => format!("synproxy name {}", object_ref(object)),
        StmtKind::Flow(name) => format!("flow add @{}", name.text),
        StmtKind::Queue => "queue".to_string(),
        StmtKind::Fwd(to) => format!("fwd to {}", expr(to)),
        StmtKind::Dup(to, device) => {
            let to = to.as_ref().map(expr).unwrap_or_default();
            match device {
                Some(device) => format!("dup to {to} device {}", expr(device)),
                None => format!("dup to {to}"),
            }
        }
        StmtKind::Tproxy => "tproxy".to_string(),
    }
}

fn nat(kind: &StmtKind) -> String {
    let StmtKind::Nat {
        kind,
        family,
        address,
        port,
        flags,
        prefix,
        with_port,
    } = kind
    else {
        return String::new();
    };
    let mut out = kind.name().to_string();
    if let Some(family) = family {
        let _ = write!(out, " {}", family.name());
    }
    if *prefix {
        out.push_str(" prefix");
    }
    if *with_port {
        out.push_str(" addr . port");
    }
    if address.is_some() || port.is_some() {
        out.push_str(" to ");
    }
    if let Some(address) = address {
        let text = expr(address);
        if text.contains("::")
            && port.is_some()
            && matches!(kind, NatAst::Snat | NatAst::Dnat)
            && !text.contains(' ')
        {
            let _ = write!(out, "[{text}]");
        } else {
            out.push_str(&text);
        }
    }
    if let Some(port) = port {
        let _ = write!(out, ":{}", expr(port));
    }
    if !flags.is_empty() {
        let _ = write!(out, " {}", flags.join(","));
    }
    out
}

fn verdict_text(verdict: &VerdictAst) -> String {
    match verdict {
        VerdictAst::Accept => "accept".to_string(),
        VerdictAst::Drop => "drop".to_string(),
        VerdictAst::Return => "return".to_string(),
        VerdictAst::Continue => "continue".to_string(),
        VerdictAst::Jump(chain) => format!("jump {}", chain.text),
        VerdictAst::Goto(chain) => format!("goto {}", chain.text),
        VerdictAst::Block { goto, rules } => {
            let rules: Vec<String> = rules.iter().map(rule).collect();
            format!(
                "{} {{ {}; }}",
                if *goto { "goto" } else { "jump" },
                rules.join("; ")
            )
        }
    }
}

/// Prints an element of a set or map.
pub fn element(element: &Element) -> String {
    let mut out = expr(&element.key);
    if let Some(ms) = element.timeout_ms {
        let _ = write!(out, " timeout {}", time(ms));
    }
    if let Some(ms) = element.expires_ms {
        let _ = write!(out, " expires {}", time(ms));
    }
    for entry in &element.stmts {
        let _ = write!(out, " {}", stmt(entry));
    }
    if let Some(comment) = &element.comment {
        let _ = write!(out, " comment \"{comment}\"");
    }
    if let Some(data) = &element.data {
        let _ = write!(out, " : {}", expr(data));
    }
    out
}

/// Prints an expression.
pub fn expr(expr_: &Expr) -> String {
    match &expr_.kind {
        ExprKind::Word(word) => word.clone(),
        ExprKind::Num(number) => number.to_string(),
        ExprKind::Str(string) => format!("\"{string}\""),
        ExprKind::Selector(inner) => selector(inner),
        ExprKind::SetRef(name) => format!("@{name}"),
        ExprKind::Set(elements) => {
            format!(
                "{{ {} }}",
                elements.iter().map(element).collect::<Vec<_>>().join(", ")
            )
        }
        ExprKind::Concat(parts) => parts.iter().map(expr).collect::<Vec<_>>().join(" . "),
        ExprKind::Range(low, high) => format!("{}-{}", expr(low), expr(high)),
        ExprKind::Prefix(base, length) => format!("{}/{length}", expr(base)),
        ExprKind::List(list) => list.iter().map(expr).collect::<Vec<_>>().join(","),
        ExprKind::Binary(op, left, right) => {
            format!("{} {} {}", operand(left), op.symbol(), operand(right))
        }
        ExprKind::Map(key, map) => format!("{} map {}", expr(key), expr(map)),
        ExprKind::Any => "*".to_string(),
        ExprKind::Verdict(verdict) => verdict_text(verdict),
    }
}

fn operand(side: &Expr) -> String {
    match side.kind {
        ExprKind::Binary(..) | ExprKind::List(_) => format!("({})", expr(side)),
        _ => expr(side),
    }
}

/// Prints a selector.
pub fn selector(selector: &Selector) -> String {
    match selector {
        Selector::Payload(protocol, field) => format!("{} {}", protocol.name, field.name),
        Selector::Raw(base, offset, bits) => {
            let base = match base {
                Base::Link | Base::Vlan => "ll",
                Base::Network => "nh",
                Base::Transport => "th",
                Base::Inner => "ih",
            };
            format!("@{base},{offset},{bits}")
        }
        Selector::Meta(key) => match META.get(*key) {
            Some((name, _, _, true)) if *name != "mark" => (*name).to_string(),
            Some((name, ..)) => format!("meta {name}"),
            None => String::new(),
        },
        Selector::Ct {
            key,
            direction,
            family,
        } => {
            let mut out = "ct ".to_string();
            if let Some(direction) = direction {
                out.push_str(if *direction == CtDirection::Reply {
                    "reply "
                } else {
                    "original "
                });
            }
            if let Some(family) = family {
                let _ = write!(out, "{} ", family.name());
            }
            out.push_str(CT.get(*key).map_or("", |ct| ct.0));
            out
        }
        Selector::ExtHdr(header, field) => match (EXTHDR.get(*header), field) {
            (Some(header), Some(field)) => format!("{} {}", header.0, field.name),
            (Some(header), None) => format!("exthdr {}", header.0),
            _ => String::new(),
        },
        Selector::TcpOption(option, field) => {
            let name = TCP_OPTIONS.get(*option).map_or("", |option| option.0);
            match field {
                Some(field) => format!("tcp option {name} {}", field.name),
                None => format!("tcp option {name}"),
            }
        }
        Selector::TcpOptionKind(kind) => format!("tcp option {kind}"),
        Selector::Fib {
            source,
            mark,
            iif,
            oif,
            result,
            ..
        } => {
            let mut out = format!("fib {}", if *source { "saddr" } else { "daddr" });
            for (on, name) in [(mark, "mark"), (iif, "iif"), (oif, "oif")] {
                if *on {
                    let _ = write!(out, " . {name}");
                }
            }
            let result = match result {
                FibResultAst::Oif => "oif",
                FibResultAst::OifName => "oifname",
                FibResultAst::Type => "type",
            };
            format!("{out} {result}")
        }
        Selector::Rt { key, family } => match family {
            Some(family) => format!("rt {} {key}", family.name()),
            None => format!("rt {key}"),
        },
        Selector::Socket(key) => format!("socket {key}"),
        Selector::Hash {
            of,
            modulus,
            seed,
            offset,
        } => {
            let mut out = match of {
                Some(of) => format!("jhash {} mod {modulus}", expr(of)),
                None => format!("symhash mod {modulus}"),
            };
            if *seed != 0 {
                let _ = write!(out, " seed {seed}");
            }
            if *offset != 0 {
                let _ = write!(out, " offset {offset}");
            }
            out
        }
        Selector::Numgen {
            inc,
            modulus,
            offset,
        } => {
            let mut out = format!(
                "numgen {} mod {modulus}",
                if *inc { "inc" } else { "random" }
            );
            if *offset != 0 {
                let _ = write!(out, " offset {offset}");
            }
            out
        }
        Selector::Unsupported(what) => what.clone(),
    }
}
