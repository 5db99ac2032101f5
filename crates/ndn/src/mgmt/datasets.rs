//! Status datasets: the state of the node as other programs read it.

use alloc::string::String;
use alloc::vec::Vec;

use wire::ndn::{DecodeError, Tlv, Writer, types};
use wire::{BufferTooShort, Instant};

use super::events::flags_of;
use super::numbers as n;
use super::parameters::text;
use super::{Control, Status};
use crate::face::{Face, FaceId};
use crate::rib::Rib;
use crate::store::StoreInfo;

/// Grows by the elements that are written.
struct Set(Vec<u8>);

impl Set {
    /// Appends what `write` writes, in at most `room` bytes.
    fn add(
        &mut self,
        room: usize,
        write: impl FnOnce(&mut Writer<'_>) -> Result<(), BufferTooShort>,
    ) {
        let start = self.0.len();
        self.0.resize(start + room, 0);
        let place = self.0.get_mut(start..).unwrap_or_default();
        let mut writer = Writer::new(place);
        let length = write(&mut writer).map_or(0, |()| writer.len());
        self.0.truncate(start + length);
    }
}

/// Which faces a query asks for; `None` is any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaceFilter {
    face_id: Option<u64>,
    scheme: Option<String>,
    uri: Option<String>,
    local_uri: Option<String>,
    scope: Option<u64>,
    persistency: Option<u64>,
    link_type: Option<u64>,
}

impl FaceFilter {
    /// Reads a FaceQueryFilter element that fills `bytes`.
    ///
    /// # Errors
    /// Any [`DecodeError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, DecodeError> {
        let outer = Tlv::read_exact(bytes)?;
        if outer.tlv_type != n::FACE_QUERY_FILTER {
            return Err(DecodeError::WrongType);
        }
        let mut filter = Self::default();
        for element in outer.elements() {
            let element = element?;
            let integer = || element.integer().map(Some);
            match element.tlv_type {
                n::FACE_ID => filter.face_id = integer()?,
                n::URI_SCHEME => filter.scheme = Some(text(&element)?),
                n::URI => filter.uri = Some(text(&element)?),
                n::LOCAL_URI => filter.local_uri = Some(text(&element)?),
                n::FACE_SCOPE => filter.scope = integer()?,
                n::FACE_PERSISTENCY => filter.persistency = integer()?,
                n::LINK_TYPE => filter.link_type = integer()?,
                _ if element.is_critical() => return Err(DecodeError::Critical),
                _ => {}
            }
        }
        Ok(filter)
    }

    /// True if the query asks for the face.
    pub fn matches(&self, face: &Face) -> bool {
        let config = &face.config;
        let scheme = |uri: &str| uri.split_once(':').map(|(scheme, _)| String::from(scheme));
        let is = |wanted: &Option<u64>, value: u64| wanted.is_none_or(|wanted| wanted == value);
        let is_text =
            |wanted: &Option<String>, value: &str| wanted.as_deref().is_none_or(|w| w == value);
        is(&self.face_id, u64::from(face.id.0))
            && (self.scheme.is_none()
                || self.scheme == scheme(&config.remote_uri)
                || self.scheme == scheme(&config.local_uri))
            && is_text(&self.uri, &config.remote_uri)
            && is_text(&self.local_uri, &config.local_uri)
            && is(&self.scope, config.scope as u64)
            && is(&self.persistency, config.persistency as u64)
            && is(&self.link_type, config.link_type as u64)
    }
}

/// FaceStatus of all faces that the filter lets pass.
pub(super) fn faces(control: &impl Control, filter: &FaceFilter, now: Instant) -> Vec<u8> {
    let mut set = Set(Vec::new());
    for face in control.faces().iter().filter(|face| filter.matches(face)) {
        let room = 400 + face.config.remote_uri.len() + face.config.local_uri.len();
        set.add(room, |out| write_face(face, now, out));
    }
    set.0
}

fn write_face(face: &Face, now: Instant, out: &mut Writer<'_>) -> Result<(), BufferTooShort> {
    let config = &face.config;
    let counters = &face.counters;
    out.nested(n::DATASET_ENTRY, |out| {
        out.integer(n::FACE_ID, u64::from(face.id.0))?;
        out.element(n::URI, config.remote_uri.as_bytes())?;
        out.element(n::LOCAL_URI, config.local_uri.as_bytes())?;
        if let Some(expires) = face.expires {
            let left = expires.saturating_since(now).as_millis() as u64;
            out.integer(n::EXPIRATION_PERIOD, left)?;
        }
        out.integer(n::FACE_SCOPE, config.scope as u64)?;
        out.integer(n::FACE_PERSISTENCY, config.persistency as u64)?;
        out.integer(n::LINK_TYPE, config.link_type as u64)?;
        let interval = config.congestion_interval.as_nanos() as u64;
        out.integer(n::BASE_CONGESTION_INTERVAL, interval)?;
        out.integer(
            n::DEFAULT_CONGESTION_THRESHOLD,
            config.congestion_threshold_bytes,
        )?;
        if let Some(mtu) = config.mtu {
            out.integer(n::MTU, u64::from(mtu))?;
        }
        for (tlv_type, value) in [
            (n::N_IN_INTERESTS, counters.in_interests),
            (n::N_IN_DATA, counters.in_data),
            (n::N_IN_NACKS, counters.in_nacks),
            (n::N_OUT_INTERESTS, counters.out_interests),
            (n::N_OUT_DATA, counters.out_data),
            (n::N_OUT_NACKS, counters.out_nacks),
            (n::N_IN_BYTES, counters.in_bytes),
            (n::N_OUT_BYTES, counters.out_bytes),
            (n::FLAGS, flags_of(config)),
        ] {
            out.integer(tlv_type, value)?;
        }
        Ok(())
    })
}

/// ChannelStatus of all channels.
pub(super) fn channels(control: &impl Control) -> Vec<u8> {
    let mut set = Set(Vec::new());
    for uri in control.channels() {
        set.add(uri.len() + 16, |out| {
            out.nested(n::CHANNEL_STATUS, |out| {
                out.element(n::LOCAL_URI, uri.as_bytes())
            })
        });
    }
    set.0
}

/// FibEntry of all prefixes.
pub(super) fn fib(control: &impl Control) -> Vec<u8> {
    let mut set = Set(Vec::new());
    for (name, hops) in control.fib_entries() {
        set.add(32 + name.value().len() + 32 * hops.len(), |out| {
            out.nested(n::DATASET_ENTRY, |out| {
                out.element(types::NAME, name.value())?;
                hops.iter().try_for_each(|hop| {
                    out.nested(n::DATASET_RECORD, |out| {
                        out.integer(n::FACE_ID, u64::from(hop.face.0))?;
                        out.integer(n::COST, hop.cost)
                    })
                })
            })
        });
    }
    set.0
}

/// RibEntry of all prefixes with routes.
pub(super) fn rib(rib: &Rib, now: Instant) -> Vec<u8> {
    let mut set = Set(Vec::new());
    for (name, routes) in rib.iter() {
        set.add(32 + name.value().len() + 64 * routes.len(), |out| {
            out.nested(n::DATASET_ENTRY, |out| {
                out.element(types::NAME, name.value())?;
                routes.iter().try_for_each(|route| {
                    out.nested(n::DATASET_RECORD, |out| {
                        out.integer(n::FACE_ID, u64::from(route.face.0))?;
                        out.integer(n::ORIGIN, route.origin)?;
                        out.integer(n::COST, route.cost)?;
                        out.integer(n::FLAGS, route.flags)?;
                        let Some(expires) = route.expires else {
                            return Ok(());
                        };
                        let left = expires.saturating_since(now).as_millis() as u64;
                        out.integer(n::EXPIRATION_PERIOD, left)
                    })
                })
            })
        });
    }
    set.0
}

/// StrategyChoice of all prefixes that have one.
pub(super) fn strategies(control: &impl Control) -> Vec<u8> {
    let mut set = Set(Vec::new());
    for (name, strategy) in control.strategies() {
        let room = 32 + name.value().len() + strategy.value().len();
        set.add(room, |out| {
            out.nested(n::DATASET_ENTRY, |out| {
                out.element(types::NAME, name.value())?;
                out.nested(n::STRATEGY, |out| {
                    out.element(types::NAME, strategy.value())
                })
            })
        });
    }
    set.0
}

/// CsInfo.
pub(super) fn store(info: &StoreInfo) -> Vec<u8> {
    let mut set = Set(Vec::new());
    let admit = if info.admit { n::CS_ADMIT } else { 0 };
    let serve = if info.serve { n::CS_SERVE } else { 0 };
    set.add(250, |out| {
        out.nested(n::DATASET_ENTRY, |out| {
            out.integer(n::CAPACITY, info.capacity)?;
            out.integer(n::FLAGS, admit | serve)?;
            out.integer(n::N_CS_ENTRIES, info.packets)?;
            out.integer(n::CS_HITS, info.hits)?;
            out.integer(n::CS_MISSES, info.misses)?;
            let Some(disk) = &info.disk else {
                return Ok(());
            };
            out.nested(n::CS_DISK, |out| {
                let numbers = (n::CS_DISK_FIRST..).step_by(2);
                for (number, value) in numbers.zip(disk.values()) {
                    out.integer(number, value)?;
                }
                Ok(())
            })
        })
    });
    set.0
}

/// ForwarderStatus: the elements without one around them.
pub(super) fn general(status: &Status, version: &str, start_unix_ms: u64, unix_ms: u64) -> Vec<u8> {
    let mut set = Set(Vec::new());
    let counters = &status.counters;
    let [fib, pit, measurements, store] = status.tables;
    set.add(300 + version.len(), |out| {
        out.element(n::NFD_VERSION, version.as_bytes())?;
        for (tlv_type, value) in [
            (n::START_TIMESTAMP, start_unix_ms),
            (n::CURRENT_TIMESTAMP, unix_ms),
            // There is no tree of names here: FIB, PIT and measurements are tables of their own.
            (n::N_NAME_TREE_ENTRIES, fib + pit + measurements),
            (n::N_FIB_ENTRIES, fib),
            (n::N_PIT_ENTRIES, pit),
            (n::N_MEASUREMENTS_ENTRIES, measurements),
            (n::N_CS_ENTRIES, store),
            (n::N_IN_INTERESTS, counters.in_interests),
            (n::N_IN_DATA, counters.in_data),
            (n::N_IN_NACKS, counters.in_nacks),
            (n::N_OUT_INTERESTS, counters.out_interests),
            (n::N_OUT_DATA, counters.out_data),
            (n::N_OUT_NACKS, counters.out_nacks),
            (n::N_SATISFIED, counters.satisfied),
            (n::N_UNSATISFIED, counters.unsatisfied),
        ] {
            out.integer(tlv_type, value)?;
        }
        Ok(())
    });
    set.0
}

/// Returns the face that a number of a command names, 0 and none being the one that asks.
pub(super) fn face_or_self(number: Option<u64>, asks: FaceId) -> Option<FaceId> {
    match number {
        None | Some(0) => Some(asks),
        Some(number) => u32::try_from(number).ok().map(FaceId),
    }
}
