//! libnftables JSON as nft commands.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde_json::Value;

/// Why JSON is no ruleset.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// It is not JSON.
    #[error("not JSON: {0}")]
    Syntax(String),
    /// Something is missing or of a kind that is not known.
    #[error("in {place}: {what}; compare with the output of `nft -j list ruleset`")]
    Unknown {
        /// Where: a path of indices and names.
        place: String,
        /// What is wrong.
        what: String,
    },
}

type Read<T> = Result<T, JsonError>;

/// Turns a document (`{"nftables": [...]}`) into nft commands, one a line.
///
/// # Errors
/// What is not understood, with its place; nothing is left out silently.
pub fn to_text(json: &str) -> Read<String> {
    let document: Value =
        serde_json::from_str(json).map_err(|error| JsonError::Syntax(error.to_string()))?;
    let Some(list) = document.get("nftables").and_then(Value::as_array) else {
        return Err(unknown("the document", "there is no list `nftables`"));
    };
    let mut out = String::new();
    for (at, item) in list.iter().enumerate() {
        let line = command(item).map_err(|error| match error {
            JsonError::Unknown { place, what } => JsonError::Unknown {
                place: format!("nftables[{at}] {place}"),
                what,
            },
            other => other,
        })?;
        if let Some(line) = line {
            out.push_str(&line);
            out.push('\n');
        }
    }
    Ok(out)
}

fn unknown(place: &str, what: impl Into<String>) -> JsonError {
    JsonError::Unknown {
        place: place.to_owned(),
        what: what.into(),
    }
}

/// The one entry of an object.
fn only<'a>(value: &'a Value, place: &str) -> Read<(&'a str, &'a Value)> {
    let object = value
        .as_object()
        .ok_or_else(|| unknown(place, format!("an object is expected, not `{value}`")))?;
    match (object.iter().next(), object.len()) {
        (Some((key, body)), 1) => Ok((key, body)),
        _ => Err(unknown(
            place,
            format!("an object of one key is expected, not `{value}`"),
        )),
    }
}

fn text<'a>(body: &'a Value, key: &str) -> Read<&'a str> {
    body.get(key)
        .and_then(Value::as_str)
        .ok_or_else(|| unknown(key, "a string is expected"))
}

fn number(body: &Value, key: &str) -> Option<u64> {
    body.get(key).and_then(Value::as_u64)
}

fn is_true(body: &Value, key: &str) -> bool {
    body.get(key).and_then(Value::as_bool).unwrap_or(false)
}

fn command(item: &Value) -> Read<Option<String>> {
    let (key, body) = only(item, "command")?;
    match key {
        "metainfo" => Ok(None),
        "add" | "create" | "insert" | "delete" | "destroy" | "flush" | "replace" => {
            let (what, inner) = only(body, key)?;
            verb(key, what, inner).map(Some)
        }
        "list" | "reset" => Ok(Some(format!("{key} ruleset"))),
        what => verb("add", what, body).map(Some),
    }
}

fn verb(verb: &str, what: &str, body: &Value) -> Read<String> {
    if what == "ruleset" {
        return Ok(format!("{verb} ruleset"));
    }
    let family = body.get("family").and_then(Value::as_str).unwrap_or("ip");
    if what == "table" {
        let name = text(body, "name")?;
        return Ok(format!(
            "{verb} table {family} {name}{}",
            comment_block(body)
        ));
    }
    let table = format!("{family} {}", text(body, "table")?);
    if what == "rule" {
        let chain = text(body, "chain")?;
        let place = match (verb, number(body, "handle"), number(body, "index")) {
            ("delete" | "destroy" | "replace", Some(handle), _) => format!(" handle {handle}"),
            (_, _, Some(index)) => format!(" index {index}"),
            _ => String::new(),
        };
        if matches!(verb, "delete" | "destroy") {
            return Ok(format!("{verb} rule {table} {chain}{place}"));
        }
        return Ok(format!(
            "{verb} rule {table} {chain}{place} {}",
            rule(body)?
        ));
    }
    if what == "element" {
        let elements = body
            .get("elem")
            .and_then(Value::as_array)
            .ok_or_else(|| unknown("elem", "a list is expected"))?;
        let elements: Read<Vec<String>> = elements.iter().map(element).collect();
        return Ok(format!(
            "{verb} element {table} {} {{ {} }}",
            text(body, "name")?,
            elements?.join(", ")
        ));
    }
    let name = text(body, "name")?;
    if !matches!(verb, "add" | "create") {
        return Ok(format!("{verb} {what} {table} {name}"));
    }
    let block = match what {
        "chain" => chain(body)?,
        "set" | "map" => set(body)?,
        _ => object(what, body)?,
    };
    Ok(format!("{verb} {what} {table} {name} {block}"))
}

fn comment_block(body: &Value) -> String {
    match body.get("comment").and_then(Value::as_str) {
        Some(comment) => format!(" {{ comment \"{comment}\"; }}"),
        None => String::new(),
    }
}

fn chain(body: &Value) -> Read<String> {
    let mut out = String::from("{ ");
    if let Some(comment) = body.get("comment").and_then(Value::as_str) {
        out.push_str(&format!("comment \"{comment}\"; "));
    }
    if body.get("type").is_some() {
        let devices = match body.get("dev") {
            Some(Value::String(device)) => format!(" device \"{device}\""),
            Some(Value::Array(list)) => format!(" devices = {{ {} }}", join(list, ", ")?),
            _ => String::new(),
        };
        let priority = body.get("prio").and_then(Value::as_i64).unwrap_or(0);
        out.push_str(&format!(
            "type {} hook {}{devices} priority {priority}; ",
            text(body, "type")?,
            text(body, "hook")?
        ));
        if let Some(policy) = body.get("policy").and_then(Value::as_str) {
            out.push_str(&format!("policy {policy}; "));
        }
    }
    out.push('}');
    Ok(out)
}

fn join(list: &[Value], with: &str) -> Read<String> {
    let parts: Read<Vec<String>> = list.iter().map(expr).collect();
    Ok(parts?.join(with))
}

fn types(value: &Value) -> Read<String> {
    match value {
        Value::String(name) => Ok(name.clone()),
        Value::Array(list) => {
            let names: Vec<&str> = list.iter().filter_map(Value::as_str).collect();
            Ok(names.join(" . "))
        }
        _ => Err(unknown(
            "type",
            format!("a type is expected, not `{value}`"),
        )),
    }
}

fn set(body: &Value) -> Read<String> {
    let mut lines = Vec::new();
    let of = body
        .get("type")
        .ok_or_else(|| unknown("type", "the set has no type"))?;
    let (keyword, key) = match of.get("typeof") {
        Some(of) => ("typeof", expr(of)?),
        None => ("type", types(of)?),
    };
    let data = match body.get("map") {
        None => String::new(),
        Some(data) => match data.get("typeof") {
            Some(of) => format!(" : {}", expr(of)?),
            None => format!(" : {}", types(data)?),
        },
    };
    lines.push(format!("{keyword} {key}{data}"));
    match body.get("flags") {
        Some(Value::String(flag)) => lines.push(format!("flags {flag}")),
        Some(Value::Array(list)) => lines.push(format!(
            "flags {}",
            list.iter()
                .filter_map(Value::as_str)
                .collect::<Vec<_>>()
                .join(",")
        )),
        _ => {}
    }
    if let Some(size) = number(body, "size") {
        lines.push(format!("size {size}"));
    }
    for key in ["timeout", "gc-interval"] {
        if let Some(seconds) = number(body, key) {
            lines.push(format!("{key} {seconds}s"));
        }
    }
    if let Some(policy) = body.get("policy").and_then(Value::as_str) {
        lines.push(format!("policy {policy}"));
    }
    if is_true(body, "auto-merge") {
        lines.push("auto-merge".to_owned());
    }
    if let Some(comment) = body.get("comment").and_then(Value::as_str) {
        lines.push(format!("comment \"{comment}\""));
    }
    for entry in body
        .get("stmt")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        lines.push(stmt(entry)?);
    }
    if let Some(elements) = body
        .get("elem")
        .and_then(Value::as_array)
        .filter(|list| !list.is_empty())
    {
        let elements: Read<Vec<String>> = elements.iter().map(element).collect();
        lines.push(format!("elements = {{ {} }}", elements?.join(", ")));
    }
    Ok(format!("{{ {}; }}", lines.join("; ")))
}

fn object(what: &str, body: &Value) -> Read<String> {
    let mut lines = Vec::new();
    match what {
        "counter" => lines.push(format!(
            "packets {} bytes {}",
            number(body, "packets").unwrap_or(0),
            number(body, "bytes").unwrap_or(0)
        )),
        "quota" => {
            let over = if is_true(body, "inv") { "over " } else { "" };
            let used = number(body, "used")
                .filter(|used| *used > 0)
                .map(|used| format!(" used {used} bytes"))
                .unwrap_or_default();
            lines.push(format!(
                "{over}{} bytes{used}",
                number(body, "bytes").unwrap_or(0)
            ));
        }
        "limit" => lines.push(limit(body)?),
        "synproxy" => lines.extend(synproxy(body)),
        "ct helper" => {
            lines.push(format!(
                "type \"{}\" protocol {}",
                text(body, "type")?,
                text(body, "protocol")?
            ));
            if let Ok(l3proto) = text(body, "l3proto") {
                lines.push(format!("l3proto {l3proto}"));
            }
        }
        "flowtable" => {
            let devices = match body.get("dev") {
                Some(Value::Array(list)) => join(list, ", ")?,
                Some(Value::String(device)) => device.clone(),
                _ => String::new(),
            };
            lines.push(format!(
                "hook ingress priority {}",
                body.get("prio").and_then(Value::as_i64).unwrap_or(0)
            ));
            lines.push(format!("devices = {{ {devices} }}"));
        }
        other => return Err(unknown(other, "no such object")),
    }
    if let Some(comment) = body.get("comment").and_then(Value::as_str) {
        lines.push(format!("comment \"{comment}\""));
    }
    Ok(format!("{{ {}; }}", lines.join("; ")))
}

fn rule(body: &Value) -> Read<String> {
    let list = body
        .get("expr")
        .and_then(Value::as_array)
        .ok_or_else(|| unknown("expr", "a list is expected"))?;
    let mut parts = list.iter().map(stmt).collect::<Read<Vec<String>>>()?;
    if let Some(comment) = body.get("comment").and_then(Value::as_str) {
        parts.push(format!("comment \"{comment}\""));
    }
    Ok(parts.join(" "))
}

fn element(value: &Value) -> Read<String> {
    if let Value::Array(pair) = value
        && let [key, data] = pair.as_slice()
    {
        return Ok(format!("{} : {}", element(key)?, expr(data)?));
    }
    let Some(body) = value.get("elem") else {
        return expr(value);
    };
    let mut out = body
        .get("val")
        .map(expr)
        .transpose()?
        .ok_or_else(|| unknown("elem", "there is no `val`"))?;
    for key in ["timeout", "expires"] {
        if let Some(seconds) = number(body, key) {
            out.push_str(&format!(" {key} {seconds}s"));
        }
    }
    for key in ["counter", "limit", "quota"] {
        if let Some(inner) = body.get(key) {
            out.push_str(&format!(" {}", stmt(&serde_json::json!({key: inner}))?));
        }
    }
    if let Some(comment) = body.get("comment").and_then(Value::as_str) {
        out.push_str(&format!(" comment \"{comment}\""));
    }
    Ok(out)
}

fn limit(body: &Value) -> Read<String> {
    let rate = number(body, "rate").ok_or_else(|| unknown("limit", "there is no `rate`"))?;
    let per = body.get("per").and_then(Value::as_str).unwrap_or("second");
    let over = if is_true(body, "inv") { "over " } else { "" };
    let unit = body
        .get("rate_unit")
        .and_then(Value::as_str)
        .filter(|unit| *unit != "packets");
    let unit = unit.map(|unit| format!(" {unit}")).unwrap_or_default();
    let burst = match number(body, "burst").filter(|burst| *burst > 0) {
        Some(burst) => format!(
            " burst {burst} {}",
            body.get("burst_unit")
                .and_then(Value::as_str)
                .unwrap_or("packets")
        ),
        None => String::new(),
    };
    Ok(format!("rate {over}{rate}{unit}/{per}{burst}"))
}

fn synproxy(body: &Value) -> Vec<String> {
    let mut out = Vec::new();
    for key in ["mss", "wscale"] {
        if let Some(value) = number(body, key) {
            out.push(format!("{key} {value}"));
        }
    }
    match body.get("flags") {
        Some(Value::String(flag)) => out.push(flag.clone()),
        Some(Value::Array(flags)) => out.extend(
            flags
                .iter()
                .filter_map(Value::as_str)
                .map(ToOwned::to_owned),
        ),
        _ => {}
    }
    out
}

/// `name "x"` or `name key map { ... }`, if the value names an object.
fn object_name(value: &Value) -> Read<Option<String>> {
    match value {
        Value::String(name) => Ok(Some(format!("name \"{name}\""))),
        Value::Object(object) if object.contains_key("map") => {
            Ok(Some(format!("name {}", expr(value)?)))
        }
        _ => Ok(None),
    }
}

fn stmt(value: &Value) -> Read<String> {
    let (key, body) = only(value, "statement")?;
    if let Some(verdict) = verdict(key, body)? {
        return Ok(verdict);
    }
    Ok(match key {
        "match" => relation(body)?,
        "vmap" => format!("{} vmap {}", part(body, "key")?, part(body, "data")?),
        "counter" | "quota" | "limit" | "synproxy" => match object_name(body)? {
            Some(name) => format!("{key} {name}"),
            None => stateful(key, body)?,
        },
        "log" => log(body)?,
        "reject" => match body.get("type").and_then(Value::as_str) {
            None => "reject".to_owned(),
            Some("tcp reset") => "reject with tcp reset".to_owned(),
            Some(kind) => format!("reject with {kind} {}", part(body, "expr")?),
        },
        "snat" | "dnat" | "masquerade" | "redirect" => nat(key, body)?,
        "mangle" => format!("{} set {}", part(body, "key")?, part(body, "value")?),
        "notrack" => "notrack".to_owned(),
        "ct helper" | "ct timeout" | "ct expectation" => match body {
            Value::String(name) => format!("{key} set \"{name}\""),
            _ => format!("{key} set {}", expr(body)?),
        },
        "ct count" => {
            let over = if is_true(body, "inv") { "over " } else { "" };
            format!("ct count {over}{}", number(body, "val").unwrap_or(0))
        }
        "flow" => format!("flow add {}", text(body, "flowtable")?),
        "fwd" => format!("fwd to {}", part(body, "dev")?),
        "dup" => format!("dup to {}", part(body, "addr")?),
        "set" => dynset(body)?,
        "meter" => {
            let size = number(body, "size")
                .map(|size| format!(" size {size}"))
                .unwrap_or_default();
            let key = body
                .get("key")
                .map(element)
                .transpose()?
                .unwrap_or_default();
            format!(
                "meter {}{size} {{ {key} {} }}",
                text(body, "name")?,
                stmts_of(body)?
            )
        }
        "queue" | "tproxy" | "last" => key.to_owned(),
        other => return Err(unknown(other, "no such statement")),
    })
}

fn part(body: &Value, key: &str) -> Read<String> {
    body.get(key)
        .map_or_else(|| Err(unknown(key, "is missing")), expr)
}

/// `stmt` or `stmts`, a list or one.
fn stmts_of(body: &Value) -> Read<String> {
    let inner = body.get("stmt").or_else(|| body.get("stmts"));
    Ok(match inner {
        None | Some(Value::Null) => String::new(),
        Some(Value::Array(list)) => list
            .iter()
            .map(stmt)
            .collect::<Read<Vec<String>>>()?
            .join(" "),
        Some(one) => stmt(one)?,
    })
}

fn dynset(body: &Value) -> Read<String> {
    let key = body
        .get("elem")
        .map(element)
        .transpose()?
        .ok_or_else(|| unknown("set", "there is no `elem`"))?;
    let statements = stmts_of(body)?;
    let data = match body.get("data") {
        Some(data) => format!(" : {}", expr(data)?),
        None => String::new(),
    };
    let space = if statements.is_empty() { "" } else { " " };
    Ok(format!(
        "{} {} {{ {key}{space}{statements}{data} }}",
        text(body, "op")?,
        text(body, "set")?
    ))
}

fn stateful(key: &str, body: &Value) -> Read<String> {
    Ok(match key {
        "counter" => match (number(body, "packets"), number(body, "bytes")) {
            (Some(packets), Some(bytes)) => format!("counter packets {packets} bytes {bytes}"),
            _ => "counter".to_owned(),
        },
        "limit" => format!("limit {}", limit(body)?),
        "quota" => {
            let over = if is_true(body, "inv") { "over " } else { "" };
            let unit = body
                .get("val_unit")
                .and_then(Value::as_str)
                .unwrap_or("bytes");
            let used = number(body, "used").filter(|used| *used > 0);
            let used_unit = body
                .get("used_unit")
                .and_then(Value::as_str)
                .unwrap_or("bytes");
            let used = used
                .map(|used| format!(" used {used} {used_unit}"))
                .unwrap_or_default();
            format!(
                "quota {over}{} {unit}{used}",
                number(body, "val").unwrap_or(0)
            )
        }
        _ => format!("synproxy {}", synproxy(body).join(" ")),
    })
}

fn verdict(key: &str, body: &Value) -> Read<Option<String>> {
    Ok(Some(match key {
        "accept" | "drop" | "return" | "continue" => key.to_owned(),
        "jump" | "goto" => match body.get("chain").and_then(Value::as_array) {
            None => format!("{key} {}", text(body, "target")?),
            Some(rules) => {
                let mut lines = Vec::new();
                for rule in rules {
                    let list = rule
                        .as_array()
                        .ok_or_else(|| unknown(key, "a list of rules is expected"))?;
                    lines.push(
                        list.iter()
                            .map(stmt)
                            .collect::<Read<Vec<String>>>()?
                            .join(" "),
                    );
                }
                format!("{key} {{ {}; }}", lines.join("; "))
            }
        },
        _ => return Ok(None),
    }))
}

fn relation(body: &Value) -> Read<String> {
    let left = part(body, "left")?;
    let right = body
        .get("right")
        .ok_or_else(|| unknown("match", "there is no `right`"))?;
    let right = match right {
        Value::Bool(true) => "exists".to_owned(),
        Value::Bool(false) => "missing".to_owned(),
        right => expr(right)?,
    };
    let op = text(body, "op").unwrap_or("==");
    // Flags: `in` is what is meant without an operator; for the rest `==` is.
    let is_flags =
        ["tcp flags", "ct state", "ct status", "ct label", "ct event"].contains(&left.as_str());
    Ok(match op {
        "in" => format!("{left} {right}"),
        "==" if !is_flags && !left.contains(" & ") => format!("{left} {right}"),
        op => format!("{left} {op} {right}"),
    })
}

fn log(body: &Value) -> Read<String> {
    let mut out = "log".to_owned();
    if let Ok(prefix) = text(body, "prefix") {
        out.push_str(&format!(" prefix \"{prefix}\""));
    }
    if let Ok(level) = text(body, "level") {
        out.push_str(&format!(" level {level}"));
    }
    for key in ["group", "snaplen", "queue-threshold"] {
        if let Some(value) = number(body, key) {
            out.push_str(&format!(" {key} {value}"));
        }
    }
    let flags = match body.get("flags") {
        Some(Value::String(flag)) => Vec::from([flag.as_str()]),
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    for flag in flags {
        out.push_str(&format!(" flags {flag}"));
    }
    Ok(out)
}

fn nat(key: &str, body: &Value) -> Read<String> {
    let mut out = key.to_owned();
    if let Ok(family) = text(body, "family") {
        out.push_str(&format!(" {family}"));
    }
    let prefix = body
        .get("type_flags")
        .is_some_and(|flags| flags.to_string().contains("prefix"));
    if prefix {
        out.push_str(" prefix");
    }
    let (address, port) = (
        body.get("addr").map(expr).transpose()?,
        body.get("port").map(expr).transpose()?,
    );
    if address.is_some() || port.is_some() {
        out.push_str(" to ");
    }
    match address {
        Some(address) if port.is_some() && address.contains(':') && !address.contains(' ') => {
            out.push_str(&format!("[{address}]"))
        }
        Some(address) => out.push_str(&address),
        None => {}
    }
    if let Some(port) = port {
        out.push_str(&format!(":{port}"));
    }
    match body.get("flags") {
        Some(Value::String(flag)) => out.push_str(&format!(" {flag}")),
        Some(Value::Array(list)) => out.push_str(&format!(
            " {}",
            list.iter()
                .filter_map(Value::as_str)
                .collect::<Vec<_>>()
                .join(",")
        )),
        _ => {}
    }
    Ok(out)
}

/// A string as a word, or in quotation marks if it is none.
fn word(string: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.:/@*".contains(c);
    if !string.is_empty() && string.chars().all(plain) {
        string.to_owned()
    } else {
        format!("\"{string}\"")
    }
}

fn expr(value: &Value) -> Read<String> {
    match value {
        Value::String(string) => return Ok(word(string)),
        Value::Number(number) => return Ok(number.to_string()),
        Value::Bool(true) => return Ok("exists".to_owned()),
        Value::Bool(false) => return Ok("missing".to_owned()),
        Value::Array(list) => return join(list, ","),
        _ => {}
    }
    let (key, body) = only(value, "expression")?;
    if let Some(verdict) = verdict(key, body)? {
        return Ok(verdict);
    }
    let list = |with: &str| {
        body.as_array().map_or_else(
            || Err(unknown(key, "a list is expected")),
            |list| join(list, with),
        )
    };
    Ok(match key {
        "payload" => match text(body, "protocol") {
            Ok(protocol) => format!("{protocol} {}", text(body, "field")?),
            Err(_) => {
                let [offset, len] = ["offset", "len"].map(|key| number(body, key).unwrap_or(0));
                format!("@{},{offset},{len}", text(body, "base")?)
            }
        },
        "meta" => format!("meta {}", text(body, "key")?),
        "ct" => {
            let mut out = "ct ".to_owned();
            for key in ["dir", "family"] {
                if let Ok(value) = text(body, key) {
                    out.push_str(&format!("{value} "));
                }
            }
            format!("{out}{}", text(body, "key")?)
        }
        "set" => match body {
            Value::Array(list) => format!(
                "{{ {} }}",
                list.iter()
                    .map(element)
                    .collect::<Read<Vec<String>>>()?
                    .join(", ")
            ),
            one => format!("{{ {} }}", element(one)?),
        },
        "elem" => element(value)?,
        "concat" => list(" . ")?,
        "range" => list("-")?,
        "prefix" => format!(
            "{}/{}",
            part(body, "addr")?,
            number(body, "len").unwrap_or(0)
        ),
        "map" => format!("{} map {}", part(body, "key")?, part(body, "data")?),
        "&" | "|" | "^" | "<<" | ">>" => {
            let sides = body
                .as_array()
                .ok_or_else(|| unknown(key, "a list is expected"))?;
            let sides: Read<Vec<String>> = sides.iter().map(operand).collect();
            sides?.join(&format!(" {key} "))
        }
        "exthdr" => match text(body, "field") {
            Ok(field) => format!("{} {field}", text(body, "name")?),
            Err(_) => format!("exthdr {}", text(body, "name")?),
        },
        "tcp option" => match (text(body, "name"), text(body, "field")) {
            (Ok(name), Ok(field)) => format!("tcp option {name} {field}"),
            (Ok(name), Err(_)) => format!("tcp option {name}"),
            _ => format!("tcp option {}", number(body, "base").unwrap_or(0)),
        },
        "fib" => {
            let flags: Vec<&str> = match body.get("flags") {
                Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
                Some(Value::String(flag)) => Vec::from([flag.as_str()]),
                _ => Vec::new(),
            };
            format!("fib {} {}", flags.join(" . "), text(body, "result")?)
        }
        "rt" => match text(body, "family") {
            Ok(family) => format!("rt {family} {}", text(body, "key")?),
            Err(_) => format!("rt {}", text(body, "key")?),
        },
        "socket" => format!("socket {}", text(body, "key")?),
        "jhash" | "symhash" => {
            let of = body
                .get("expr")
                .map(expr)
                .transpose()?
                .map(|of| format!("{of} "))
                .unwrap_or_default();
            let mut out = format!("{key} {of}mod {}", number(body, "mod").unwrap_or(0));
            for key in ["seed", "offset"] {
                if let Some(value) = number(body, key).filter(|value| *value > 0) {
                    out.push_str(&format!(" {key} {value}"));
                }
            }
            out
        }
        "numgen" => {
            let offset = number(body, "offset")
                .filter(|offset| *offset > 0)
                .map(|offset| format!(" offset {offset}"));
            format!(
                "numgen {} mod {}{}",
                text(body, "mode")?,
                number(body, "mod").unwrap_or(0),
                offset.unwrap_or_default()
            )
        }
        other => return Err(unknown(other, "no such expression")),
    })
}

fn operand(value: &Value) -> Read<String> {
    let text = expr(value)?;
    Ok(
        if text.contains(' ')
            && !text.starts_with('(')
            && value
                .as_object()
                .is_some_and(|o| o.keys().any(|key| "&|^<<>>".contains(key.as_str())))
            || value.is_array()
        {
            format!("({text})")
        } else {
            text
        },
    )
}
