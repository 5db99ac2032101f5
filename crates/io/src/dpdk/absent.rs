//! Several processes that share DPDK: not in this program, which has none.

pub use super::sharing::{SharedFrames, SharingError};
use crate::pool::Pool;

/// Says that the program has no DPDK in it.
///
/// # Errors
/// Always.
pub fn host(_group: &str, _frames: SharedFrames) -> Result<Vec<Pool>, SharingError> {
    Err(SharingError::Absent)
}

/// Says that the program has no DPDK in it.
///
/// # Errors
/// Always.
pub fn join(_group: &str, _guest: u16) -> Result<Pool, SharingError> {
    Err(SharingError::Absent)
}
