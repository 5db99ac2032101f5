//! ARP (RFC 826), with the conflict rules of RFC 5227 that a host with a fixed address needs.

use core::net::IpAddr;

use wire::{DropReason, MacAddr, arp, ether_type, ethernet};

use super::neighbour::Solicit;
use crate::rx::Rx;
use crate::stack::Stack;

impl Stack {
    pub(crate) fn receive_arp(&mut self, rx: &Rx<'_>, now_ns: u64) -> Result<(), DropReason> {
        let packet = rx
            .frame
            .get(usize::from(rx.layout.network)..)
            .unwrap_or_default();
        let repr = arp::Repr::parse(&arp::View::new(packet)?);
        let is_ours = self.addressing.is_ours(repr.target_ip.into());
        let sender_is_host = !repr.sender_ip.is_unspecified()
            && !repr.sender_ip.is_multicast()
            && !self.addressing.is_ours(repr.sender_ip.into());
        if sender_is_host {
            let is_answer = repr.operation == arp::Operation::Reply && is_ours;
            let waiting = self.neighbours.learn(
                repr.sender_ip.into(),
                repr.sender_mac,
                is_ours,
                is_answer,
                now_ns,
            );
            self.release(waiting, repr.sender_mac);
        }
        if repr.operation == arp::Operation::Request && is_ours {
            let reply = repr.reply(self.mac);
            self.send_arp(&reply, repr.sender_mac);
        }
        Ok(())
    }

    /// Asks for a neighbour's MAC address.
    pub(crate) fn solicit_ipv4(&mut self, solicit: Solicit) {
        let IpAddr::V4(target) = solicit.ip else {
            return;
        };
        let source = self
            .addressing
            .choose(solicit.ip, None)
            .map(|choice| choice.source);
        let Some(IpAddr::V4(source)) = source else {
            return;
        };
        let repr = arp::Repr::request(self.mac, source, target);
        self.send_arp(&repr, solicit.mac.unwrap_or(MacAddr::BROADCAST));
    }

    /// Queues an ARP packet.
    pub(crate) fn send_arp(&mut self, repr: &arp::Repr, destination: MacAddr) {
        let mut frame = self
            .queue
            .buffer(ethernet::HEADER_BYTES + arp::PACKET_BYTES);
        let link = ethernet::Repr {
            destination,
            source: self.mac,
            ether_type: ether_type::ARP,
        };
        let Some((to, packet)) = frame.split_at_mut_checked(ethernet::HEADER_BYTES) else {
            return;
        };
        if link.emit(to).is_ok() && repr.emit(packet).is_ok() {
            self.queue.push(frame);
        }
    }
}
