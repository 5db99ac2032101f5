//! `link-NAME`: joins two ports by a link with faults, so that real traffic can be impaired.
//!
//! Every worker has the node; one of them owns the link. What the others receive from its ports they hand
//! to the owner: rate, order and the limit of packets on the link are the link's, however many workers and
//! queues there are.

use std::sync::Arc;

use graph::fault::{FaultCounters, FaultLink};
use graph::{Context, Node, Outlets, Snapshot};
use io::{Batch, WorkerId};
use wire::Instant;

use crate::forwarding::Forwarding;
use crate::plan::{LinkId, LinkPlan};

/// The input node of an impaired link's two ports.
#[derive(Debug)]
pub struct ImpairedLink {
    id: LinkId,
    owner: WorkerId,
    link: FaultLink,
}

impl ImpairedLink {
    /// Makes the node of the link `id`, which worker `owner` owns; the owner writes `counters`.
    pub fn new(
        id: LinkId,
        plan: &LinkPlan,
        owner: WorkerId,
        counters: Arc<[FaultCounters; 2]>,
    ) -> Self {
        let name = format!("link-{}", plan.name);
        Self {
            id,
            owner,
            link: FaultLink::new(name, plan.ends, plan.faults, plan.seed).with_counters(counters),
        }
    }
}

impl Node for ImpairedLink {
    fn name(&self) -> &str {
        self.link.name()
    }

    fn edges(&self) -> &[&'static str] {
        FaultLink::EDGES
    }

    fn process(&mut self, cx: &mut Context<'_>, batch: &mut Batch, out: &mut Outlets) {
        if cx.worker == self.owner {
            self.link.process(cx, batch, out);
            return;
        }
        for frame in batch.drain() {
            out.hand_off(self.owner, frame);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.link.poll_timeout()
    }

    fn handle_timeout(&mut self, cx: &mut Context<'_>, out: &mut Outlets) {
        self.link.handle_timeout(cx, out);
    }

    fn stop(&mut self, cx: &mut Context<'_>, out: &mut Outlets) {
        if cx.worker == self.owner {
            self.link.stop(cx, out);
        }
    }

    fn reload(&mut self, _cx: &mut Context<'_>, snapshot: &Snapshot, _out: &mut Outlets) {
        if let Some(published) = snapshot.downcast_ref::<Forwarding>()
            && let Some(plan) = published.links().get(self.id.index())
        {
            self.link.set_faults(plan.faults);
        }
    }
}
