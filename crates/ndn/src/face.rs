//! Faces: what packets come from and leave by.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use wire::Instant;

/// Names a face. Numbers up to 255 are reserved, as in NFD; a number is not used again for a long time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FaceId(pub u32);

impl FaceId {
    /// The node's own management.
    pub const INTERNAL: Self = Self(1);
    /// Data from the content store.
    pub const CONTENT_STORE: Self = Self(254);
    /// Interests that go here vanish.
    pub const NULL: Self = Self(255);
    /// The first number for other faces.
    pub const FIRST: u32 = 256;
}

impl fmt::Display for FaceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Where the other end is. The numbers are those of FaceStatus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FaceScope {
    /// Another machine.
    NonLocal = 0,
    /// An application on this machine.
    Local = 1,
}

/// When a face goes away. The numbers are those of FaceStatus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Persistency {
    /// On failure or on command.
    Persistent = 0,
    /// When idle, too.
    OnDemand = 1,
    /// Only on command.
    Permanent = 2,
}

/// How many can be at the other end. The numbers are those of FaceStatus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum LinkType {
    /// One.
    PointToPoint = 0,
    /// Many, who all hear each other.
    MultiAccess = 1,
    /// Many, who do not all hear each other: packets may leave by the face that they came from.
    AdHoc = 2,
}

/// What a face is made with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaceConfig {
    /// FaceUri of the other end, e.g. `udp4://192.0.2.1:6363`.
    pub remote_uri: String,
    /// FaceUri of this end.
    pub local_uri: String,
    /// Where the other end is.
    pub scope: FaceScope,
    /// When the face goes away.
    pub persistency: Persistency,
    /// How many can be at the other end.
    pub link_type: LinkType,
    /// Bytes of the longest link packet; `None` has no limit.
    pub mtu: Option<u32>,
    /// Lets the other end set NextHopFaceId and CachePolicy, and tells it IncomingFaceId.
    pub local_fields: bool,
    /// Acknowledges and retransmits on the link.
    pub reliability: bool,
    /// Marks packets when the face's queue stays long.
    pub congestion_marking: bool,
    /// How long the queue must stay long before the first mark.
    pub congestion_interval: Duration,
    /// From how many bytes a queue is long.
    pub congestion_threshold_bytes: u64,
}

impl FaceConfig {
    /// Makes the configuration of an application's face.
    pub fn local(remote_uri: &str, local_uri: &str) -> Self {
        Self {
            remote_uri: remote_uri.into(),
            local_uri: local_uri.into(),
            scope: FaceScope::Local,
            persistency: Persistency::OnDemand,
            link_type: LinkType::PointToPoint,
            mtu: None,
            local_fields: false,
            reliability: false,
            congestion_marking: true,
            congestion_interval: Duration::from_millis(100),
            congestion_threshold_bytes: 65_536,
        }
    }

    /// Makes the configuration of a point-to-point face to another node.
    pub fn network(remote_uri: &str, local_uri: &str) -> Self {
        Self {
            scope: FaceScope::NonLocal,
            persistency: Persistency::Persistent,
            ..Self::local(remote_uri, local_uri)
        }
    }
}

/// What passed a face. "In" is towards this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaceCounters {
    /// Interests received.
    pub in_interests: u64,
    /// Data received.
    pub in_data: u64,
    /// Nacks received.
    pub in_nacks: u64,
    /// Bytes received, with link headers.
    pub in_bytes: u64,
    /// Interests sent.
    pub out_interests: u64,
    /// Data sent.
    pub out_data: u64,
    /// Nacks sent.
    pub out_nacks: u64,
    /// Bytes sent, with link headers.
    pub out_bytes: u64,
}

/// A face.
#[derive(Clone, Debug)]
pub struct Face {
    /// Its number.
    pub id: FaceId,
    /// What it was made with, and what changed since.
    pub config: FaceConfig,
    /// False while the link is down.
    pub is_up: bool,
    /// When it was made.
    pub created: Instant,
    /// When it last carried a packet.
    pub last_used: Instant,
    /// When it goes away if it stays idle.
    pub expires: Option<Instant>,
    /// What passed it.
    pub counters: FaceCounters,
}

impl Face {
    /// True if the other end is an application on this machine.
    pub fn is_local(&self) -> bool {
        self.config.scope == FaceScope::Local
    }
}

/// All faces of a node, sized at start. Finding one is one array access.
#[derive(Debug)]
pub struct Faces {
    slots: Vec<Option<Face>>,
    reserved: [Option<Face>; 2],
    next: u32,
    count: usize,
}

impl Faces {
    /// Makes room for `capacity` faces beside the reserved ones.
    pub fn new(capacity: usize, now: Instant) -> Self {
        let reserved = |id, uri: &str| {
            let mut config = FaceConfig::local(uri, uri);
            config.persistency = Persistency::Permanent;
            config.local_fields = true;
            Some(Face::new(id, config, now))
        };
        Self {
            slots: (0..capacity.clamp(1, 1 << 24)).map(|_| None).collect(),
            reserved: [
                reserved(FaceId::INTERNAL, "internal://"),
                reserved(FaceId::NULL, "null://"),
            ],
            next: 0,
            count: 0,
        }
    }

    /// Adds a face; `None` if all places are taken.
    pub fn add(&mut self, config: FaceConfig, now: Instant) -> Option<FaceId> {
        for _ in 0..self.slots.len() {
            let id = FaceId(FaceId::FIRST.checked_add(self.next)?);
            self.next = self.next.wrapping_add(1) % (u32::MAX - FaceId::FIRST);
            if self.insert(id, config.clone(), now) {
                return Some(id);
            }
        }
        None
    }

    /// Adds a face under a number that another table chose; false if its place is taken.
    pub fn insert(&mut self, id: FaceId, config: FaceConfig, now: Instant) -> bool {
        let Some(slot) = self.slot_mut(id) else {
            return false;
        };
        if slot.is_some() {
            return false;
        }
        *slot = Some(Face::new(id, config, now));
        self.count += 1;
        true
    }

    /// Removes a face.
    pub fn remove(&mut self, id: FaceId) -> Option<Face> {
        let slot = self.slot_mut(id)?;
        if slot.as_ref()?.id != id {
            return None;
        }
        let face = slot.take();
        self.count -= 1;
        face
    }

    /// Finds a face.
    #[inline]
    pub fn get(&self, id: FaceId) -> Option<&Face> {
        let face = match id.0.checked_sub(FaceId::FIRST) {
            Some(number) => self.slots.get(number as usize % self.slots.len())?.as_ref(),
            None => self.reserved.iter().flatten().find(|face| face.id == id),
        };
        face.filter(|face| face.id == id)
    }

    /// Finds a face to change it.
    #[inline]
    pub fn get_mut(&mut self, id: FaceId) -> Option<&mut Face> {
        let face = match id.0.checked_sub(FaceId::FIRST) {
            Some(_) => self.slot_mut(id)?.as_mut(),
            None => self.reserved.iter_mut().flatten().find(|f| f.id == id),
        };
        face.filter(|face| face.id == id)
    }

    /// Walks all faces, the reserved ones first.
    pub fn iter(&self) -> impl Iterator<Item = &Face> {
        self.reserved.iter().chain(&self.slots).flatten()
    }

    /// Returns the number of faces, without the reserved ones.
    pub const fn len(&self) -> usize {
        self.count
    }

    /// True if there are only the reserved faces.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn slot_mut(&mut self, id: FaceId) -> Option<&mut Option<Face>> {
        let number = id.0.checked_sub(FaceId::FIRST)?;
        let slots = self.slots.len();
        self.slots.get_mut(number as usize % slots)
    }
}

impl Face {
    fn new(id: FaceId, config: FaceConfig, now: Instant) -> Self {
        Self {
            id,
            config,
            is_up: true,
            created: now,
            last_used: now,
            expires: None,
            counters: FaceCounters::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_not_used_again_soon() {
        let now = Instant::ZERO;
        let mut faces = Faces::new(2, now);
        let config = FaceConfig::network("udp4://192.0.2.1:6363", "udp4://192.0.2.2:6363");
        let a = faces.add(config.clone(), now).unwrap();
        let b = faces.add(config.clone(), now).unwrap();
        assert_eq!((a, b), (FaceId(256), FaceId(257)));
        assert_eq!(faces.add(config.clone(), now), None);
        assert!(faces.remove(a).is_some());
        assert!(faces.remove(a).is_none() && faces.get(a).is_none());
        let c = faces.add(config, now).unwrap();
        assert!(c != a && c != b && faces.get(c).is_some() && faces.get(a).is_none());
        assert_eq!((faces.len(), faces.iter().count()), (2, 4));
        assert!(faces.get(FaceId::INTERNAL).unwrap().is_local());
        assert!(faces.remove(FaceId::INTERNAL).is_none());
    }
}
