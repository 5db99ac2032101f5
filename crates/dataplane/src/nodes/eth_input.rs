//! `eth-input`: validates once, and sorts what is for this node by protocol.

use std::sync::Arc;

use graph::{Context, EdgeId, Node, Outlets, Snapshot};
use io::{Batch, Frame, PortId};
use wire::{DropReason, Layout, LayoutFlags, MacAddr};

use super::verdict::{Verdict, judge};
use crate::forwarding::Forwarding;

const IP4: EdgeId = EdgeId(0);
const IP6: EdgeId = EdgeId(1);
const ARP: EdgeId = EdgeId(2);
const NDN: EdgeId = EdgeId(3);
const EDGES: &[&str] = &["ip4", "ip6", "arp", "ndn"];

/// Input of routed ports, and of what a bridge has for the node itself.
#[derive(Debug)]
pub struct EthInput {
    forwarding: Arc<Forwarding>,
    has_ndn: bool,
}

impl EthInput {
    /// Makes the node; with `has_ndn` it has an edge for named data.
    pub fn new(forwarding: Arc<Forwarding>, has_ndn: bool) -> Self {
        Self {
            forwarding,
            has_ndn,
        }
    }

    #[inline]
    fn sort(&self, frame: &mut Frame, host: &mut Option<(PortId, MacAddr)>) -> Verdict {
        let layout = match wire::parse(frame.data()) {
            Ok(layout) => layout,
            Err(reason) => return Verdict::drop(reason),
        };
        frame.layout = layout;
        let own = match *host {
            Some((port, mac)) if port == frame.rx_port => mac,
            _ => match self.forwarding.ports().get(frame.rx_port.index()) {
                Some(port) => {
                    *host = Some((frame.rx_port, port.host_mac));
                    port.host_mac
                }
                None => return Verdict::drop(DropReason::PortDown),
            },
        };
        let for_us = frame.data().first_chunk() == Some(&own.0);
        if for_us && layout.vlan_tags == 0 && layout.flags.contains(LayoutFlags::IPV4) {
            return Verdict::edge(IP4);
        }
        let is_ndn = self.has_ndn && ether_type(frame) == Some(NDN_TYPE);
        Self::sort_slowly(&layout, for_us, is_ndn)
    }

    /// What is not plain IPv4 to the node's own MAC address.
    fn sort_slowly(layout: &Layout, for_us: bool, is_ndn: bool) -> Verdict {
        if !for_us && !layout.flags.contains(LayoutFlags::L2_GROUP) {
            return Verdict::drop(DropReason::NotForUs);
        }
        // A priority tag (VLAN 0) names no VLAN (IEEE 802.1Q 6.9); the node's interfaces are on none.
        if layout.vlan_tags != 0 && (layout.outer_tci & 0xfff != 0 || layout.vlan_tags > 1) {
            return Verdict::drop(DropReason::VlanUnknown);
        }
        if layout.flags.contains(LayoutFlags::IPV6) {
            Verdict::edge(IP6)
        } else if layout.flags.contains(LayoutFlags::IPV4) {
            Verdict::edge(IP4)
        } else if layout.flags.contains(LayoutFlags::ARP) {
            Verdict::edge(ARP)
        } else if is_ndn && layout.vlan_tags == 0 {
            Verdict::edge(NDN)
        } else {
            Verdict::drop(DropReason::EtherTypeUnknown)
        }
    }
}

/// The EtherType of named data, on the wire.
const NDN_TYPE: [u8; 2] = wire::numbers::ether_type::NDN.to_be_bytes();

/// Returns the type field after the addresses.
fn ether_type(frame: &Frame) -> Option<[u8; 2]> {
    frame.data().get(12..14)?.try_into().ok()
}

impl Node for EthInput {
    fn name(&self) -> &str {
        "eth-input"
    }

    fn edges(&self) -> &[&'static str] {
        if !self.has_ndn {
            return &EDGES[..3];
        }
        EDGES
    }

    fn process(&mut self, _cx: &mut Context<'_>, batch: &mut Batch, out: &mut Outlets) {
        // A batch mostly comes from one port: its MAC address is looked up once.
        let mut host = None;
        judge(batch, out, |frame| self.sort(frame, &mut host));
    }

    fn reload(&mut self, _cx: &mut Context<'_>, snapshot: &Snapshot, _out: &mut Outlets) {
        crate::adopt(&mut self.forwarding, snapshot);
    }
}
