//! Commands of the RIB manager: register, unregister, announce.

use alloc::vec::Vec;

use wire::Instant;
use wire::ndn::name::Name;
use wire::ndn::{Data, Interest};

use super::control::Control;
use super::datasets::face_or_self;
use super::manager::apply;
use super::response::ControlResponse;
use super::{ControlParameters, PrefixAnnouncement};
use crate::face::FaceId;
use crate::rib::{self, CHILD_INHERIT, Rib, RibError, Route, origin};

/// Cost of a route from a prefix announcement, as in NFD.
const ANNOUNCED_COST: u64 = 2048;

pub(super) fn register(
    rib: &mut Rib,
    parameters: &ControlParameters,
    ingress: FaceId,
    now: Instant,
    control: &mut impl Control,
) -> ControlResponse {
    let Some(name) = &parameters.name else {
        return ControlResponse::malformed();
    };
    let Some(face) = face_or_self(parameters.face_id, ingress) else {
        return ControlResponse::new(410, "face not found");
    };
    if control.faces().get(face).is_none() {
        return ControlResponse::new(410, "face not found");
    }
    let route = Route {
        face,
        origin: parameters.origin.unwrap_or(origin::APP),
        cost: parameters.cost.unwrap_or(0),
        flags: parameters.flags.unwrap_or(CHILD_INHERIT),
        expires: parameters
            .expiration_ms
            .filter(|&ms| ms != u64::MAX)
            .map(|ms| rib::after_ms(now, ms)),
    };
    let response = ControlParameters {
        name: Some(name.clone()),
        face_id: Some(u64::from(face.0)),
        origin: Some(route.origin),
        cost: Some(route.cost),
        flags: Some(route.flags),
        expiration_ms: parameters.expiration_ms,
        ..ControlParameters::default()
    };
    add(rib, name, route, now, control).unwrap_or_else(|| ControlResponse::ok(response))
}

pub(super) fn unregister(
    rib: &mut Rib,
    parameters: &ControlParameters,
    ingress: FaceId,
    now: Instant,
    control: &mut impl Control,
) -> ControlResponse {
    let Some(name) = &parameters.name else {
        return ControlResponse::malformed();
    };
    let face = face_or_self(parameters.face_id, ingress).unwrap_or(FaceId::NULL);
    let origin = parameters.origin.unwrap_or(origin::APP);
    let mut updates = Vec::new();
    rib.unregister(name.as_ref(), face, origin, &mut updates);
    apply(&updates, now, control);
    ControlResponse::ok(ControlParameters {
        name: Some(name.clone()),
        face_id: Some(u64::from(face.0)),
        origin: Some(origin),
        ..ControlParameters::default()
    })
}

/// Registers the prefix of an announcement that comes in ApplicationParameters.
pub(super) fn announce(
    rib: &mut Rib,
    interest: &Interest<'_>,
    ingress: FaceId,
    now: Instant,
    control: &mut impl Control,
) -> ControlResponse {
    let data = interest.application_parameters.map(Data::parse);
    let Some(Ok(data)) = data else {
        return ControlResponse::malformed();
    };
    let Ok(announcement) = PrefixAnnouncement::parse(&data) else {
        return ControlResponse::malformed();
    };
    let (response, route) = announced(&announcement, ingress, now);
    add(rib, &announcement.prefix, route, now, control)
        .unwrap_or_else(|| ControlResponse::ok(response))
}

/// Returns the route that an announcement makes, and the parameters that say so.
pub(super) fn announced(
    announcement: &PrefixAnnouncement,
    face: FaceId,
    now: Instant,
) -> (ControlParameters, Route) {
    let route = Route {
        face,
        origin: origin::PREFIX_ANNOUNCEMENT,
        cost: ANNOUNCED_COST,
        flags: CHILD_INHERIT,
        expires: Some(rib::after_ms(now, announcement.expiration_ms)),
    };
    let response = ControlParameters {
        name: Some(announcement.prefix.clone()),
        face_id: Some(u64::from(face.0)),
        origin: Some(route.origin),
        cost: Some(route.cost),
        flags: Some(route.flags),
        expiration_ms: Some(announcement.expiration_ms),
        ..ControlParameters::default()
    };
    (response, route)
}

/// Adds a route; returns the refusal if it was not added.
pub(super) fn add(
    rib: &mut Rib,
    name: &Name,
    route: Route,
    now: Instant,
    control: &mut impl Control,
) -> Option<ControlResponse> {
    let mut updates = Vec::new();
    let added = rib.register(name.as_ref(), route, &mut updates);
    apply(&updates, now, control);
    match added {
        Ok(()) => None,
        Err(RibError::TooDeep) => Some(ControlResponse::new(
            414,
            "route prefix cannot exceed 32 components",
        )),
        Err(RibError::Full) => Some(ControlResponse::new(500, "rib is full")),
    }
}
