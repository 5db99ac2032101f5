//! Reading what management answers: what a client of any NFD-compatible forwarder needs.

use alloc::string::String;
use alloc::vec::Vec;

use wire::ndn::name::Name;
use wire::ndn::{DecodeError, Elements, Tlv, types};

use super::numbers as n;
use super::parameters::{ControlParameters, text};
use crate::store::DiskInfo;

/// The answer to a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// Status code: 200 is success, the others are as in HTTP.
    pub code: u64,
    /// Status text.
    pub text: String,
    /// What was done.
    pub parameters: Option<ControlParameters>,
}

/// A face, of `faces/list` and `faces/query`, or a face event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaceStatus {
    /// What happened to it, in an event: 1 created, 2 destroyed, 3 up, 4 down.
    pub event: Option<u64>,
    /// Its number.
    pub face_id: u64,
    /// FaceUri of the other end.
    pub uri: String,
    /// FaceUri of this end.
    pub local_uri: String,
    /// When it goes away if it stays idle (ms from now).
    pub expiration_ms: Option<u64>,
    /// 0 another machine, 1 this one.
    pub scope: u64,
    /// 0 persistent, 1 on demand, 2 permanent.
    pub persistency: u64,
    /// 0 point-to-point, 1 multi-access, 2 ad hoc.
    pub link_type: u64,
    /// How long its queue must stay long for a congestion mark (ns).
    pub congestion_interval_ns: Option<u64>,
    /// From how many bytes its queue is long.
    pub congestion_threshold_bytes: Option<u64>,
    /// Bytes of the longest link packet.
    pub mtu: Option<u64>,
    /// Interests, Data and Nacks received.
    pub in_pkts: [u64; 3],
    /// Interests, Data and Nacks sent.
    pub out_pkts: [u64; 3],
    /// Bytes received and sent.
    pub bytes: [u64; 2],
    /// Bits: 1 local fields, 2 reliability, 4 congestion marking.
    pub flags: u64,
}

/// A prefix with its next hops: face and cost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FibStatus {
    /// The prefix.
    pub prefix: Name,
    /// Face and cost of each.
    pub next_hops: Vec<(u64, u64)>,
}

/// A route.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouteStatus {
    /// Next hop.
    pub face_id: u64,
    /// Who added it.
    pub origin: u64,
    /// Lower is better.
    pub cost: u64,
    /// Bits: 1 child-inherit, 2 capture.
    pub flags: u64,
    /// When it ends (ms from now).
    pub expiration_ms: Option<u64>,
}

/// A prefix with its routes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RibStatus {
    /// The prefix.
    pub prefix: Name,
    /// Its routes.
    pub routes: Vec<RouteStatus>,
}

/// The content store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStatus {
    /// Packets that it holds at most.
    pub capacity: u64,
    /// Bits: 1 admit, 2 serve.
    pub flags: u64,
    /// Packets that it holds.
    pub packets: u64,
    /// Lookups that found a packet.
    pub hits: u64,
    /// Lookups that found none.
    pub misses: u64,
    /// What is on disk, of a forwarder that tells.
    pub disk: Option<DiskInfo>,
}

/// The forwarder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForwarderStatus {
    /// Program and version.
    pub version: String,
    /// When it started (Unix ms).
    pub start_unix_ms: u64,
    /// When this was read (Unix ms).
    pub unix_ms: u64,
    /// Entries of name tree, FIB, PIT, measurements and content store.
    pub entries: [u64; 5],
    /// Interests, Data and Nacks received.
    pub in_pkts: [u64; 3],
    /// Interests, Data and Nacks sent.
    pub out_pkts: [u64; 3],
    /// Pending Interests that Data came for, and that ended without.
    pub satisfied: [u64; 2],
}

impl Response {
    /// Reads a ControlResponse.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, DecodeError> {
        let outer = Tlv::read_exact(bytes)?;
        if outer.tlv_type != n::CONTROL_RESPONSE {
            return Err(DecodeError::WrongType);
        }
        let mut response = Self::default();
        for element in outer.elements() {
            let element = element?;
            match element.tlv_type {
                n::STATUS_CODE => response.code = element.integer()?,
                n::STATUS_TEXT => response.text = text(&element)?,
                n::CONTROL_PARAMETERS => {
                    response.parameters = Some(ControlParameters::parse(element.bytes)?);
                }
                _ => {}
            }
        }
        Ok(response)
    }
}

impl FaceStatus {
    fn read(entry: &Tlv<'_>) -> Result<Self, DecodeError> {
        let mut face = Self::default();
        for element in entry.elements() {
            let element = element?;
            match element.tlv_type {
                n::URI => face.uri = text(&element)?,
                n::LOCAL_URI => face.local_uri = text(&element)?,
                other => face.take(other, || element.integer())?,
            }
        }
        Ok(face)
    }

    fn take(
        &mut self,
        tlv_type: u32,
        value: impl FnOnce() -> Result<u64, DecodeError>,
    ) -> Result<(), DecodeError> {
        match tlv_type {
            n::FACE_EVENT_KIND => self.event = Some(value()?),
            n::FACE_ID => self.face_id = value()?,
            n::EXPIRATION_PERIOD => self.expiration_ms = Some(value()?),
            n::FACE_SCOPE => self.scope = value()?,
            n::FACE_PERSISTENCY => self.persistency = value()?,
            n::LINK_TYPE => self.link_type = value()?,
            n::BASE_CONGESTION_INTERVAL => self.congestion_interval_ns = Some(value()?),
            n::DEFAULT_CONGESTION_THRESHOLD => self.congestion_threshold_bytes = Some(value()?),
            n::MTU => self.mtu = Some(value()?),
            n::N_IN_INTERESTS => self.in_pkts[0] = value()?,
            n::N_IN_DATA => self.in_pkts[1] = value()?,
            n::N_IN_NACKS => self.in_pkts[2] = value()?,
            n::N_OUT_INTERESTS => self.out_pkts[0] = value()?,
            n::N_OUT_DATA => self.out_pkts[1] = value()?,
            n::N_OUT_NACKS => self.out_pkts[2] = value()?,
            n::N_IN_BYTES => self.bytes[0] = value()?,
            n::N_OUT_BYTES => self.bytes[1] = value()?,
            n::FLAGS => self.flags = value()?,
            _ => {}
        }
        Ok(())
    }

    /// Reads the notification of a face event.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn parse_event(content: &[u8]) -> Result<Self, DecodeError> {
        let outer = Tlv::read_exact(content)?;
        if outer.tlv_type != n::FACE_EVENT_NOTIFICATION {
            return Err(DecodeError::WrongType);
        }
        Self::read(&outer)
    }
}

/// Reads the entries of a dataset of one TLV-TYPE.
fn entries<T>(
    content: &[u8],
    tlv_type: u32,
    read: impl Fn(&Tlv<'_>) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    let mut out = Vec::new();
    for element in Elements::new(content) {
        let element = element?;
        if element.tlv_type == tlv_type {
            out.push(read(&element)?);
        } else if element.is_critical() {
            return Err(DecodeError::WrongType);
        }
    }
    Ok(out)
}

/// Reads `faces/list` or `faces/query`.
///
/// # Errors
/// [`DecodeError`].
pub fn faces(content: &[u8]) -> Result<Vec<FaceStatus>, DecodeError> {
    entries(content, n::DATASET_ENTRY, FaceStatus::read)
}

/// Reads `faces/channels`: FaceUris.
///
/// # Errors
/// [`DecodeError`].
pub fn channels(content: &[u8]) -> Result<Vec<String>, DecodeError> {
    entries(content, n::CHANNEL_STATUS, |entry| {
        let uri = entry.elements().next().ok_or(DecodeError::Missing)??;
        text(&uri)
    })
}

/// Reads `fib/list`.
///
/// # Errors
/// [`DecodeError`].
pub fn fib(content: &[u8]) -> Result<Vec<FibStatus>, DecodeError> {
    entries(content, n::DATASET_ENTRY, |entry| {
        let mut status = FibStatus::default();
        for element in entry.elements() {
            let element = element?;
            match element.tlv_type {
                types::NAME => status.prefix = Name::from_value(element.value)?,
                n::DATASET_RECORD => {
                    let route = route(&element)?;
                    status.next_hops.push((route.face_id, route.cost));
                }
                _ => {}
            }
        }
        Ok(status)
    })
}

/// Reads `rib/list`.
///
/// # Errors
/// [`DecodeError`].
pub fn rib(content: &[u8]) -> Result<Vec<RibStatus>, DecodeError> {
    entries(content, n::DATASET_ENTRY, |entry| {
        let mut status = RibStatus::default();
        for element in entry.elements() {
            let element = element?;
            match element.tlv_type {
                types::NAME => status.prefix = Name::from_value(element.value)?,
                n::DATASET_RECORD => status.routes.push(route(&element)?),
                _ => {}
            }
        }
        Ok(status)
    })
}

fn route(record: &Tlv<'_>) -> Result<RouteStatus, DecodeError> {
    let mut route = RouteStatus::default();
    for element in record.elements() {
        let element = element?;
        match element.tlv_type {
            n::FACE_ID => route.face_id = element.integer()?,
            n::ORIGIN => route.origin = element.integer()?,
            n::COST => route.cost = element.integer()?,
            n::FLAGS => route.flags = element.integer()?,
            n::EXPIRATION_PERIOD => route.expiration_ms = Some(element.integer()?),
            _ => {}
        }
    }
    Ok(route)
}

/// Reads `strategy-choice/list`: prefix and strategy of each.
///
/// # Errors
/// [`DecodeError`].
pub fn strategies(content: &[u8]) -> Result<Vec<(Name, Name)>, DecodeError> {
    entries(content, n::DATASET_ENTRY, |entry| {
        let (mut prefix, mut strategy) = (Name::new(), Name::new());
        for element in entry.elements() {
            let element = element?;
            match element.tlv_type {
                types::NAME => prefix = Name::from_value(element.value)?,
                n::STRATEGY => {
                    let inner = Tlv::read_exact(element.value)?;
                    strategy = Name::from_value(inner.value)?;
                }
                _ => {}
            }
        }
        Ok((prefix, strategy))
    })
}

/// Reads `cs/info`.
///
/// # Errors
/// [`DecodeError`].
pub fn store(content: &[u8]) -> Result<StoreStatus, DecodeError> {
    let outer = Tlv::read_exact(content)?;
    let mut status = StoreStatus::default();
    for element in outer.elements() {
        let element = element?;
        match element.tlv_type {
            n::CAPACITY => status.capacity = element.integer()?,
            n::FLAGS => status.flags = element.integer()?,
            n::N_CS_ENTRIES => status.packets = element.integer()?,
            n::CS_HITS => status.hits = element.integer()?,
            n::CS_MISSES => status.misses = element.integer()?,
            n::CS_DISK => {
                let disk = status.disk.insert(DiskInfo::default());
                for element in element.elements() {
                    let element = element?;
                    let number = element.tlv_type.wrapping_sub(n::CS_DISK_FIRST);
                    if let Some(place) = disk.place(number / 2) {
                        *place = element.integer()?;
                    }
                }
            }
            _ => {}
        }
    }
    Ok(status)
}

/// Reads `status/general`.
///
/// # Errors
/// [`DecodeError`].
pub fn forwarder(content: &[u8]) -> Result<ForwarderStatus, DecodeError> {
    let mut status = ForwarderStatus::default();
    for element in Elements::new(content) {
        let element = element?;
        let place = match element.tlv_type {
            n::NFD_VERSION => {
                status.version = text(&element)?;
                continue;
            }
            n::START_TIMESTAMP => &mut status.start_unix_ms,
            n::CURRENT_TIMESTAMP => &mut status.unix_ms,
            n::N_NAME_TREE_ENTRIES => &mut status.entries[0],
            n::N_FIB_ENTRIES => &mut status.entries[1],
            n::N_PIT_ENTRIES => &mut status.entries[2],
            n::N_MEASUREMENTS_ENTRIES => &mut status.entries[3],
            n::N_CS_ENTRIES => &mut status.entries[4],
            n::N_IN_INTERESTS => &mut status.in_pkts[0],
            n::N_IN_DATA => &mut status.in_pkts[1],
            n::N_IN_NACKS => &mut status.in_pkts[2],
            n::N_OUT_INTERESTS => &mut status.out_pkts[0],
            n::N_OUT_DATA => &mut status.out_pkts[1],
            n::N_OUT_NACKS => &mut status.out_pkts[2],
            n::N_SATISFIED => &mut status.satisfied[0],
            n::N_UNSATISFIED => &mut status.satisfied[1],
            _ => continue,
        };
        *place = element.integer()?;
    }
    Ok(status)
}
