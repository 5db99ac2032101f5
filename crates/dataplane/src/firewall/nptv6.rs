//! NPTv6 (RFC 6296) in the firewall's node: rules and connections see the addresses inside.

use std::net::IpAddr;

use control::config::FirewallConfig;
use filter::nat::nptv6::PrefixPair;
use filter::packet::InterfaceId;
use io::Frame;
use wire::{DropReason, LayoutFlags};

use super::interface_id;
use crate::forwarding::{Forwarding, Route};
use crate::plan::Plan;
use crate::prefix::Prefix;

/// A pair of prefixes, and the interface beyond which the outer one holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Nptv6 {
    pair: PrefixPair,
    outside: InterfaceId,
}

impl Nptv6 {
    /// Makes what a configuration asks for.
    pub(super) fn of(config: &FirewallConfig, plan: &Plan) -> Option<Self> {
        let config = config.nptv6.as_ref()?;
        let parse = |text: &str| text.parse::<Prefix>().ok();
        let (inside, outside) = (parse(&config.inside)?, parse(&config.outside)?);
        let (IpAddr::V6(inner), IpAddr::V6(outer)) = (inside.address, outside.address) else {
            return None;
        };
        let mut interfaces = plan.interfaces.iter();
        let at = interfaces.position(|interface| interface.name == config.port)?;
        Some(Self {
            pair: PrefixPair::new(inner, outer, inside.length).ok()?,
            outside: interface_id(crate::plan::InterfaceId(at as u16)),
        })
    }

    /// Translates a frame that came in.
    ///
    /// # Errors
    /// An address cannot be translated (RFC 6296 3.5).
    pub(super) fn enter(
        &self,
        frame: &mut Frame,
        iif: InterfaceId,
        forwarding: &Forwarding,
    ) -> Result<(), DropReason> {
        let layout = frame.layout;
        if !self.pair.is_for_outer(frame.data(), &layout) {
            return Ok(());
        }
        let is_own = layout
            .ipv6_addresses(frame.data())
            .is_some_and(|(_, to)| matches!(forwarding.route6(&to.octets()), Some(Route::Local)));
        if is_own {
            return Ok(());
        }
        // From inside to an outer address (RFC 6296 4.1): both ends see each other by outer addresses.
        let is_hairpin = iif != self.outside && self.pair.is_from_inner(frame.data(), &layout);
        let done = self.pair.enter(frame.data_mut(), &layout)
            && (!is_hairpin || self.pair.leave(frame.data_mut(), &layout));
        done.then_some(()).ok_or(DropReason::NatNoPort)
    }

    /// Translates a frame that goes on, if it leaves by the outer interface.
    ///
    /// # Errors
    /// As [`enter`](Self::enter).
    pub(super) fn leave(
        &self,
        frame: &mut Frame,
        forwarding: &Forwarding,
    ) -> Result<(), DropReason> {
        let layout = frame.layout;
        if !layout.flags.contains(LayoutFlags::IPV6) {
            return Ok(());
        }
        let Some((_, to)) = layout.ipv6_addresses(frame.data()) else {
            return Ok(());
        };
        let Some(Route::Forward { first, .. }) = forwarding.route6(&to.octets()) else {
            return Ok(());
        };
        let hop = forwarding.next_hop(first);
        if hop.is_none_or(|hop| interface_id(hop.interface) != self.outside) {
            return Ok(());
        }
        let done = self.pair.leave(frame.data_mut(), &layout);
        done.then_some(()).ok_or(DropReason::NatNoPort)
    }
}
