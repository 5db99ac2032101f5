//! NAT64 in the firewall's node: IPv6 packets for IPv4 servers become IPv4 before the engine sees them, and what it
//! sends to an IPv6 host becomes IPv6 after it.

use std::net::IpAddr;
use std::sync::Arc;

use control::config::FirewallConfig;
use filter::nat::nat64::{Nat64, Nat64Worker, Pool};
use filter::nat::siit;
use filter::packet::{Fib, FibQuery};
use filter::pipeline::InterfaceFacts;
use io::Frame;
use wire::{DropReason, Instant, LayoutFlags};

use super::WORKERS_MAX;
use super::routes::Routes;
use crate::forwarding::Forwarding;
use crate::prefix::{Prefix, mapped};

/// Bytes of the longest frame that is translated.
const FRAME_BYTES: usize = 9216 + 64;

/// Makes the translator that a configuration asks for.
pub(super) fn of(config: &FirewallConfig) -> Option<Nat64> {
    let parse = |text: &str| text.parse::<Prefix>().ok();
    let prefix = parse(config.nat64.as_ref()?)?;
    let clients = parse(&config.nat64_clients)?;
    let (IpAddr::V6(prefix), IpAddr::V4(first)) = (prefix.address, clients.address) else {
        return None;
    };
    let pool = Pool::new(first, clients.length);
    Some(Nat64::new(siit::Prefix::new(prefix), pool, WORKERS_MAX))
}

/// A worker's part of the translator.
#[derive(Debug)]
pub(super) struct Translator {
    pub(super) shared: Arc<Nat64>,
    worker: Nat64Worker,
    buffer: Box<[u8]>,
}

impl Translator {
    /// Joins; `None` if as many workers as there may be have joined.
    pub(super) fn join(shared: &Arc<Nat64>) -> Option<Self> {
        Some(Self {
            worker: shared.join()?,
            shared: Arc::clone(shared),
            buffer: vec![0; FRAME_BYTES].into_boxed_slice(),
        })
    }

    /// Makes a frame IPv4 that is for an IPv4 server. `own` says that the node sends it itself: it is then from an
    /// address of the interface that leads there.
    ///
    /// # Errors
    /// It cannot be translated.
    pub(super) fn outward(
        &mut self,
        frame: &mut Frame,
        own: Option<(&Forwarding, &[InterfaceFacts])>,
        now: Instant,
    ) -> Result<(), DropReason> {
        let Some(server) = self.shared.server(&frame.layout, frame.data()) else {
            return Ok(());
        };
        let source = own.and_then(|(forwarding, interfaces)| {
            let routes = Routes {
                forwarding,
                nat64: None,
            };
            let way = routes.lookup(&FibQuery {
                address: mapped(&server.into()),
                mark: None,
                interface: None,
            });
            let facts = interfaces.get(usize::from(way.interface.0))?;
            facts.v4.map(Into::into)
        });
        if own.is_some() && source.is_none() {
            return Err(DropReason::NoRoute);
        }
        let layout = frame.layout;
        let worker = &mut self.worker;
        let len = self
            .shared
            .outward(worker, frame.data(), &layout, &mut self.buffer, source, now)
            .ok_or(DropReason::NatError)?;
        self.replace(frame, len)
    }

    /// Makes a frame IPv6 that is for an IPv6 host.
    ///
    /// # Errors
    /// It cannot be translated, or the host is not known any more.
    pub(super) fn inward(&mut self, frame: &mut Frame) -> Result<(), DropReason> {
        let layout = frame.layout;
        if !layout.flags.contains(LayoutFlags::IPV4)
            || !self.shared.is_inward(&layout, frame.data())
        {
            return Ok(());
        }
        let len = self
            .shared
            .inward(frame.data(), &layout, &mut self.buffer)
            .ok_or(DropReason::NatError)?;
        self.replace(frame, len)
    }

    fn replace(&self, frame: &mut Frame, len: usize) -> Result<(), DropReason> {
        let bytes = self.buffer.get(..len).unwrap_or_default();
        let layout = wire::parse(bytes)?;
        if !frame.fill(bytes) {
            return Err(DropReason::FrameTooLong);
        }
        frame.layout = layout;
        Ok(())
    }

    /// As [`Nat64::maintain`].
    pub(super) fn maintain(&mut self, now: Instant, slots: usize) {
        self.shared.maintain(&mut self.worker, slots, now);
    }
}
