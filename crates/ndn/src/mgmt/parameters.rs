//! ControlParameters: what a command asks, and what its answer says.

use alloc::string::String;

use wire::BufferTooShort;
use wire::ndn::name::Name;
use wire::ndn::{DecodeError, Tlv, Writer, types};

use super::numbers as n;

/// Parameters of a command; which are needed depends on the command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControlParameters {
    /// A prefix.
    pub name: Option<Name>,
    /// A face.
    pub face_id: Option<u64>,
    /// FaceUri of the other end.
    pub uri: Option<String>,
    /// FaceUri of this end.
    pub local_uri: Option<String>,
    /// Who made a route.
    pub origin: Option<u64>,
    /// Cost of a route.
    pub cost: Option<u64>,
    /// Packets that the content store holds at most.
    pub capacity: Option<u64>,
    /// How many.
    pub count: Option<u64>,
    /// Bits.
    pub flags: Option<u64>,
    /// Which bits of `flags` count.
    pub mask: Option<u64>,
    /// Name of a strategy.
    pub strategy: Option<Name>,
    /// Lifetime of a route (ms).
    pub expiration_ms: Option<u64>,
    /// When a face goes away.
    pub persistency: Option<u64>,
    /// How long a queue must stay long (ns).
    pub congestion_interval_ns: Option<u64>,
    /// From how many bytes a queue is long.
    pub congestion_threshold_bytes: Option<u64>,
    /// Bytes of the longest link packet.
    pub mtu: Option<u64>,
}

impl ControlParameters {
    /// Reads a ControlParameters element that fills `bytes`.
    ///
    /// # Errors
    /// Any [`DecodeError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, DecodeError> {
        let outer = Tlv::read_exact(bytes)?;
        if outer.tlv_type != n::CONTROL_PARAMETERS {
            return Err(DecodeError::WrongType);
        }
        let mut out = Self::default();
        for element in outer.elements() {
            out.take(&element?)?;
        }
        Ok(out)
    }

    fn take(&mut self, element: &Tlv<'_>) -> Result<(), DecodeError> {
        let integer = || element.integer().map(Some);
        match element.tlv_type {
            types::NAME => self.name = Some(Name::from_value(element.value)?),
            n::FACE_ID => self.face_id = integer()?,
            n::URI => self.uri = Some(text(element)?),
            n::LOCAL_URI => self.local_uri = Some(text(element)?),
            n::ORIGIN => self.origin = integer()?,
            n::COST => self.cost = integer()?,
            n::CAPACITY => self.capacity = integer()?,
            n::COUNT => self.count = integer()?,
            n::FLAGS => self.flags = integer()?,
            n::MASK => self.mask = integer()?,
            n::STRATEGY => {
                let inner = Tlv::read_exact(element.value)?;
                if inner.tlv_type != types::NAME {
                    return Err(DecodeError::WrongType);
                }
                self.strategy = Some(Name::from_value(inner.value)?);
            }
            n::EXPIRATION_PERIOD => self.expiration_ms = integer()?,
            n::FACE_PERSISTENCY => self.persistency = integer()?,
            n::BASE_CONGESTION_INTERVAL => self.congestion_interval_ns = integer()?,
            n::DEFAULT_CONGESTION_THRESHOLD => self.congestion_threshold_bytes = integer()?,
            n::MTU => self.mtu = integer()?,
            _ if element.is_critical() => return Err(DecodeError::Critical),
            _ => {}
        }
        Ok(())
    }

    /// Writes the element.
    ///
    /// # Errors
    /// [`BufferTooShort`].
    pub fn write(&self, out: &mut Writer<'_>) -> Result<(), BufferTooShort> {
        out.nested(n::CONTROL_PARAMETERS, |out| {
            let integer = |out: &mut Writer<'_>, tlv_type, value: Option<u64>| match value {
                Some(value) => out.integer(tlv_type, value),
                None => Ok(()),
            };
            if let Some(name) = &self.name {
                out.element(types::NAME, name.value())?;
            }
            integer(out, n::FACE_ID, self.face_id)?;
            if let Some(uri) = &self.uri {
                out.element(n::URI, uri.as_bytes())?;
            }
            if let Some(uri) = &self.local_uri {
                out.element(n::LOCAL_URI, uri.as_bytes())?;
            }
            integer(out, n::ORIGIN, self.origin)?;
            integer(out, n::COST, self.cost)?;
            integer(out, n::CAPACITY, self.capacity)?;
            integer(out, n::COUNT, self.count)?;
            integer(
                out,
                n::BASE_CONGESTION_INTERVAL,
                self.congestion_interval_ns,
            )?;
            integer(
                out,
                n::DEFAULT_CONGESTION_THRESHOLD,
                self.congestion_threshold_bytes,
            )?;
            integer(out, n::MTU, self.mtu)?;
            integer(out, n::FLAGS, self.flags)?;
            integer(out, n::MASK, self.mask)?;
            if let Some(strategy) = &self.strategy {
                out.nested(n::STRATEGY, |out| {
                    out.element(types::NAME, strategy.value())
                })?;
            }
            integer(out, n::EXPIRATION_PERIOD, self.expiration_ms)?;
            integer(out, n::FACE_PERSISTENCY, self.persistency)
        })
    }
}

/// Reads a text.
pub(super) fn text(element: &Tlv<'_>) -> Result<String, DecodeError> {
    let text = core::str::from_utf8(element.value).map_err(|_| DecodeError::ElementLength)?;
    Ok(String::from(text))
}
