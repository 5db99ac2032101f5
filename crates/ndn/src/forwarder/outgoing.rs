//! Nacks that leave.

use wire::ndn::lp::{LpHeader, NackReason};

use super::{Forwarder, Outgoing, Sink};
use crate::face::{FaceId, LinkType};
use crate::store::ContentStore;

impl<C: ContentStore> Forwarder<C> {
    /// The outgoing Nack pipeline: Nacks go to point-to-point faces only.
    pub(super) fn send_nack(
        &mut self,
        face: FaceId,
        reason: NackReason,
        pit_token: Option<&[u8]>,
        packet: &[u8],
        sink: &mut impl Sink,
    ) {
        let Some(to) = self.faces.get_mut(face) else {
            return;
        };
        if to.config.link_type != LinkType::PointToPoint {
            return;
        }
        to.counters.out_nacks += 1;
        self.counters.out_nacks += 1;
        let header = LpHeader {
            nack: Some(reason),
            pit_token,
            ..LpHeader::default()
        };
        sink.send(Outgoing {
            face,
            header,
            packet,
        });
    }
}
