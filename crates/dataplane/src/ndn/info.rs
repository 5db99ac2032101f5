//! The figures of the forwarder, in the types of the API.

use control::api::{DropInfo, NdnDiskInfo, NdnInfo, NdnStoreInfo};
use ndn::rib::Rib;
use wire::DropReason;

use super::kernel::Filling;
use super::many::Many;

/// Returns the figures as the workers reported them last.
pub(super) fn of(many: &Many, rib: &Rib) -> NdnInfo {
    let counters = &many.status.counters;
    let store = many.store.store();
    let stats = store.stats();
    let link_drops = |wanted: DropReason| {
        let found = many.link_drops.iter().find(|(reason, _)| *reason == wanted);
        found.map_or(0, |(_, count)| *count)
    };
    NdnInfo {
        channels: many.channels.clone(),
        faces: many.faces.len() as u64,
        fib_prefixes: many.fib.len() as u64,
        routes: rib.iter().map(|(_, routes)| routes.len() as u64).sum(),
        pit_entries: many.status.tables[1],
        store: NdnStoreInfo {
            packets: stats.packets,
            capacity_packets: stats.capacity_packets,
            bytes: stats.bytes,
            policy: store.policy().name().to_owned(),
            hits: stats.hits,
            misses: stats.misses,
            disk: store.disk_stats().map(|disk| NdnDiskInfo {
                recovered: disk.recovered,
                cut: disk.cut,
                written: disk.written,
                dropped: disk.dropped + disk.crowded_out,
                found: disk.found,
                lost: disk.lost,
                failed: disk.failed,
                index_bytes: disk.index_bytes,
            }),
        },
        kernel: many.kernel.as_ref().map(Filling::info),
        in_interests: counters.in_interests,
        in_data: counters.in_data,
        in_nacks: counters.in_nacks,
        out_interests: counters.out_interests,
        out_data: counters.out_data,
        out_nacks: counters.out_nacks,
        satisfied: counters.satisfied,
        unsatisfied: counters.unsatisfied,
        drops: DropReason::ALL
            .iter()
            .map(|&reason| (reason, counters.drops(reason) + link_drops(reason)))
            .filter(|&(_, pkts)| pkts > 0)
            .map(|(reason, pkts)| DropInfo::new(reason, pkts))
            .collect(),
    }
}
