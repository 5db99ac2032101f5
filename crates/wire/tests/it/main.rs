//! Integration tests of `wire`, in one program: rules of the RFCs, properties, two oracles, captures, fuzz bodies.

mod captures;
mod drops;
mod fuzz_targets;
#[expect(
    unreachable_pub,
    reason = "the file belongs to the fuzz crate, whose library exports it"
)]
#[path = "../../../../fuzz/src/ndn_targets.rs"]
mod ndn_targets;
mod oracle_etherparse;
mod oracle_smoltcp;
mod round_trip;
mod support;
#[expect(
    unreachable_pub,
    reason = "the file belongs to the fuzz crate, whose library exports it"
)]
#[path = "../../../../fuzz/src/wire_targets.rs"]
mod wire_targets;
