//! Commands of the managers of faces, FIB, content store and strategy choice.

use alloc::format;
use alloc::string::ToString;
use core::time::Duration;

use wire::Instant;

use super::ControlParameters;
use super::control::{Control, FaceChange, FaceRefusal, FaceRequest};
use super::datasets::face_or_self;
use super::events::flags_of;
use super::numbers as n;
use super::response::ControlResponse;
use crate::face::{Face, FaceId, LinkType, Persistency};
use crate::fib::{FibError, NextHop};
use crate::strategy::ChoiceError;

/// Runs a command that was authorised.
pub(super) fn run(
    module: &[u8],
    verb: &[u8],
    parameters: &ControlParameters,
    ingress: FaceId,
    now: Instant,
    control: &mut impl Control,
) -> ControlResponse {
    match (module, verb) {
        (b"faces", b"create") => create_face(parameters, now, control),
        (b"faces", b"update") => update_face(parameters, ingress, control),
        (b"faces", b"destroy") => destroy_face(parameters, control),
        (b"fib", b"add-nexthop") => add_next_hop(parameters, ingress, now, control),
        (b"fib", b"remove-nexthop") => remove_next_hop(parameters, ingress, control),
        (b"cs", b"config") => configure_store(parameters, control),
        (b"cs", b"erase") => erase(parameters, control),
        (b"strategy-choice", b"set") => set_strategy(parameters, control),
        (b"strategy-choice", b"unset") => unset_strategy(parameters, control),
        _ => ControlResponse::new(501, "unknown command"),
    }
}

/// Flags without mask, or mask without flags, mean nothing.
const fn has_half_of_flags(parameters: &ControlParameters) -> bool {
    parameters.flags.is_some() != parameters.mask.is_some()
}

/// Reads from parameters what of a face is to be changed.
fn face_change(parameters: &ControlParameters) -> Option<FaceChange> {
    let persistency = match parameters.persistency {
        None => None,
        Some(0) => Some(Persistency::Persistent),
        Some(1) => Some(Persistency::OnDemand),
        Some(2) => Some(Persistency::Permanent),
        Some(_) => return None,
    };
    let (flags, mask) = (parameters.flags.unwrap_or(0), parameters.mask.unwrap_or(0));
    let bit = |bit: u64| (mask & bit != 0).then_some(flags & bit != 0);
    let mtu = match parameters.mtu {
        None => None,
        // The shortest that leaves room for fragments; the longest that numbers of ours hold.
        Some(mtu) => Some(u32::try_from(mtu).ok().filter(|&mtu| mtu >= 64)?),
    };
    Some(FaceChange {
        persistency,
        local_fields: bit(n::FACE_LOCAL_FIELDS),
        reliability: bit(n::FACE_RELIABILITY),
        congestion_marking: bit(n::FACE_CONGESTION_MARKING),
        congestion_interval: parameters.congestion_interval_ns.map(Duration::from_nanos),
        congestion_threshold_bytes: parameters.congestion_threshold_bytes,
        mtu,
    })
}

/// Says what a face is like.
fn describe(face: &Face) -> ControlParameters {
    let config = &face.config;
    ControlParameters {
        face_id: Some(u64::from(face.id.0)),
        uri: Some(config.remote_uri.clone()),
        local_uri: Some(config.local_uri.clone()),
        persistency: Some(config.persistency as u64),
        congestion_interval_ns: Some(config.congestion_interval.as_nanos() as u64),
        congestion_threshold_bytes: Some(config.congestion_threshold_bytes),
        mtu: config.mtu.map(u64::from),
        flags: Some(flags_of(config)),
        ..ControlParameters::default()
    }
}

fn described(face: FaceId, control: &impl Control) -> ControlParameters {
    control.faces().get(face).map(describe).unwrap_or_default()
}

fn create_face(
    parameters: &ControlParameters,
    now: Instant,
    control: &mut impl Control,
) -> ControlResponse {
    let (Some(uri), Some(change)) = (&parameters.uri, face_change(parameters)) else {
        return ControlResponse::malformed();
    };
    let is_malformed = has_half_of_flags(parameters)
        || parameters.face_id.is_some()
        || change.persistency == Some(Persistency::OnDemand);
    if is_malformed {
        return ControlResponse::malformed();
    }
    // Local fields are for applications: a face that a command makes leads elsewhere.
    if change.local_fields == Some(true) {
        return ControlResponse::new(
            406,
            "local fields can only be enabled on faces with local scope",
        );
    }
    let request = FaceRequest {
        remote_uri: uri.clone(),
        local_uri: parameters.local_uri.clone(),
        change,
    };
    match control.create_face(&request, now) {
        Ok(face) => ControlResponse::ok(described(face, control)),
        Err(FaceRefusal::Exists(face)) => ControlResponse {
            body: Some(described(face, control)),
            ..ControlResponse::new(409, "face with remote URI already exists")
        },
        Err(FaceRefusal::Unsupported) => ControlResponse::new(406, "unsupported protocol"),
        Err(FaceRefusal::NotCanonical) => ControlResponse::new(400, "received non-canonical URI"),
        Err(FaceRefusal::Failed) => ControlResponse::new(504, "face creation failed"),
    }
}

fn update_face(
    parameters: &ControlParameters,
    ingress: FaceId,
    control: &mut impl Control,
) -> ControlResponse {
    let not_found = || ControlResponse::new(404, "specified face does not exist");
    let Some(id) = face_or_self(parameters.face_id, ingress) else {
        return not_found();
    };
    let Some(face) = control.faces().get(id) else {
        return not_found();
    };
    let refused = |body| ControlResponse {
        body: Some(body),
        ..ControlResponse::new(409, "invalid properties specified")
    };
    let Some(change) = face_change(parameters).filter(|_| !has_half_of_flags(parameters)) else {
        return ControlResponse::malformed();
    };
    if change.local_fields == Some(true) && !face.is_local() {
        return refused(ControlParameters {
            flags: parameters.flags,
            mask: parameters.mask,
            ..ControlParameters::default()
        });
    }
    let on_demand_group = change.persistency.is_some_and(|wanted| {
        face.config.link_type == LinkType::MultiAccess && wanted != Persistency::Permanent
    });
    if on_demand_group || change.persistency == Some(Persistency::OnDemand) {
        return refused(ControlParameters {
            persistency: parameters.persistency,
            ..ControlParameters::default()
        });
    }
    control.update_face(id, &change);
    let is = described(id, control);
    ControlResponse::ok(ControlParameters {
        uri: None,
        local_uri: None,
        ..is
    })
}

fn destroy_face(parameters: &ControlParameters, control: &mut impl Control) -> ControlResponse {
    let Some(number) = parameters.face_id.filter(|&number| number != 0) else {
        return ControlResponse::malformed();
    };
    if let Ok(face) = u32::try_from(number) {
        control.destroy_face(FaceId(face));
    }
    ControlResponse::ok(ControlParameters {
        face_id: Some(number),
        ..ControlParameters::default()
    })
}

fn add_next_hop(
    parameters: &ControlParameters,
    ingress: FaceId,
    now: Instant,
    control: &mut impl Control,
) -> ControlResponse {
    let Some(name) = &parameters.name else {
        return ControlResponse::malformed();
    };
    let face = face_or_self(parameters.face_id, ingress);
    let Some(face) = face.filter(|&face| control.faces().get(face).is_some()) else {
        return ControlResponse::new(410, "face not found");
    };
    let cost = parameters.cost.unwrap_or(0);
    match control.add_next_hop(name.as_ref(), NextHop { face, cost }, now) {
        Ok(()) => ControlResponse::ok(ControlParameters {
            name: Some(name.clone()),
            face_id: Some(u64::from(face.0)),
            cost: Some(cost),
            ..ControlParameters::default()
        }),
        Err(FibError::TooDeep) => {
            ControlResponse::new(414, "fib entry prefix cannot exceed 32 components")
        }
        Err(FibError::Full) => ControlResponse::new(500, "fib is full"),
    }
}

fn remove_next_hop(
    parameters: &ControlParameters,
    ingress: FaceId,
    control: &mut impl Control,
) -> ControlResponse {
    let Some(name) = &parameters.name else {
        return ControlResponse::malformed();
    };
    let face = face_or_self(parameters.face_id, ingress).unwrap_or(FaceId::NULL);
    control.remove_next_hop(name.as_ref(), face);
    ControlResponse::ok(ControlParameters {
        name: Some(name.clone()),
        face_id: Some(u64::from(face.0)),
        ..ControlParameters::default()
    })
}

fn configure_store(parameters: &ControlParameters, control: &mut impl Control) -> ControlResponse {
    if has_half_of_flags(parameters) {
        return ControlResponse::malformed();
    }
    let (flags, mask) = (parameters.flags.unwrap_or(0), parameters.mask.unwrap_or(0));
    let bit = |bit: u64| (mask & bit != 0).then_some(flags & bit != 0);
    control.configure_store(parameters.capacity, bit(n::CS_ADMIT), bit(n::CS_SERVE));
    let info = control.store_info();
    let admit = if info.admit { n::CS_ADMIT } else { 0 };
    let serve = if info.serve { n::CS_SERVE } else { 0 };
    ControlResponse::ok(ControlParameters {
        capacity: Some(info.capacity),
        flags: Some(admit | serve),
        ..ControlParameters::default()
    })
}

/// Packets that one command erases at most, as in NFD.
const ERASE_LIMIT: u64 = 256;

fn erase(parameters: &ControlParameters, control: &mut impl Control) -> ControlResponse {
    let Some(name) = &parameters.name else {
        return ControlResponse::malformed();
    };
    if parameters.capacity.is_some() || parameters.count == Some(0) {
        return ControlResponse::malformed();
    }
    let asked = parameters.count.unwrap_or(u64::MAX);
    let limit = asked.min(ERASE_LIMIT);
    let mut count = control.erase(name.as_ref(), limit);
    if parameters.count.is_none() && count < limit {
        // All of it: what is not in memory, too.
        count += control.erase(name.as_ref(), u64::MAX);
    }
    // Says that the command is to be sent again.
    let is_cut = asked > limit && count == limit;
    ControlResponse::ok(ControlParameters {
        name: Some(name.clone()),
        count: Some(count),
        capacity: is_cut.then_some(ERASE_LIMIT),
        ..ControlParameters::default()
    })
}

fn set_strategy(parameters: &ControlParameters, control: &mut impl Control) -> ControlResponse {
    let (Some(name), Some(strategy)) = (&parameters.name, &parameters.strategy) else {
        return ControlResponse::malformed();
    };
    match control.set_strategy(name.as_ref(), strategy.as_ref()) {
        Ok(strategy) => ControlResponse::ok(ControlParameters {
            name: Some(name.clone()),
            strategy: Some(strategy),
            ..ControlParameters::default()
        }),
        Err(error @ ChoiceError::Name(_)) => ControlResponse::new(404, error.to_string()),
        Err(ChoiceError::TooDeep) => {
            ControlResponse::new(414, "prefix cannot exceed 32 components")
        }
        Err(error) => ControlResponse::new(500, format!("{error}")),
    }
}

fn unset_strategy(parameters: &ControlParameters, control: &mut impl Control) -> ControlResponse {
    let Some(name) = parameters.name.as_ref().filter(|name| !name.is_empty()) else {
        return ControlResponse::malformed();
    };
    // That there was none is no error.
    let _ = control.unset_strategy(name.as_ref());
    ControlResponse::ok(ControlParameters {
        name: Some(name.clone()),
        ..ControlParameters::default()
    })
}
