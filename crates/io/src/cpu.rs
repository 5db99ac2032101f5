//! The calling thread's CPU, timer slack and CPU time, and the monotonic clock.

use std::io;
use std::time::Duration;

use wire::Instant;

/// CPUs that a mask of this module can name.
const CPUS_MAX: usize = libc::CPU_SETSIZE as usize;

/// Pins the calling thread to one CPU.
///
/// # Errors
/// The CPU does not exist or is not in the process's cpuset.
pub fn pin(cpu: u16) -> io::Result<()> {
    if usize::from(cpu) >= CPUS_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut set = empty_set();
    // SAFETY: `cpu` is less than the set's size.
    unsafe { libc::CPU_SET(usize::from(cpu), &mut set) };
    // SAFETY: 0 is the calling thread; `set` is a valid mask of the size given.
    let done = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Returns the CPUs that the calling thread may run on, in ascending order.
///
/// # Errors
/// The kernel's answer (it has more CPUs than a mask of 1,024 names).
pub fn allowed() -> io::Result<Vec<u16>> {
    let mut set = empty_set();
    // SAFETY: 0 is the calling thread; `set` is a mask of the size given.
    let done = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((0..CPUS_MAX)
        // SAFETY: every `cpu` is less than the set's size.
        .filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) })
        .map(|cpu| cpu as u16)
        .collect())
}

fn empty_set() -> libc::cpu_set_t {
    // SAFETY: a mask is an array of integers, for which zeroes are valid: no CPU.
    unsafe { core::mem::zeroed() }
}

/// Makes a thread (0: the calling one) run before all normal ones (`SCHED_FIFO`, priority 1 to 99, the
/// highest first), or with priority 0 a normal one again. A thread that spins so for most of a second is
/// stopped by the kernel for a while (`kernel.sched_rt_runtime_us`). Threads that it starts inherit it.
///
/// # Errors
/// The kernel's answer: `EPERM` without privilege.
pub fn set_real_time(thread: i32, priority: u8) -> io::Result<()> {
    let policy = if priority > 0 {
        libc::SCHED_FIFO
    } else {
        libc::SCHED_OTHER
    };
    let parameter = libc::sched_param {
        sched_priority: priority.into(),
    };
    // SAFETY: passes an initialised block.
    let result = unsafe { libc::sched_setscheduler(thread, policy, &raw const parameter) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Sets how much later than asked the kernel may end the calling thread's sleeps, nanoseconds. The
/// default is 50,000, which is much for a nap of as many. Real-time threads have none.
///
/// # Errors
/// The kernel's answer.
pub fn set_timer_slack_ns(ns: u32) -> io::Result<()> {
    // SAFETY: this option takes an integer and no pointers.
    let done = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, libc::c_ulong::from(ns.max(1))) };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Reads the monotonic clock (`CLOCK_MONOTONIC`; no system call where there is a vDSO).
#[inline]
pub fn now() -> Instant {
    Instant::from_ns(read_clock(libc::CLOCK_MONOTONIC))
}

/// Returns the CPU time of the calling thread, in user mode and in the kernel.
pub fn thread_time() -> Duration {
    Duration::from_nanos(read_clock(libc::CLOCK_THREAD_CPUTIME_ID))
}

fn read_clock(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is valid for writing. Both clocks always exist, and on failure it stays zero.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    // Both are positive for these clocks.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_to_an_allowed_cpu_and_to_no_other() {
        std::thread::spawn(|| {
            let cpus = allowed().unwrap();
            let first = cpus[0];
            pin(first).unwrap();
            assert_eq!(allowed().unwrap(), [first]);
            assert!(pin(u16::MAX).is_err());
        })
        .join()
        .unwrap();
    }

    #[test]
    fn clocks_run_forward() {
        let (start, busy) = (now(), thread_time());
        while thread_time() == busy {
            core::hint::spin_loop();
        }
        assert!(now() > start);
        set_timer_slack_ns(1).unwrap();
    }
}
