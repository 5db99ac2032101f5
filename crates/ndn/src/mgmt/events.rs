//! Face events: a stream of numbered notifications.

use alloc::vec;
use alloc::vec::Vec;

use wire::BufferTooShort;
use wire::ndn::Writer;

use super::numbers as n;
use crate::face::{Face, FaceConfig};

/// What happened to a face. The numbers are those of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FaceEventKind {
    /// It was made.
    Created = 1,
    /// It is gone.
    Destroyed = 2,
    /// Its link works.
    Up = 3,
    /// Its link does not.
    Down = 4,
}

/// Returns the flags that FaceStatus and commands show.
pub(super) fn flags_of(config: &FaceConfig) -> u64 {
    let bit = |is_set: bool, bit| if is_set { bit } else { 0 };
    bit(config.local_fields, n::FACE_LOCAL_FIELDS)
        | bit(config.reliability, n::FACE_RELIABILITY)
        | bit(config.congestion_marking, n::FACE_CONGESTION_MARKING)
}

/// Encodes a notification.
pub(super) fn encode(kind: FaceEventKind, face: &Face) -> Vec<u8> {
    let mut out = vec![0; 4096];
    let mut writer = Writer::new(&mut out);
    let length = write(kind, face, &mut writer).map_or(0, |()| writer.len());
    out.truncate(length);
    out
}

fn write(kind: FaceEventKind, face: &Face, out: &mut Writer<'_>) -> Result<(), BufferTooShort> {
    let config = &face.config;
    out.nested(n::FACE_EVENT_NOTIFICATION, |out| {
        out.integer(n::FACE_EVENT_KIND, kind as u64)?;
        out.integer(n::FACE_ID, u64::from(face.id.0))?;
        out.element(n::URI, config.remote_uri.as_bytes())?;
        out.element(n::LOCAL_URI, config.local_uri.as_bytes())?;
        out.integer(n::FACE_SCOPE, config.scope as u64)?;
        out.integer(n::FACE_PERSISTENCY, config.persistency as u64)?;
        out.integer(n::LINK_TYPE, config.link_type as u64)?;
        out.integer(n::FLAGS, flags_of(config))
    })
}
