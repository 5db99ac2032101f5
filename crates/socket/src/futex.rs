//! Waiting on a word of memory, also of memory that processes share.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

use rustix::thread::futex::{self, Flags};
use rustix::time::Timespec;

fn flags(is_private: bool) -> Flags {
    if is_private {
        Flags::PRIVATE
    } else {
        Flags::empty()
    }
}

/// Blocks while `word` is `seen`, until woken, or for `timeout`. May return early.
pub(crate) fn wait(word: &AtomicU32, is_private: bool, seen: u32, timeout: Option<Duration>) {
    let timeout = timeout.map(|timeout| Timespec {
        tv_sec: timeout.as_secs().min(i32::MAX as u64) as i64,
        tv_nsec: timeout.subsec_nanos().into(),
    });
    // Whatever ends it, the caller looks again.
    let _ = futex::wait(word, flags(is_private), seen, timeout.as_ref());
}

/// Wakes all who wait on `word`.
pub(crate) fn wake(word: &AtomicU32, is_private: bool) {
    let _ = futex::wake(word, flags(is_private), i32::MAX as u32);
}
