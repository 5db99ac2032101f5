//! Blocks a worker until one of several descriptors is readable, or for a time.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// What ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// A descriptor is readable: bit `i` stands for the descriptor added as number `i` (the 64th and
    /// later ones share the last bit).
    Readable(u64),
    /// The time is over.
    TimedOut,
    /// A signal came, or the kernel refused to wait: look around and wait again.
    Interrupted,
}

/// The descriptors that one sleep waits for. Keeps its room, so that a worker fills it before each sleep
/// without allocating.
#[derive(Debug)]
pub struct PollSet {
    fds: Vec<libc::pollfd>,
}

impl PollSet {
    /// Makes an empty set with room for `fds` descriptors.
    pub fn with_capacity(fds: usize) -> Self {
        Self {
            fds: Vec::with_capacity(fds),
        }
    }

    /// Forgets all descriptors.
    pub fn clear(&mut self) {
        self.fds.clear();
    }

    /// Adds a descriptor and returns its number. A descriptor that is closed before the wait ends the wait
    /// at once.
    pub fn add(&mut self, fd: BorrowedFd<'_>) -> usize {
        self.fds.push(libc::pollfd {
            fd: fd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        });
        self.fds.len() - 1
    }

    /// Returns how many descriptors are in the set.
    pub fn len(&self) -> usize {
        self.fds.len()
    }

    /// Tells whether the set has no descriptor.
    pub fn is_empty(&self) -> bool {
        self.fds.is_empty()
    }

    /// Blocks until a descriptor is readable (or in error), or for `timeout`; without one, for ever.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Woken {
        let timeout = timeout.map(|timeout| libc::timespec {
            tv_sec: timeout.as_secs().min(i32::MAX as u64) as libc::time_t,
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let timeout = timeout
            .as_ref()
            .map_or(core::ptr::null(), core::ptr::from_ref);
        // SAFETY: `fds` is an array of that length, exclusively ours; `timeout` is null or points to a
        // valid value that lives until the end of this function; no signal mask is given.
        let ready = unsafe {
            libc::ppoll(
                self.fds.as_mut_ptr(),
                self.fds.len() as libc::nfds_t,
                timeout,
                core::ptr::null(),
            )
        };
        match ready {
            0 => Woken::TimedOut,
            1.. => {
                let mut bits = 0;
                for (number, fd) in self.fds.iter().enumerate() {
                    bits |= u64::from(fd.revents != 0) << number.min(63);
                }
                Woken::Readable(bits)
            }
            _ => {
                debug_assert_eq!(
                    io::Error::last_os_error().kind(),
                    io::ErrorKind::Interrupted
                );
                Woken::Interrupted
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;

    #[test]
    fn tells_which_descriptor_is_readable() {
        let (quiet, _open) = io::pipe().unwrap();
        let (loud, mut writer) = io::pipe().unwrap();
        let mut set = PollSet::with_capacity(2);
        set.add(quiet.as_fd());
        let number = set.add(loud.as_fd());
        assert_eq!(set.wait(Some(Duration::ZERO)), Woken::TimedOut);
        writer.write_all(b"x").unwrap();
        assert_eq!(set.wait(None), Woken::Readable(1 << number));
        set.clear();
        assert!(set.is_empty());
        assert_eq!(set.wait(Some(Duration::from_millis(1))), Woken::TimedOut);
    }
}
