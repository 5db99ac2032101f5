//! The verbs of nfdc.

use control::socket::Client;
use ndn::FaceUri;
use ndn::mgmt::ControlParameters;
use ndn::mgmt::read::{self, FaceStatus, Response};
use serde_json::json;
use wire::ndn::name::Name;
use wire::ndn::{Data, InterestFields, types};

use super::args::{Cs, Face, FaceCreate, PersistencyArg, Route, RouteAdd, Strategy, Switch};
use super::client::{Connection, Outcome, management_name, refused, resolve};
use super::show;
use crate::cli::Global;
use crate::exit::{Exit, Failure};
use crate::output;

/// Bits of a face's flags.
const RELIABILITY: u64 = 2;
const CONGESTION_MARKING: u64 = 4;
/// How long an Interest for an event waits (ms).
const EVENT_MS: u64 = 60_000;

pub(super) fn face(global: &Global, client: &mut Connection, verb: &Face) -> Result<(), Failure> {
    match verb {
        Face::List { remote, scheme } => {
            let mut faces = read::faces(&client.dataset("faces", "list")?).map_err(malformed)?;
            faces.retain(|face| {
                remote.as_ref().is_none_or(|remote| *remote == face.uri)
                    && scheme.as_ref().is_none_or(|scheme| {
                        let starts = |uri: &str| uri.split("://").next() == Some(scheme);
                        starts(&face.uri) || starts(&face.local_uri)
                    })
            });
            show::faces(global, &faces)
        }
        Face::Show { face } => {
            let found = find_face(client, face)?;
            show::face(global, &found)
        }
        Face::Create(args) => {
            let response = create(client, args)?;
            show::done(global, "face created", &response)
        }
        Face::Destroy { face } => {
            let face = find_face(client, face)?;
            let parameters = ControlParameters {
                face_id: Some(face.face_id),
                ..ControlParameters::default()
            };
            let response = ok(client.command("faces", "destroy", &parameters)?)?;
            show::done(global, "face destroyed", &response)
        }
        Face::Channels => {
            let channels = client.dataset("faces", "channels")?;
            let channels = read::channels(&channels).map_err(malformed)?;
            if global.json {
                return output::print_json(&channels);
            }
            let lines: String = channels.iter().map(|uri| format!("{uri}\n")).collect();
            output::print(&lines)
        }
        Face::Events { count } => events(global, client, *count),
    }
}

/// Follows the stream of face events.
fn events(global: &Global, client: &mut Connection, count: Option<u64>) -> Result<(), Failure> {
    let prefix = management_name("faces", "events");
    let mut next: Option<Name> = None;
    let mut seen = 0;
    while count.is_none_or(|count| seen < count) {
        let fields = match &next {
            Some(name) => InterestFields::new(name.as_ref()),
            None => InterestFields {
                can_be_prefix: true,
                must_be_fresh: true,
                ..InterestFields::new(prefix.as_ref())
            },
        };
        let fields = InterestFields {
            lifetime_ms: Some(EVENT_MS),
            ..fields
        };
        let packet = match client.express(&fields)? {
            Outcome::Data(packet) => packet,
            // Nothing happened yet.
            Outcome::Timeout | Outcome::Nack(_) => continue,
        };
        let data = Data::parse(&packet).map_err(malformed)?;
        let event = FaceStatus::parse_event(data.content).map_err(malformed)?;
        show::event(global, &event)?;
        seen += 1;
        let number = data
            .name
            .last()
            .and_then(|last| last.number_of(types::SEQUENCE_NUM))
            .ok_or_else(|| Failure::message(Exit::Failed, "an event without a number"))?;
        next = Some(prefix.with_sequence_num(number + 1));
    }
    Ok(())
}

fn create(client: &mut Connection, args: &FaceCreate) -> Result<Response, Failure> {
    let flags = |switch: Option<Switch>, bit: u64| match switch {
        Some(Switch::On) => (bit, bit),
        Some(Switch::Off) => (0, bit),
        None => (0, 0),
    };
    let (reliable, reliable_mask) = flags(args.reliability, RELIABILITY);
    let (marking, marking_mask) = flags(args.congestion_marking, CONGESTION_MARKING);
    let mask = reliable_mask | marking_mask;
    let parameters = ControlParameters {
        uri: Some(canonical(&args.remote)?),
        local_uri: args.local.clone(),
        persistency: args.persistency.map(|persistency| match persistency {
            PersistencyArg::Persistent => 0,
            PersistencyArg::Permanent => 2,
        }),
        mtu: args.mtu,
        flags: (mask != 0).then_some(reliable | marking),
        mask: (mask != 0).then_some(mask),
        ..ControlParameters::default()
    };
    ok(client.command("faces", "create", &parameters)?)
}

/// Writes a FaceUri as forwarders want it: an address and a port, the version in the scheme.
fn canonical(uri: &str) -> Result<String, Failure> {
    let usage = |message: String| {
        Failure::message(Exit::Usage, message)
            .remedy("write for example udp://192.0.2.9 or ether://[02:00:00:00:00:09]")
    };
    let (scheme, rest) = uri
        .split_once("://")
        .ok_or_else(|| usage(format!("`{uri}` is not a FaceUri")))?;
    let address = || {
        resolve(rest, scheme).map_err(|error| {
            let context = format!("cannot find the address of {uri}");
            Failure::new(Exit::NotFound, anyhow::Error::from(error).context(context))
        })
    };
    let uri = match scheme {
        "udp" | "udp4" | "udp6" => FaceUri::Udp(address()?),
        "tcp" | "tcp4" | "tcp6" => FaceUri::Tcp(address()?),
        _ => uri
            .parse::<FaceUri>()
            .map_err(|error| usage(error.to_string()))?,
    };
    Ok(uri.to_string())
}

/// Finds a face by its number or FaceUri.
fn find_face(client: &mut Connection, face: &str) -> Result<FaceStatus, Failure> {
    let faces = read::faces(&client.dataset("faces", "list")?).map_err(malformed)?;
    let number = face.parse::<u64>().ok();
    let uri = match number {
        Some(_) => String::new(),
        None => canonical(face)?,
    };
    let mut found = faces
        .into_iter()
        .filter(|status| number == Some(status.face_id) || status.uri == uri);
    found.next().ok_or_else(|| {
        Failure::message(Exit::NotFound, format!("there is no face {face}"))
            .remedy("`tidegate ndn face list` lists them")
    })
}

pub(super) fn route(global: &Global, client: &mut Connection, verb: &Route) -> Result<(), Failure> {
    match verb {
        Route::List { nexthop } => {
            let mut entries = read::rib(&client.dataset("rib", "list")?).map_err(malformed)?;
            for entry in &mut entries {
                entry
                    .routes
                    .retain(|route| nexthop.is_none_or(|face| face == route.face_id));
            }
            entries.retain(|entry| !entry.routes.is_empty());
            show::routes(global, &entries)
        }
        Route::Show { prefix } => {
            let mut entries = read::rib(&client.dataset("rib", "list")?).map_err(malformed)?;
            entries.retain(|entry| entry.prefix == *prefix);
            if entries.is_empty() {
                let message = format!("there is no route to {}", prefix.as_ref());
                return Err(Failure::message(Exit::NotFound, message));
            }
            show::routes(global, &entries)
        }
        Route::Add(args) => {
            let response = add_route(client, args)?;
            show::done(global, "route added", &response)
        }
        Route::Remove {
            prefix,
            nexthop,
            origin,
        } => {
            let parameters = ControlParameters {
                name: Some(prefix.clone()),
                face_id: Some(find_face(client, nexthop)?.face_id),
                origin: Some(*origin),
                ..ControlParameters::default()
            };
            let response = ok(client.command("rib", "unregister", &parameters)?)?;
            show::done(global, "route removed", &response)
        }
        Route::Fib => {
            let entries = read::fib(&client.dataset("fib", "list")?).map_err(malformed)?;
            show::fib(global, &entries)
        }
    }
}

fn add_route(client: &mut Connection, args: &RouteAdd) -> Result<Response, Failure> {
    let face_id = match args.nexthop.parse::<u64>() {
        Ok(number) => number,
        Err(_) => {
            let create = ControlParameters {
                uri: Some(canonical(&args.nexthop)?),
                ..ControlParameters::default()
            };
            let response = client.command("faces", "create", &create)?;
            // 409: there is one already.
            let known = response.parameters.as_ref().and_then(|p| p.face_id);
            match (response.code, known) {
                (200 | 409, Some(face)) => face,
                _ => return Err(refused(&response)),
            }
        }
    };
    let inherit = if args.no_inherit { 0 } else { 1 };
    let capture = if args.capture { 2 } else { 0 };
    let parameters = ControlParameters {
        name: Some(args.prefix.clone()),
        face_id: Some(face_id),
        origin: Some(args.origin),
        cost: Some(args.cost),
        flags: Some(inherit | capture),
        expiration_ms: args.expires,
        ..ControlParameters::default()
    };
    ok(client.command("rib", "register", &parameters)?)
}

/// Shows the part of a node's content store that is in the kernel.
pub(super) fn kernel_cache(global: &Global) -> Result<(), Failure> {
    let stats = Client::connect(&global.socket)?.stats()?;
    match stats.ndn.and_then(|ndn| ndn.kernel) {
        Some(kernel) => show::kernel_cache(global, &kernel),
        None => Err(Failure::message(
            Exit::NotFound,
            "the node has no content store in the kernel",
        )
        .remedy("add `[ndn.kernel_cache]` to its configuration and restart it")),
    }
}

pub(super) fn cs(global: &Global, client: &mut Connection, verb: &Cs) -> Result<(), Failure> {
    match verb {
        Cs::Kernel => kernel_cache(global),
        Cs::Info => {
            let info = read::store(&client.dataset("cs", "info")?).map_err(malformed)?;
            show::store(global, &info)
        }
        Cs::Config {
            capacity,
            admit,
            serve,
        } => {
            let bit = |switch: &Option<Switch>, bit: u64| match switch {
                Some(Switch::On) => (bit, bit),
                Some(Switch::Off) => (0, bit),
                None => (0, 0),
            };
            let (admit, admit_mask) = bit(admit, 1);
            let (serve, serve_mask) = bit(serve, 2);
            let mask = admit_mask | serve_mask;
            let parameters = ControlParameters {
                capacity: *capacity,
                flags: (mask != 0).then_some(admit | serve),
                mask: (mask != 0).then_some(mask),
                ..ControlParameters::default()
            };
            let response = ok(client.command("cs", "config", &parameters)?)?;
            show::done(global, "content store changed", &response)
        }
        Cs::Erase { prefix, count } => erase(global, client, prefix, *count),
    }
}

/// Erases in as many commands as the forwarder wants.
fn erase(
    global: &Global,
    client: &mut Connection,
    prefix: &Name,
    count: Option<u64>,
) -> Result<(), Failure> {
    let mut erased = 0;
    loop {
        let parameters = ControlParameters {
            name: Some(prefix.clone()),
            count: count.map(|count| count - erased),
            ..ControlParameters::default()
        };
        let response = ok(client.command("cs", "erase", &parameters)?)?;
        let answer = response.parameters.unwrap_or_default();
        erased += answer.count.unwrap_or(0);
        // A capacity says that there is more than one command may erase.
        let is_done = answer.capacity.is_none() || count.is_some_and(|count| erased >= count);
        if is_done || answer.count == Some(0) {
            break;
        }
    }
    if global.json {
        return output::print_json(
            &json!({"prefix": prefix.as_ref().to_string(), "erased": erased}),
        );
    }
    output::print(&format!(
        "{erased} packets erased under {}\n",
        prefix.as_ref()
    ))
}

pub(super) fn strategy(
    global: &Global,
    client: &mut Connection,
    verb: &Strategy,
) -> Result<(), Failure> {
    let choices = |client: &mut Connection| {
        let content = client.dataset("strategy-choice", "list")?;
        read::strategies(&content).map_err(malformed)
    };
    match verb {
        Strategy::List => show::strategies(global, &choices(client)?),
        Strategy::Show { prefix } => {
            let all = choices(client)?;
            let found = all
                .into_iter()
                .filter(|(choice, _)| choice.as_ref().is_prefix_of(&prefix.as_ref()))
                .max_by_key(|(choice, _)| choice.len());
            show::strategies(global, &found.into_iter().collect::<Vec<_>>())
        }
        Strategy::Set { prefix, strategy } => {
            let full = if strategy.starts_with('/') {
                strategy.clone()
            } else {
                format!("/localhost/nfd/strategy/{strategy}")
            };
            let strategy = full.parse::<Name>().map_err(|error| {
                Failure::message(Exit::Usage, format!("`{full}` is not a name: {error}"))
            })?;
            let parameters = ControlParameters {
                name: Some(prefix.clone()),
                strategy: Some(strategy),
                ..ControlParameters::default()
            };
            let response = ok(client.command("strategy-choice", "set", &parameters)?)?;
            show::done(global, "strategy set", &response)
        }
        Strategy::Unset { prefix } => {
            let parameters = ControlParameters {
                name: Some(prefix.clone()),
                ..ControlParameters::default()
            };
            let response = ok(client.command("strategy-choice", "unset", &parameters)?)?;
            show::done(global, "strategy unset", &response)
        }
    }
}

pub(super) fn status(global: &Global, client: &mut Connection) -> Result<(), Failure> {
    let status = read::forwarder(&client.dataset("status", "general")?).map_err(malformed)?;
    show::forwarder(global, &status)
}

/// Returns the answer to a command that was done.
fn ok(response: Response) -> Result<Response, Failure> {
    if response.code == 200 {
        Ok(response)
    } else {
        Err(refused(&response))
    }
}

fn malformed(error: wire::ndn::DecodeError) -> Failure {
    let message = format!("the answer of the forwarder is malformed: {}", error.text());
    Failure::message(Exit::Failed, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn face_uris_become_canonical() {
        assert_eq!(
            canonical("udp://127.0.0.1").unwrap(),
            "udp4://127.0.0.1:6363"
        );
        assert_eq!(canonical("tcp://[::1]:7000").unwrap(), "tcp6://[::1]:7000");
        let ether = "ether://[02:00:00:00:00:09]";
        assert_eq!(canonical(ether).unwrap(), ether);
        for wrong in ["192.0.2.1", "quic://192.0.2.1", "ether://02:00:00:00:00:09"] {
            assert_eq!(canonical(wrong).unwrap_err().exit, Exit::Usage, "{wrong}");
        }
    }
}
