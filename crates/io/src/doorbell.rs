//! Wakes a sleeping thread of this process through a descriptor, and costs almost nothing while that
//! thread is awake.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd};

use tables::sleep::SleepFlag;

/// An eventfd with a flag that tells whether anybody sleeps on it.
///
/// Protocol (see [`SleepFlag`], which loom models): the sleeper calls [`Doorbell::prepare`], *then* looks
/// for work once more, and blocks on the descriptor only if there is none; who brings work publishes it,
/// *then* calls [`Doorbell::ring`]. Either the sleeper sees the work or the ringer sees the sleeper.
#[derive(Debug)]
pub struct Doorbell {
    event: File,
    flag: SleepFlag,
}

impl Doorbell {
    /// Makes a doorbell that nobody sleeps on.
    ///
    /// # Errors
    /// The kernel has no descriptor left.
    pub fn new() -> io::Result<Self> {
        // SAFETY: `eventfd` takes no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            // SAFETY: the descriptor is new and owned by nobody else.
            event: unsafe { File::from_raw_fd(fd) },
            flag: SleepFlag::new(),
        })
    }

    /// Announces a sleeper. It must look for work after this and before it blocks.
    pub fn prepare(&self) {
        self.flag.arm(false);
    }

    /// As [`Doorbell::prepare`], for a sleeper that also wants [`Doorbell::ring_hungry`] to wake it: it ran
    /// out of something that others will give back.
    pub fn prepare_hungry(&self) {
        self.flag.arm(true);
    }

    /// Ends a sleep, or the preparation for one, and consumes the signal.
    pub fn cancel(&self) {
        self.flag.disarm();
        let mut count = [0; 8];
        // Empty (would block) is the usual answer: then nobody rang.
        let _ = (&self.event).read(&mut count);
    }

    /// Wakes the sleeper if there is one; tells whether that took a system call. Call it after the work
    /// has been published.
    #[inline]
    pub fn ring(&self) -> bool {
        let must = self.flag.must_wake();
        if must {
            self.signal();
        }
        must
    }

    /// As [`Doorbell::ring`], but wakes only a sleeper that is hungry. Call it after what it lacks has been
    /// given back.
    #[inline]
    pub fn ring_hungry(&self) -> bool {
        let must = self.flag.must_wake_hungry();
        if must {
            self.signal();
        }
        must
    }

    /// Makes the descriptor readable whether anybody sleeps or not: for who has a flag of its own for that.
    #[cold]
    pub fn signal(&self) {
        // It cannot fail short of 2^64 rings without a reader.
        let _ = (&self.event).write(&1_u64.to_ne_bytes());
    }
}

impl AsFd for Doorbell {
    /// Returns the descriptor that becomes readable when the bell rings.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::{Duration, Instant};

    fn readable(bell: &Doorbell, timeout_ms: i32) -> bool {
        let mut poll = libc::pollfd {
            fd: bell.as_fd().as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: `poll` is one valid entry.
        unsafe { libc::poll(&raw mut poll, 1, timeout_ms) == 1 }
    }

    #[test]
    fn rings_only_for_a_sleeper_and_once() {
        let bell = Doorbell::new().unwrap();
        assert!(!bell.ring());
        bell.prepare();
        assert!(!readable(&bell, 0));
        assert!(bell.ring());
        assert!(!bell.ring());
        assert!(readable(&bell, 0));
        bell.cancel();
        assert!(!readable(&bell, 0));
    }

    #[test]
    fn no_wake_up_is_lost_between_two_threads() {
        const ITEMS: u64 = 20_000;
        let shared = Arc::new((Doorbell::new().unwrap(), AtomicU64::new(0)));
        let worker = Arc::clone(&shared);
        let consumer = std::thread::spawn(move || {
            let (bell, published) = &*worker;
            let deadline = Instant::now() + Duration::from_secs(30);
            let mut seen = 0;
            while seen < ITEMS {
                let now = published.load(Ordering::Acquire);
                if now > seen {
                    seen = now;
                    continue;
                }
                bell.prepare();
                if published.load(Ordering::Acquire) == seen {
                    // A lost wake-up shows as this time-out.
                    assert!(readable(bell, 5_000), "slept through item {seen}");
                }
                bell.cancel();
                assert!(Instant::now() < deadline);
            }
        });
        for i in 1..=ITEMS {
            shared.1.store(i, Ordering::Release);
            shared.0.ring();
            if i % 7 == 0 {
                std::thread::yield_now();
            }
        }
        consumer.join().unwrap();
    }
}
