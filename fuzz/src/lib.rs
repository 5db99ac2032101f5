//! The bodies of the fuzz targets as plain functions, so that ordinary tests replay their corpora too.
#![forbid(unsafe_code)]

pub mod alg_targets;
pub mod filter_targets;
pub mod kernel_cache_targets;
pub mod ndn_targets;
pub mod rule_targets;
pub mod stack_targets;
pub mod wire_targets;
