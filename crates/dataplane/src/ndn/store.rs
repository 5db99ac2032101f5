//! The content store as a worker's forwarder asks it: the shared one, and what the kernel has of it.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use io::Doorbell;
use kernel_cache::Watch;
use ndn::ContentStore;
use ndn::shared_store::SharedStore;
use ndn::store::StoreInfo;
use wire::Instant;
use wire::ndn::{Data, Interest, NameRef, Tlv};

/// Names that wait for their promotion.
pub(super) const HOT_MAX: usize = 1024;

/// Tells the manager what is hot, and the kernel what is old.
#[derive(Clone, Debug)]
pub(super) struct Hot {
    pub(super) watch: Watch,
    /// Names (TLV-VALUE).
    pub(super) names: SyncSender<Vec<u8>>,
    pub(super) bell: Arc<Doorbell>,
}

impl Hot {
    /// A packet of the store answered an Interest.
    fn answered(&self, packet: &[u8]) {
        let name = Tlv::read(packet)
            .and_then(|data| Tlv::read(data.value))
            .and_then(|name| NameRef::new(name.value));
        if let Ok(name) = name
            && self.watch.is_missing(&name, packet)
            // Where many are hot, others come again.
            && self.names.try_send(name.value().to_vec()).is_ok()
        {
            self.bell.ring();
        }
    }
}

/// One worker's access to the store.
#[derive(Debug)]
pub(super) struct NodeStore {
    pub(super) shared: SharedStore,
    pub(super) hot: Option<Hot>,
}

impl NodeStore {
    /// As [`SharedStore::offline`].
    pub(super) fn offline(&mut self) {
        self.shared.offline();
    }

    /// As [`SharedStore::online`].
    pub(super) fn online(&mut self) {
        self.shared.online();
    }
}

impl ContentStore for NodeStore {
    type Ahead = <SharedStore as ContentStore>::Ahead;

    #[inline]
    fn look_ahead(&self, name: NameRef<'_>) -> Self::Ahead {
        self.shared.look_ahead(name)
    }

    #[inline]
    fn look_closer(&self, ahead: &Self::Ahead) -> bool {
        self.shared.look_closer(ahead)
    }

    #[inline]
    fn find<R>(
        &mut self,
        interest: &Interest<'_>,
        ahead: &Self::Ahead,
        now: Instant,
        found: impl FnOnce(&[u8]) -> R,
    ) -> Option<R> {
        let hot = &self.hot;
        self.shared.find(interest, ahead, now, |packet| {
            if let Some(hot) = hot {
                hot.answered(packet);
            }
            found(packet)
        })
    }

    fn insert(&mut self, data: &Data<'_>, now: Instant) {
        self.shared.insert(data, now);
        if let Some(hot) = &self.hot {
            hot.watch.withdraw(&data.name);
        }
    }

    fn erase(&mut self, prefix: NameRef<'_>, limit: u64) -> u64 {
        self.shared.erase(prefix, limit)
    }

    fn configure(&mut self, capacity: Option<u64>, admit: Option<bool>, serve: Option<bool>) {
        self.shared.configure(capacity, admit, serve);
    }

    fn info(&self) -> StoreInfo {
        self.shared.info()
    }

    fn start_read(&mut self, name: NameRef<'_>) -> bool {
        self.shared.start_read(name)
    }

    fn poll_reads(&mut self, now: Instant, mut ended: impl FnMut(NameRef<'_>)) {
        let hot = &self.hot;
        self.shared.poll_reads(now, |name| {
            // It was inserted anew.
            if let Some(hot) = hot {
                hot.watch.withdraw(&name);
            }
            ended(name);
        });
    }

    fn quiescent(&mut self) {
        self.shared.quiescent();
    }
}
