//! How answers of management look, for people and as JSON.

use control::api::NdnKernelInfo;
use ndn::mgmt::read::{FaceStatus, FibStatus, ForwarderStatus, Response, RibStatus, StoreStatus};
use serde_json::{Value, json};
use wire::ndn::name::Name;

use crate::cli::Global;
use crate::exit::Failure;
use crate::output::{self, Table};

fn uri(name: &Name) -> String {
    name.as_ref().to_string()
}

fn persistency(number: u64) -> &'static str {
    match number {
        0 => "persistent",
        1 => "on-demand",
        _ => "permanent",
    }
}

fn flags(bits: u64) -> Vec<&'static str> {
    let names = ["local-fields", "reliability", "congestion-marking"];
    let set = names.iter().enumerate();
    set.filter(|(bit, _)| bits >> bit & 1 == 1)
        .map(|(_, name)| *name)
        .collect()
}

fn face_json(face: &FaceStatus) -> Value {
    json!({
        "face_id": face.face_id,
        "remote": face.uri,
        "local": face.local_uri,
        "scope": if face.scope == 1 { "local" } else { "non-local" },
        "persistency": persistency(face.persistency),
        "link_type": match face.link_type { 0 => "point-to-point", 1 => "multi-access", _ => "ad-hoc" },
        "mtu": face.mtu,
        "expires_ms": face.expiration_ms,
        "flags": flags(face.flags),
        "in_interests": face.in_pkts[0],
        "in_data": face.in_pkts[1],
        "in_nacks": face.in_pkts[2],
        "in_bytes": face.bytes[0],
        "out_interests": face.out_pkts[0],
        "out_data": face.out_pkts[1],
        "out_nacks": face.out_pkts[2],
        "out_bytes": face.bytes[1],
    })
}

pub(super) fn faces(global: &Global, faces: &[FaceStatus]) -> Result<(), Failure> {
    if global.json {
        let all: Vec<Value> = faces.iter().map(face_json).collect();
        return output::print_json(&all);
    }
    let mut table = Table::new(&[
        ">face",
        "remote",
        "local",
        "persistency",
        ">in I",
        ">in D",
        ">in N",
        ">in bytes",
        ">out I",
        ">out D",
        ">out N",
        ">out bytes",
        "flags",
    ]);
    for face in faces {
        let ([in_i, in_d, in_n], [out_i, out_d, out_n]) = (face.in_pkts, face.out_pkts);
        table.row([
            face.face_id.to_string(),
            face.uri.clone(),
            face.local_uri.clone(),
            persistency(face.persistency).to_owned(),
            in_i.to_string(),
            in_d.to_string(),
            in_n.to_string(),
            output::bytes(face.bytes[0]),
            out_i.to_string(),
            out_d.to_string(),
            out_n.to_string(),
            output::bytes(face.bytes[1]),
            flags(face.flags).join(" "),
        ]);
    }
    output::print(&table.render(0))
}

pub(super) fn face(global: &Global, face: &FaceStatus) -> Result<(), Failure> {
    let value = face_json(face);
    if global.json {
        return output::print_json(&value);
    }
    output::print(&pairs(&value))
}

/// Writes an object a line a key.
fn pairs(value: &Value) -> String {
    let mut out = String::new();
    for (key, value) in value.as_object().into_iter().flatten() {
        let text = match value {
            Value::Null => continue,
            Value::String(text) => text.clone(),
            Value::Array(items) => {
                let items: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
                items.join(" ")
            }
            other => other.to_string(),
        };
        out.push_str(&format!("{:>14}  {text}\n", key.replace('_', " ")));
    }
    out
}

pub(super) fn event(global: &Global, event: &FaceStatus) -> Result<(), Failure> {
    let kind = match event.event {
        Some(1) => "created",
        Some(2) => "destroyed",
        Some(3) => "up",
        _ => "down",
    };
    if global.json {
        return output::print_json(&json!({
            "event": kind,
            "face_id": event.face_id,
            "remote": event.uri,
            "local": event.local_uri,
            "persistency": persistency(event.persistency),
        }));
    }
    output::print(&format!(
        "{kind} face {} {} {}\n",
        event.face_id, event.uri, event.local_uri
    ))
}

pub(super) fn routes(global: &Global, entries: &[RibStatus]) -> Result<(), Failure> {
    let lines = entries
        .iter()
        .flat_map(|entry| entry.routes.iter().map(|route| (uri(&entry.prefix), route)));
    let inherits = |flags: u64| flags & 1 != 0;
    let captures = |flags: u64| flags & 2 != 0;
    if global.json {
        let all: Vec<Value> = lines
            .map(|(prefix, route)| {
                json!({
                    "prefix": prefix,
                    "face_id": route.face_id,
                    "origin": route.origin,
                    "cost": route.cost,
                    "child_inherit": inherits(route.flags),
                    "capture": captures(route.flags),
                    "expires_ms": route.expiration_ms,
                })
            })
            .collect();
        return output::print_json(&all);
    }
    let mut table = Table::new(&["prefix", ">face", "origin", ">cost", "flags", ">expires"]);
    for (prefix, route) in lines {
        let mut flags = Vec::new();
        if inherits(route.flags) {
            flags.push("child-inherit");
        }
        if captures(route.flags) {
            flags.push("capture");
        }
        table.row([
            prefix,
            route.face_id.to_string(),
            origin(route.origin),
            route.cost.to_string(),
            flags.join(" "),
            route.expiration_ms.map_or_else(
                || "never".to_owned(),
                |ms| output::duration(ms.saturating_mul(1_000_000)),
            ),
        ]);
    }
    output::print(&table.render(0))
}

fn origin(number: u64) -> String {
    match number {
        0 => "app".to_owned(),
        64 => "autoreg".to_owned(),
        65 => "client".to_owned(),
        66 => "autoconf".to_owned(),
        128 => "nlsr".to_owned(),
        129 => "prefixann".to_owned(),
        255 => "static".to_owned(),
        other => other.to_string(),
    }
}

pub(super) fn fib(global: &Global, entries: &[FibStatus]) -> Result<(), Failure> {
    if global.json {
        let all: Vec<Value> = entries
            .iter()
            .map(|entry| {
                let hops = entry.next_hops.iter();
                let hops: Vec<Value> = hops
                    .map(|(face, cost)| json!({"face_id": face, "cost": cost}))
                    .collect();
                json!({"prefix": uri(&entry.prefix), "next_hops": hops})
            })
            .collect();
        return output::print_json(&all);
    }
    let mut table = Table::new(&["prefix", "next hops (face, cost)"]);
    for entry in entries {
        let hops = entry.next_hops.iter();
        let hops: Vec<String> = hops.map(|(face, cost)| format!("{face} {cost}")).collect();
        table.row([uri(&entry.prefix), hops.join(", ")]);
    }
    output::print(&table.render(0))
}

pub(super) fn strategies(global: &Global, choices: &[(Name, Name)]) -> Result<(), Failure> {
    if global.json {
        let all: Vec<Value> = choices
            .iter()
            .map(|(prefix, strategy)| json!({"prefix": uri(prefix), "strategy": uri(strategy)}))
            .collect();
        return output::print_json(&all);
    }
    let mut table = Table::new(&["prefix", "strategy"]);
    for (prefix, strategy) in choices {
        table.row([uri(prefix), uri(strategy)]);
    }
    output::print(&table.render(0))
}

pub(super) fn store(global: &Global, info: &StoreStatus) -> Result<(), Failure> {
    let on = |bit: u64| {
        if info.flags & bit != 0 { "on" } else { "off" }
    };
    let value = json!({
        "capacity": info.capacity,
        "admit": on(1),
        "serve": on(2),
        "packets": info.packets,
        "hits": info.hits,
        "misses": info.misses,
    });
    let disk = info.disk.map(|disk| {
        json!({
            "disk_bytes": disk.file_bytes,
            "index_bytes": disk.index_bytes,
            "recovered": disk.recovered,
            "written": disk.written,
            "not_written": disk.dropped,
            "reads_found": disk.found,
            "reads_lost": disk.lost,
            "failures": disk.failed,
        })
    });
    if global.json {
        let mut value = value;
        value["disk"] = disk.into();
        return output::print_json(&value);
    }
    let on_disk = disk.map(|disk| pairs(&disk)).unwrap_or_default();
    output::print(&format!("{}{on_disk}", pairs(&value)))
}

pub(super) fn kernel_cache(global: &Global, info: &NdnKernelInfo) -> Result<(), Failure> {
    if global.json {
        return output::print_json(info);
    }
    let mut out = String::new();
    let mut line = |key: &str, text: String| out.push_str(&format!("{key:>14}  {text}\n"));
    for port in &info.ports {
        line(&port.name, format!("{}: {}", port.mode, port.why));
    }
    line(
        "packets",
        format!("{} of {}", info.packets, info.capacity_packets),
    );
    line("memory", output::bytes(info.memory_bytes));
    line("hits", info.hits.to_string());
    line("misses", info.misses.to_string());
    let run = info.run_ns.map_or_else(
        || "unknown (set kernel.bpf_stats_enabled)".to_owned(),
        |ns| format!("{ns} ns"),
    );
    line("a run", run);
    line("promoted", info.promoted.to_string());
    line("removed", info.removed.to_string());
    line("evicted", info.evicted.to_string());
    line("refused", info.refused.to_string());
    let mut table = Table::new(&["outcome", ">frames", "what became of them"]);
    for outcome in &info.outcomes {
        table.row([
            outcome.outcome.clone(),
            outcome.frames.to_string(),
            outcome.text.clone(),
        ]);
    }
    out.push('\n');
    out.push_str(&table.render(0));
    output::print(&out)
}

pub(super) fn forwarder(global: &Global, status: &ForwarderStatus) -> Result<(), Failure> {
    let [_, fib, pit, measurements, store] = status.entries;
    let value = json!({
        "version": status.version,
        "uptime_ms": status.unix_ms.saturating_sub(status.start_unix_ms),
        "fib_entries": fib,
        "pit_entries": pit,
        "measurements": measurements,
        "cs_entries": store,
        "in_interests": status.in_pkts[0],
        "in_data": status.in_pkts[1],
        "in_nacks": status.in_pkts[2],
        "out_interests": status.out_pkts[0],
        "out_data": status.out_pkts[1],
        "out_nacks": status.out_pkts[2],
        "satisfied": status.satisfied[0],
        "unsatisfied": status.satisfied[1],
    });
    if global.json {
        return output::print_json(&value);
    }
    output::print(&pairs(&value))
}

/// Says what a command did.
pub(super) fn done(global: &Global, what: &str, response: &Response) -> Result<(), Failure> {
    let parameters = response.parameters.clone().unwrap_or_default();
    let value = json!({
        "done": what,
        "face_id": parameters.face_id,
        "remote": parameters.uri,
        "local": parameters.local_uri,
        "prefix": parameters.name.as_ref().map(uri),
        "strategy": parameters.strategy.as_ref().map(uri),
        "cost": parameters.cost,
        "origin": parameters.origin,
        "capacity": parameters.capacity,
        "mtu": parameters.mtu,
        "flags": parameters.flags,
    });
    if global.json {
        return output::print_json(&value);
    }
    let details: Vec<String> = value
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(key, value)| *key != "done" && !value.is_null())
        .map(|(key, value)| match value {
            Value::String(text) => format!("{key} {text}"),
            other => format!("{key} {other}"),
        })
        .collect();
    output::print(&format!("{what}: {}\n", details.join(", ")))
}
