//! What management asks of the node.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use wire::Instant;
use wire::ndn::NameRef;
use wire::ndn::name::Name;

use crate::face::{FaceConfig, FaceId, Faces, Persistency};
use crate::fib::{FibError, NextHop, NextHops};
use crate::forwarder::{Forwarder, ForwarderCounters, Sink};
use crate::store::{ContentStore, StoreInfo};
use crate::strategy::ChoiceError;

/// A face that a command asks for.
#[derive(Clone, Debug)]
pub struct FaceRequest {
    /// FaceUri of the other end.
    pub remote_uri: String,
    /// FaceUri of this end, if the command says it.
    pub local_uri: Option<String>,
    /// What it is to be like.
    pub change: FaceChange,
}

/// What of a face is to be changed; `None` stays as it is.
#[derive(Clone, Debug, Default)]
pub struct FaceChange {
    /// When it goes away.
    pub persistency: Option<Persistency>,
    /// Local fields on or off.
    pub local_fields: Option<bool>,
    /// Reliability on or off.
    pub reliability: Option<bool>,
    /// Congestion marks on or off.
    pub congestion_marking: Option<bool>,
    /// How long a queue must stay long.
    pub congestion_interval: Option<Duration>,
    /// From how many bytes a queue is long.
    pub congestion_threshold_bytes: Option<u64>,
    /// Bytes of the longest link packet.
    pub mtu: Option<u32>,
}

impl FaceChange {
    /// Makes the changes.
    pub fn apply(&self, config: &mut FaceConfig) {
        config.persistency = self.persistency.unwrap_or(config.persistency);
        config.local_fields = self.local_fields.unwrap_or(config.local_fields);
        config.reliability = self.reliability.unwrap_or(config.reliability);
        config.congestion_marking = self.congestion_marking.unwrap_or(config.congestion_marking);
        config.congestion_interval = self
            .congestion_interval
            .unwrap_or(config.congestion_interval);
        config.congestion_threshold_bytes = self
            .congestion_threshold_bytes
            .unwrap_or(config.congestion_threshold_bytes);
        config.mtu = self.mtu.or(config.mtu);
    }
}

/// Why a face was not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaceRefusal {
    /// There is one with this FaceUri already.
    Exists(FaceId),
    /// The FaceUri's scheme, or something else that was asked, is not supported.
    Unsupported,
    /// The FaceUri is not canonical, e.g. a host name instead of an address.
    NotCanonical,
    /// It could not be connected.
    Failed,
}

/// Figures of the node.
#[derive(Clone, Debug)]
pub struct Status {
    /// What passed, of all workers.
    pub counters: ForwarderCounters,
    /// Entries of FIB, PIT, measurements and content store.
    pub tables: [u64; 4],
}

/// The node, as management sees it: of one worker, or of many that it keeps alike.
pub trait Control {
    /// Returns the faces.
    fn faces(&self) -> &Faces;
    /// Makes a face.
    ///
    /// # Errors
    /// [`FaceRefusal`].
    fn create_face(&mut self, request: &FaceRequest, now: Instant) -> Result<FaceId, FaceRefusal>;
    /// Changes a face; false if there is none.
    fn update_face(&mut self, face: FaceId, change: &FaceChange) -> bool;
    /// Removes a face; false if there was none.
    fn destroy_face(&mut self, face: FaceId) -> bool;
    /// Returns the FaceUris of channels that listen.
    fn channels(&self) -> Vec<String>;
    /// Returns the FIB, prefixes in canonical order.
    fn fib_entries(&self) -> Vec<(Name, NextHops)>;
    /// Adds a next hop.
    ///
    /// # Errors
    /// [`FibError`].
    fn add_next_hop(
        &mut self,
        prefix: NameRef<'_>,
        hop: NextHop,
        now: Instant,
    ) -> Result<(), FibError>;
    /// Removes a next hop.
    fn remove_next_hop(&mut self, prefix: NameRef<'_>, face: FaceId);
    /// Returns the strategy choices.
    fn strategies(&self) -> Vec<(Name, Name)>;
    /// Chooses a strategy; returns its name with the version.
    ///
    /// # Errors
    /// [`ChoiceError`].
    fn set_strategy(
        &mut self,
        prefix: NameRef<'_>,
        strategy: NameRef<'_>,
    ) -> Result<Name, ChoiceError>;
    /// Removes the choice of a prefix.
    ///
    /// # Errors
    /// [`ChoiceError`].
    fn unset_strategy(&mut self, prefix: NameRef<'_>) -> Result<bool, ChoiceError>;
    /// Returns figures and switches of the content store.
    fn store_info(&self) -> StoreInfo;
    /// Changes the content store.
    fn configure_store(&mut self, capacity: Option<u64>, admit: Option<bool>, serve: Option<bool>);
    /// Removes packets from the content store; returns how many.
    fn erase(&mut self, prefix: NameRef<'_>, limit: u64) -> u64;
    /// Returns the figures of the node.
    fn status(&self) -> Status;
}

/// The control of a node of one worker. `open` makes the transport of a face and says what the face is like.
#[derive(Debug)]
pub struct SingleWorker<'a, C, S, F> {
    /// The worker.
    pub forwarder: &'a mut Forwarder<C>,
    /// Where Interests go that a new route lets leave.
    pub sink: &'a mut S,
    /// Makes a transport.
    pub open: F,
    /// FaceUris of channels that listen.
    pub channels: &'a [String],
}

impl<C, S, F> Control for SingleWorker<'_, C, S, F>
where
    C: ContentStore,
    S: Sink,
    F: FnMut(&FaceRequest) -> Result<FaceConfig, FaceRefusal>,
{
    fn faces(&self) -> &Faces {
        self.forwarder.faces()
    }

    fn create_face(&mut self, request: &FaceRequest, now: Instant) -> Result<FaceId, FaceRefusal> {
        let known = self
            .forwarder
            .faces()
            .iter()
            .find(|face| face.config.remote_uri == request.remote_uri)
            .map(|face| face.id);
        if let Some(face) = known {
            return Err(FaceRefusal::Exists(face));
        }
        let mut config = (self.open)(request)?;
        request.change.apply(&mut config);
        self.forwarder
            .add_face(config, now)
            .ok_or(FaceRefusal::Failed)
    }

    fn update_face(&mut self, face: FaceId, change: &FaceChange) -> bool {
        match self.forwarder.face_mut(face) {
            Some(face) => {
                change.apply(&mut face.config);
                true
            }
            None => false,
        }
    }

    fn destroy_face(&mut self, face: FaceId) -> bool {
        self.forwarder.remove_face(face).is_some()
    }

    fn channels(&self) -> Vec<String> {
        self.channels.to_vec()
    }

    fn fib_entries(&self) -> Vec<(Name, NextHops)> {
        self.forwarder.fib().entries()
    }

    fn add_next_hop(
        &mut self,
        prefix: NameRef<'_>,
        hop: NextHop,
        now: Instant,
    ) -> Result<(), FibError> {
        self.forwarder
            .add_next_hop(prefix, hop, now, self.sink)
            .map(|_| ())
    }

    fn remove_next_hop(&mut self, prefix: NameRef<'_>, face: FaceId) {
        self.forwarder.remove_next_hop(prefix, face);
    }

    fn strategies(&self) -> Vec<(Name, Name)> {
        self.forwarder.choice().entries()
    }

    fn set_strategy(
        &mut self,
        prefix: NameRef<'_>,
        strategy: NameRef<'_>,
    ) -> Result<Name, ChoiceError> {
        self.forwarder.set_strategy(prefix, strategy)
    }

    fn unset_strategy(&mut self, prefix: NameRef<'_>) -> Result<bool, ChoiceError> {
        self.forwarder.unset_strategy(prefix)
    }

    fn store_info(&self) -> StoreInfo {
        self.forwarder.store().info()
    }

    fn configure_store(&mut self, capacity: Option<u64>, admit: Option<bool>, serve: Option<bool>) {
        self.forwarder.store_mut().configure(capacity, admit, serve);
    }

    fn erase(&mut self, prefix: NameRef<'_>, limit: u64) -> u64 {
        self.forwarder.store_mut().erase(prefix, limit)
    }

    fn status(&self) -> Status {
        Status {
            counters: self.forwarder.counters().clone(),
            tables: self.forwarder.table_sizes(),
        }
    }
}
