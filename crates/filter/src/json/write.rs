//! A model as libnftables JSON.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde_json::{Map, Value, json};

use crate::lang::ast::{
    BinOp, ChainAst, DataAst, DynOp, Element, Expr, ExprKind, LimitAst, NatAst, ObjectAst,
    ObjectKind, ObjectRef, QuotaAst, RejectAst, RelOp, RuleAst, SetAst, Stmt, StmtKind, TableAst,
    TypeAst, VerdictAst,
};
use crate::lang::model::Model;
use crate::lang::print;
use crate::lang::selector::{CT, EXTHDR, FibResultAst, META, Selector, TCP_OPTIONS};
use crate::packet::CtDirection;
use crate::rules::field::Base;

/// Writes all tables as `nft -j list ruleset` does.
pub fn write(model: &Model) -> String {
    let mut list = Vec::from([json!({"metainfo": {"json_schema_version": 1}})]);
    for table in &model.tables {
        list.push(with_comment(
            json!({"table": {"family": table.family.name(), "name": table.name.text, "handle": table.handle}}),
            "table",
            table.comment.as_deref(),
        ));
        list.extend(table.chains.iter().map(|item| chain(table, item)));
        list.extend(table.objects.iter().map(|item| object(table, item)));
        list.extend(table.sets.iter().map(|item| set(table, item)));
        for chain in &table.chains {
            list.extend(chain.rules.iter().map(|item| rule(table, chain, item)));
        }
    }
    json!({"nftables": list}).to_string()
}

fn with_comment(mut value: Value, key: &str, comment: Option<&str>) -> Value {
    if let (Some(comment), Some(body)) = (comment, value.get_mut(key)) {
        body["comment"] = json!(comment);
    }
    value
}

fn chain(table: &TableAst, chain: &ChainAst) -> Value {
    let mut body = json!({
        "family": table.family.name(), "table": table.name.text, "name": chain.name.text, "handle": chain.handle,
    });
    if let Some(base) = &chain.base {
        body["type"] = json!(base.kind);
        body["hook"] = json!(base.hook.name());
        body["prio"] = json!(base.priority);
        body["policy"] = json!(if base.policy_drop { "drop" } else { "accept" });
        match base.devices.as_slice() {
            [] => {}
            [device] => body["dev"] = json!(device),
            many => body["dev"] = json!(many),
        }
    }
    with_comment(json!({"chain": body}), "chain", chain.comment.as_deref())
}

fn rule(table: &TableAst, chain: &ChainAst, rule: &RuleAst) -> Value {
    let body = json!({
        "family": table.family.name(), "table": table.name.text, "chain": chain.name.text, "handle": rule.handle,
        "expr": rule.stmts.iter().map(stmt).collect::<Vec<_>>(),
    });
    with_comment(json!({"rule": body}), "rule", rule.comment.as_deref())
}

fn types(of: &TypeAst) -> Value {
    let names: Vec<&str> = match of {
        TypeAst::Names(names) => names.iter().map(|name| name.text.as_str()).collect(),
        TypeAst::Of(of) => return json!({"typeof": expr(of)}),
    };
    match names.as_slice() {
        [name] => json!(name),
        many => json!(many),
    }
}

fn set(table: &TableAst, set: &SetAst) -> Value {
    let key = if set.is_map { "map" } else { "set" };
    let mut body = json!({"family": table.family.name(), "name": set.name.text, "table": table.name.text, "handle": set.handle});
    if let Some(of) = &set.key {
        body["type"] = types(of);
    }
    match &set.data {
        None => {}
        Some(DataAst::Verdict) => body["map"] = json!("verdict"),
        Some(DataAst::Object(kind)) => body["map"] = json!(kind),
        Some(DataAst::Type(of)) => body["map"] = types(of),
    }
    let flags = [
        (set.constant, "constant"),
        (set.interval, "interval"),
        (set.timeout, "timeout"),
        (set.dynamic, "dynamic"),
    ];
    let flags: Vec<&str> = flags
        .iter()
        .filter(|(on, _)| *on)
        .map(|(_, name)| *name)
        .collect();
    if !flags.is_empty() {
        body["flags"] = json!(flags);
    }
    for (name, value) in [
        ("size", set.size),
        ("timeout", set.timeout_ms.map(seconds)),
        ("gc-interval", set.gc_ms.map(seconds)),
    ] {
        if let Some(value) = value {
            body[name] = json!(value);
        }
    }
    if let Some(policy) = &set.policy {
        body["policy"] = json!(policy);
    }
    if set.auto_merge {
        body["auto-merge"] = json!(true);
    }
    if !set.stmts.is_empty() {
        body["stmt"] = set.stmts.iter().map(stmt).collect();
    }
    if !set.elements.is_empty() {
        body["elem"] = set.elements.iter().map(element).collect();
    }
    with_comment(json!({key: body}), key, set.comment.as_deref())
}

const fn seconds(ms: u64) -> u64 {
    ms.div_ceil(1000)
}

fn object(table: &TableAst, object: &ObjectAst) -> Value {
    let kind = object.kind.name();
    let mut body = match &object.kind {
        ObjectKind::Counter { packets, bytes } => json!({"packets": packets, "bytes": bytes}),
        ObjectKind::Quota(quota) => {
            json!({"bytes": quota.bytes, "used": quota.used, "inv": quota.over})
        }
        ObjectKind::Limit(body) => limit(body),
        ObjectKind::Helper {
            kind,
            protocol,
            l3proto,
        } => {
            let mut body = json!({"type": kind, "protocol": protocol});
            if let Some(l3proto) = l3proto {
                body["l3proto"] = json!(l3proto);
            }
            body
        }
        ObjectKind::Synproxy(options) => synproxy(options),
        ObjectKind::Flowtable {
            priority, devices, ..
        } => json!({"hook": "ingress", "prio": priority, "dev": devices}),
        ObjectKind::Timeout {
            protocol, policy, ..
        } => {
            let policy: Map<String, Value> = policy
                .iter()
                .map(|(state, time)| (state.clone(), json!(time)))
                .collect();
            json!({"protocol": protocol, "policy": policy})
        }
        ObjectKind::Expectation {
            protocol,
            dport,
            timeout_ms,
            size,
            ..
        } => {
            json!({"protocol": protocol, "dport": dport, "timeout": timeout_ms, "size": size})
        }
        ObjectKind::Secmark(context) => json!({"context": context}),
    };
    body["family"] = json!(table.family.name());
    body["table"] = json!(table.name.text);
    body["name"] = json!(object.name.text);
    body["handle"] = json!(object.handle);
    with_comment(json!({kind: body}), kind, object.comment.as_deref())
}

fn synproxy(options: &crate::lang::ast::SynproxyAst) -> Value {
    let mut flags = Vec::new();
    if options.timestamp {
        flags.push("timestamp");
    }
    if options.sack_perm {
        flags.push("sack-perm");
    }
    let mut body = json!({"mss": options.mss});
    if let Some(scale) = options.wscale {
        body["wscale"] = json!(scale);
    }
    if !flags.is_empty() {
        body["flags"] = json!(flags);
    }
    body
}

fn limit(limit: &LimitAst) -> Value {
    let per = match limit.per_s {
        1 => "second",
        60 => "minute",
        3600 => "hour",
        86_400 => "day",
        _ => "week",
    };
    let mut body = json!({"rate": limit.rate, "per": per});
    if limit.bytes {
        body["rate_unit"] = json!("bytes");
    }
    if let Some(burst) = limit.burst {
        body["burst"] = json!(burst);
        if limit.bytes {
            body["burst_unit"] = json!("bytes");
        }
    }
    if limit.over {
        body["inv"] = json!(true);
    }
    body
}

fn quota(quota: &QuotaAst) -> Value {
    json!({"val": quota.bytes, "val_unit": "bytes", "used": quota.used, "used_unit": "bytes", "inv": quota.over})
}

fn element(element: &Element) -> Value {
    let plain = element.timeout_ms.is_none()
        && element.expires_ms.is_none()
        && element.comment.is_none()
        && element.stmts.is_empty();
    let mut key = expr(&element.key);
    if !plain {
        let mut body = json!({"val": key});
        if let Some(ms) = element.timeout_ms {
            body["timeout"] = json!(seconds(ms));
        }
        if let Some(ms) = element.expires_ms {
            body["expires"] = json!(seconds(ms));
        }
        if let Some(comment) = &element.comment {
            body["comment"] = json!(comment);
        }
        for entry in &element.stmts {
            if let Value::Object(entry) = stmt(entry) {
                for (name, value) in entry {
                    body[name] = value;
                }
            }
        }
        key = json!({"elem": body});
    }
    match &element.data {
        Some(data) => json!([key, expr(data)]),
        None => key,
    }
}

fn verdict(verdict: &VerdictAst) -> Value {
    match verdict {
        VerdictAst::Accept => json!({"accept": null}),
        VerdictAst::Drop => json!({"drop": null}),
        VerdictAst::Return => json!({"return": null}),
        VerdictAst::Continue => json!({"continue": null}),
        VerdictAst::Jump(chain) => json!({"jump": {"target": chain.text}}),
        VerdictAst::Goto(chain) => json!({"goto": {"target": chain.text}}),
        VerdictAst::Block { goto, rules } => {
            let rules: Vec<Value> = rules
                .iter()
                .map(|rule| rule.stmts.iter().map(stmt).collect())
                .collect();
            json!({if *goto { "goto" } else { "jump" }: {"chain": rules}})
        }
    }
}

fn object_ref(object: &ObjectRef) -> Value {
    match object {
        ObjectRef::Name(name) => json!(name.text),
        ObjectRef::Map(map) => expr(map),
    }
}

fn stmt(stmt_: &Stmt) -> Value {
    match &stmt_.kind {
        StmtKind::Match { left, op, right } => {
            let op = match op {
                RelOp::Implicit if is_flags(left) => "in",
                RelOp::Implicit | RelOp::Eq => "==",
                RelOp::Ne => "!=",
                RelOp::Lt => "<",
                RelOp::Le => "<=",
                RelOp::Gt => ">",
                RelOp::Ge => ">=",
                RelOp::Not => "!",
            };
            json!({"match": {"op": op, "left": expr(left), "right": expr(right)}})
        }
        StmtKind::Verdict(inner) => verdict(inner),
        StmtKind::Vmap { key, map } => json!({"vmap": {"key": expr(key), "data": expr(map)}}),
        StmtKind::Counter { packets, bytes } => {
            json!({"counter": {"packets": packets, "bytes": bytes}})
        }
        StmtKind::CounterRef(object) => json!({"counter": object_ref(object)}),
        StmtKind::Quota(body) => json!({"quota": quota(body)}),
        StmtKind::QuotaRef(object) => json!({"quota": object_ref(object)}),
        StmtKind::Limit(body) => json!({"limit": limit(body)}),
        StmtKind::LimitRef(object) => json!({"limit": object_ref(object)}),
        StmtKind::ConnLimit { count, over } => json!({"ct count": {"val": count, "inv": over}}),
        StmtKind::Last => json!({"last": null}),
        StmtKind::Log(log) => {
            let mut body = Map::new();
            let level = log
                .level
                .and_then(|level| print::LEVELS.get(usize::from(level)));
            let entries = [
                ("prefix", log.prefix.as_ref().map(|prefix| json!(prefix))),
                ("level", level.map(|level| json!(level))),
                ("group", log.group.map(|group| json!(group))),
                ("snaplen", log.snaplen.map(|snaplen| json!(snaplen))),
                (
                    "queue-threshold",
                    log.queue_threshold.map(|threshold| json!(threshold)),
                ),
                ("flags", (!log.flags.is_empty()).then(|| json!(log.flags))),
            ];
            for (name, value) in entries {
                if let Some(value) = value {
                    body.insert(name.to_string(), value);
                }
            }
            json!({"log": body})
        }
        StmtKind::Reject(reject) => match reject {
            RejectAst::Default => json!({"reject": null}),
            RejectAst::TcpReset => json!({"reject": {"type": "tcp reset"}}),
            RejectAst::Icmp(code) => json!({"reject": {"type": "icmp", "expr": expr(code)}}),
            RejectAst::Icmpv6(code) => json!({"reject": {"type": "icmpv6", "expr": expr(code)}}),
            RejectAst::Icmpx(code) => json!({"reject": {"type": "icmpx", "expr": expr(code)}}),
        },
        StmtKind::Nat { kind, .. } => nat(*kind, &stmt_.kind),
        StmtKind::Mangle { target, value } => {
            json!({"mangle": {"key": selector(target), "value": expr(value)}})
        }
        StmtKind::CtObject { kind, object } => json!({format!("ct {kind}"): object_ref(object)}),
        StmtKind::Dynset {
            op,
            set,
            element: body,
        } => dynset(*op, &set.text, body),
        StmtKind::Meter {
            name,
            size,
            element: body,
        } => {
            let mut meter = json!({"key": element(&Element { stmts: Vec::new(), ..(**body).clone() }), "name": name.text});
            meter["stmts"] = body.stmts.iter().map(stmt).collect();
            if let Some(size) = size {
                meter["size"] = json!(size);
            }
            json!({"meter": meter})
        }
        StmtKind::Notrack => json!({"notrack": null}),
        StmtKind::Synproxy(options) => json!({"synproxy": synproxy(options)}),
        StmtKind::SynproxyRef(object) => json!({"synproxy": object_ref(object)}),
        StmtKind::Flow(name) => {
            json!({"flow": {"op": "add", "flowtable": format!("@{}", name.text)}})
        }
        StmtKind::Queue => json!({"queue": null}),
        StmtKind::Fwd(to) => json!({"fwd": {"dev": expr(to)}}),
        StmtKind::Dup(to, device) => {
            json!({"dup": {"addr": to.as_ref().map(expr), "dev": device.as_ref().map(expr)}})
        }
        StmtKind::Tproxy => json!({"tproxy": null}),
    }
}

fn dynset(op: DynOp, set: &str, body: &Element) -> Value {
    let key = element(&Element {
        stmts: Vec::new(),
        data: None,
        ..body.clone()
    });
    let mut out = json!({"op": op.name(), "elem": key, "set": format!("@{set}")});
    if let Some(data) = &body.data {
        out["data"] = expr(data);
    }
    if !body.stmts.is_empty() {
        out["stmt"] = body.stmts.iter().map(stmt).collect();
    }
    json!({"set": out})
}

fn nat(kind: NatAst, stmt: &StmtKind) -> Value {
    let StmtKind::Nat {
        family,
        address,
        port,
        flags,
        prefix,
        ..
    } = stmt
    else {
        return Value::Null;
    };
    let mut body = Map::new();
    if let Some(family) = family {
        body.insert("family".to_string(), json!(family.name()));
    }
    if let Some(address) = address {
        body.insert("addr".to_string(), expr(address));
    }
    if let Some(port) = port {
        body.insert("port".to_string(), expr(port));
    }
    if !flags.is_empty() {
        body.insert("flags".to_string(), json!(flags));
    }
    if *prefix {
        body.insert("type_flags".to_string(), json!(["prefix"]));
    }
    let body = if body.is_empty() {
        Value::Null
    } else {
        Value::Object(body)
    };
    json!({kind.name(): body})
}

fn is_flags(left: &Expr) -> bool {
    matches!(&left.kind, ExprKind::Selector(selector) if selector.data_type().is_bitmask())
}

fn expr(of: &Expr) -> Value {
    match &of.kind {
        ExprKind::Word(word) | ExprKind::Str(word) => json!(word),
        ExprKind::Num(number) => json!(number),
        ExprKind::Selector(inner) => selector(inner),
        ExprKind::SetRef(name) => json!(format!("@{name}")),
        ExprKind::Set(elements) => json!({"set": elements.iter().map(element).collect::<Vec<_>>()}),
        ExprKind::Concat(parts) => json!({"concat": parts.iter().map(expr).collect::<Vec<_>>()}),
        ExprKind::Range(low, high) => json!({"range": [expr(low), expr(high)]}),
        ExprKind::Prefix(base, length) => json!({"prefix": {"addr": expr(base), "len": length}}),
        ExprKind::List(list) => list.iter().map(expr).collect(),
        ExprKind::Binary(op, left, right) => binary(*op, left, right),
        ExprKind::Map(key, map) => json!({"map": {"key": expr(key), "data": expr(map)}}),
        ExprKind::Any => json!("*"),
        ExprKind::Verdict(inner) => verdict(inner),
    }
}

fn binary(op: BinOp, left: &Expr, right: &Expr) -> Value {
    json!({op.symbol(): [expr(left), expr(right)]})
}

fn selector(of: &Selector) -> Value {
    match of {
        Selector::Payload(protocol, field) => {
            json!({"payload": {"protocol": protocol.name, "field": field.name}})
        }
        Selector::Raw(base, offset, bits) => {
            let base = match base {
                Base::Link | Base::Vlan => "ll",
                Base::Network => "nh",
                Base::Transport => "th",
                Base::Inner => "ih",
            };
            json!({"payload": {"base": base, "offset": offset, "len": bits}})
        }
        Selector::Meta(key) => json!({"meta": {"key": META.get(*key).map_or("", |meta| meta.0)}}),
        Selector::Ct {
            key,
            direction,
            family,
        } => {
            let mut body = json!({"key": CT.get(*key).map_or("", |ct| ct.0)});
            if let Some(direction) = direction {
                body["dir"] = json!(if *direction == CtDirection::Reply {
                    "reply"
                } else {
                    "original"
                });
            }
            if let Some(family) = family {
                body["family"] = json!(family.name());
            }
            json!({"ct": body})
        }
        Selector::ExtHdr(header, field) => {
            let mut body = json!({"name": EXTHDR.get(*header).map_or("", |header| header.0)});
            if let Some(field) = field {
                body["field"] = json!(field.name);
            }
            json!({"exthdr": body})
        }
        Selector::TcpOption(option, field) => {
            let mut body = json!({"name": TCP_OPTIONS.get(*option).map_or("", |option| option.0)});
            if let Some(field) = field {
                body["field"] = json!(field.name);
            }
            json!({"tcp option": body})
        }
        Selector::TcpOptionKind(kind) => {
            json!({"tcp option": {"base": kind, "offset": 0, "len": 8}})
        }
        Selector::Fib {
            source,
            mark,
            iif,
            oif,
            result,
            ..
        } => {
            let flags = [
                (*source, "saddr"),
                (!*source, "daddr"),
                (*mark, "mark"),
                (*iif, "iif"),
                (*oif, "oif"),
            ];
            let flags: Vec<&str> = flags
                .iter()
                .filter(|(on, _)| *on)
                .map(|(_, name)| *name)
                .collect();
            let result = match result {
                FibResultAst::Oif => "oif",
                FibResultAst::OifName => "oifname",
                FibResultAst::Type => "type",
            };
            json!({"fib": {"result": result, "flags": flags}})
        }
        Selector::Rt { key, family } => {
            let mut body = json!({"key": key});
            if let Some(family) = family {
                body["family"] = json!(family.name());
            }
            json!({"rt": body})
        }
        Selector::Socket(key) => json!({"socket": {"key": key}}),
        Selector::Hash {
            of,
            modulus,
            seed,
            offset,
        } => {
            let mut body = json!({"mod": modulus, "seed": seed, "offset": offset});
            match of {
                Some(of) => {
                    body["expr"] = expr(of);
                    json!({"jhash": body})
                }
                None => json!({"symhash": body}),
            }
        }
        Selector::Numgen {
            inc,
            modulus,
            offset,
        } => {
            json!({"numgen": {"mode": if *inc { "inc" } else { "random" }, "mod": modulus, "offset": offset}})
        }
        Selector::Unsupported(what) => json!({"unsupported": what}),
    }
}
