//! Several processes that share DPDK: not in this program, which has none.

use tables::segment::Segment;

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

/// Says that the program has no DPDK in it.
///
/// # Errors
/// Always.
pub fn create_segment(_name: &str, _bytes: usize, _layout: u64) -> Result<Segment, SharingError> {
    Err(SharingError::Absent)
}

/// Says that the program has no DPDK in it.
///
/// # Errors
/// Always.
pub fn attach_segment(_name: &str, _layout: u64) -> Result<Segment, SharingError> {
    Err(SharingError::Absent)
}

/// Does nothing: there are no guests.
pub fn without_guest(_guest: u16, _clean_up: impl FnOnce()) {}
