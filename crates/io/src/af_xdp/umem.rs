//! The region as the kernel knows it: registered once, shared by the sockets of all ports.

use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::redirect::Redirects;
use super::ring::RingKind;
use super::socket::Socket;
use crate::pool::Region;

/// Whether the driver moves frames by DMA or the kernel copies them. Sockets that share a umem share
/// it, because only the first one may say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BindKind {
    ZeroCopy,
    Copy,
}

impl BindKind {
    fn flags(self) -> u16 {
        libc::XDP_USE_NEED_WAKEUP
            | match self {
                Self::ZeroCopy => libc::XDP_ZEROCOPY,
                Self::Copy => libc::XDP_COPY,
            }
    }
}

/// A region and the live sockets that use it.
#[derive(Debug)]
pub(super) struct Umem {
    region: Arc<Region>,
    sockets: Mutex<Vec<(BindKind, Weak<Socket>)>>,
    redirects: Redirects,
}

/// The umems of this process: ports are opened one by one, and those over one region share.
static UMEMS: Mutex<Vec<Weak<Umem>>> = Mutex::new(Vec::new());

impl Umem {
    /// Returns the umem of a region; a new one if no port uses the region yet.
    pub(super) fn of(region: &Arc<Region>) -> Arc<Self> {
        let mut umems = UMEMS.lock().unwrap_or_else(PoisonError::into_inner);
        umems.retain(|umem| umem.strong_count() > 0);
        let known = umems
            .iter()
            .filter_map(Weak::upgrade)
            .find(|umem| Arc::ptr_eq(&umem.region, region));
        known.unwrap_or_else(|| {
            let umem = Arc::new(Self {
                region: Arc::clone(region),
                sockets: Mutex::new(Vec::new()),
                redirects: Redirects::default(),
            });
            umems.push(Arc::downgrade(&umem));
            umem
        })
    }

    pub(super) fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Returns the redirect programs of the region's ports.
    pub(super) fn redirects(&self) -> &Redirects {
        &self.redirects
    }

    /// Makes a socket with four rings of `ring_entries` and binds it to a queue: to the umem of a live
    /// socket of the same kind, or, if there is none, with a registration of its own.
    ///
    /// On an error, returns what was being done, too.
    pub(super) fn bind(
        &self,
        ifindex: u32,
        queue: u32,
        kind: BindKind,
        ring_entries: u32,
    ) -> Result<Arc<Socket>, (&'static str, io::Error)> {
        let mut sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        sockets.retain(|(_, socket)| socket.strong_count() > 0);
        let sharing = sockets
            .iter()
            .find_map(|(its, socket)| (*its == kind).then(|| socket.upgrade()).flatten());
        let socket = Socket::new().map_err(|error| ("socket", error))?;
        if sharing.is_none() {
            socket
                .register(&self.region)
                .map_err(|error| ("umem registration", error))?;
        }
        for ring in [
            RingKind::Fill,
            RingKind::Completion,
            RingKind::Rx,
            RingKind::Tx,
        ] {
            socket
                .set_ring(ring, ring_entries)
                .map_err(|error| ("ring", error))?;
        }
        socket.raise_send_limits(ring_entries);
        let bound = match &sharing {
            Some(first) => socket.bind(ifindex, queue, libc::XDP_SHARED_UMEM, Some(first.as_fd())),
            None => socket.bind(ifindex, queue, kind.flags(), None),
        };
        bound.map_err(|error| ("bind", error))?;
        let socket = Arc::new(socket);
        sockets.push((kind, Arc::downgrade(&socket)));
        Ok(socket)
    }

    /// Closes a socket whose rings are unmapped, and tells whether the kernel has given it up when this
    /// returns (it has not if another thread is just binding to it).
    pub(super) fn close(&self, socket: Arc<Socket>) -> bool {
        let _sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::into_inner(socket).is_some()
    }
}
