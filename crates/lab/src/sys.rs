//! The system calls of the lab, each behind a safe function.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Turns the result of a system call into a `Result`.
fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Moves the calling thread into new namespaces (`CLONE_NEW*` flags).
pub(crate) fn unshare(flags: libc::c_int) -> io::Result<()> {
    // SAFETY: `unshare` takes no pointers; which kernel objects the thread uses is not memory safety.
    check(unsafe { libc::unshare(flags) }).map(drop)
}

/// Moves the calling thread into the network namespace behind `fd`.
pub(crate) fn enter_network_namespace(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: `fd` is open while it is borrowed; no pointers.
    check(unsafe { libc::setns(fd.as_raw_fd(), libc::CLONE_NEWNET) }).map(drop)
}

/// Gives the calling thread its own `/sys` that shows its own network namespace.
pub(crate) fn mount_private_sysfs() -> io::Result<()> {
    unshare(libc::CLONE_NEWNS)?;
    // SAFETY: the path is a C string; the other pointers may be null for a change of propagation.
    check(unsafe {
        libc::mount(
            core::ptr::null(),
            c"/".as_ptr(),
            core::ptr::null(),
            libc::MS_REC | libc::MS_PRIVATE,
            core::ptr::null(),
        )
    })?;
    // SAFETY: all three strings are C strings; sysfs takes no data.
    check(unsafe {
        libc::mount(
            c"sysfs".as_ptr(),
            c"/sys".as_ptr(),
            c"sysfs".as_ptr(),
            libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC,
            core::ptr::null(),
        )
    })
    .map(drop)
}

/// Makes `command` start in the network namespace `fd`, with a `/sys` that shows it (where the process
/// may mount), and be killed when the thread that spawns it ends.
pub(crate) fn start_in_network_namespace(command: &mut Command, fd: RawFd) {
    let parent = std::process::id();
    let setup = move || {
        // SAFETY: `prctl` with PR_SET_PDEATHSIG takes an integer.
        check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) })?;
        if std::os::unix::process::parent_id() != parent {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        // SAFETY: no pointers; a closed descriptor is an error, not undefined.
        check(unsafe { libc::setns(fd, libc::CLONE_NEWNET) })?;
        // A program that does not look at /sys works without; one that does says what it misses.
        let _ = mount_private_sysfs();
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes system calls only: no allocation, no locks.
    unsafe { command.pre_exec(setup) };
}

/// What a process writes to become root in a user namespace of its own.
#[derive(Clone, Debug)]
pub(crate) struct IdMaps {
    uid: String,
    gid: String,
}

impl IdMaps {
    /// Maps the caller's user and group to root.
    pub(crate) fn of_caller() -> Self {
        // SAFETY: `geteuid` cannot fail and takes no arguments.
        let uid = unsafe { libc::geteuid() };
        // SAFETY: `getegid` cannot fail and takes no arguments.
        let gid = unsafe { libc::getegid() };
        Self {
            uid: format!("0 {uid} 1"),
            gid: format!("0 {gid} 1"),
        }
    }

    /// Unshares a user and a network namespace and maps the caller to root there. Makes system calls
    /// only, so that it may run between fork and exec.
    fn unshare(&self) -> io::Result<()> {
        unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNET)?;
        write_file(c"/proc/self/setgroups", b"deny")?;
        write_file(c"/proc/self/uid_map", self.uid.as_bytes())?;
        write_file(c"/proc/self/gid_map", self.gid.as_bytes())
    }
}

/// Moves the calling process, which must have one thread, into a user namespace where it is root.
pub(crate) fn become_root_in_user_namespace() -> io::Result<()> {
    IdMaps::of_caller().unshare()
}

/// Makes `command` start as root of a new user namespace, in a new network namespace.
pub(crate) fn start_in_user_namespace(command: &mut Command) {
    let maps = IdMaps::of_caller();
    // SAFETY: `IdMaps::unshare` makes system calls only: no allocation, no locks.
    unsafe { command.pre_exec(move || maps.unshare()) };
}

/// Writes a whole small file without allocating.
fn write_file(path: &CStr, bytes: &[u8]) -> io::Result<()> {
    // SAFETY: `path` is a C string.
    let fd = check(unsafe { libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC) })?;
    // SAFETY: `fd` was just opened and nobody else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: the pointer and the length are those of `bytes`.
    let written = unsafe { libc::write(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) };
    if written < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Opens a netlink socket of `protocol` in the calling thread's network namespace, with extended
/// error messages and a receive timeout of two seconds.
pub(crate) fn netlink_socket(protocol: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: `socket` takes no pointers.
    let fd = check(unsafe {
        libc::socket(
            libc::AF_NETLINK,
            libc::SOCK_RAW | libc::SOCK_CLOEXEC,
            protocol,
        )
    })?;
    // SAFETY: `fd` was just opened and nobody else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    for option in [libc::NETLINK_EXT_ACK, libc::NETLINK_CAP_ACK] {
        // Older kernels lack them; the messages are then shorter.
        let _ = set_option(&fd, libc::SOL_NETLINK, option, &1i32.to_ne_bytes());
    }
    let timeout = [2u64.to_ne_bytes(), 0u64.to_ne_bytes()].concat();
    set_option(&fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &timeout)?;
    Ok(fd)
}

/// Sets a socket option to `value`, in the layout that the option wants.
pub(crate) fn set_option(
    fd: &OwnedFd,
    level: libc::c_int,
    name: libc::c_int,
    value: &[u8],
) -> io::Result<()> {
    // SAFETY: the pointer and the length are those of `value`; the kernel copies it.
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            value.as_ptr().cast(),
            value.len() as libc::socklen_t,
        )
    })
    .map(drop)
}

/// Sends one datagram.
pub(crate) fn send(fd: &OwnedFd, bytes: &[u8]) -> io::Result<()> {
    // SAFETY: the pointer and the length are those of `bytes`.
    let sent = unsafe { libc::send(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), 0) };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Receives one datagram into `buffer`; returns its length.
pub(crate) fn receive(fd: &OwnedFd, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the pointer and the length are those of `buffer`, which is borrowed for writing.
    let received =
        unsafe { libc::recv(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
    usize::try_from(received).map_err(|_| io::Error::last_os_error())
}

/// Pins a thread of any process to one CPU.
pub(crate) fn pin_thread(tid: i32, cpu: usize) -> io::Result<()> {
    // SAFETY: `cpu_set_t` is a bit array, for which all zeroes is the empty set.
    let mut set: libc::cpu_set_t = unsafe { core::mem::zeroed() };
    if cpu >= libc::CPU_SETSIZE as usize {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: `cpu` is inside the set.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the pointer and the size are those of `set`.
    check(unsafe { libc::sched_setaffinity(tid, size_of::<libc::cpu_set_t>(), &set) }).map(drop)
}

/// Asks a process to end in order (`SIGTERM`).
pub(crate) fn terminate(pid: u32) -> io::Result<()> {
    let pid = libc::pid_t::try_from(pid).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: `kill` takes no pointers.
    check(unsafe { libc::kill(pid, libc::SIGTERM) }).map(drop)
}

/// Tells whether the caller is root (of its user namespace).
pub(crate) fn is_root() -> bool {
    // SAFETY: `geteuid` cannot fail and takes no arguments.
    unsafe { libc::geteuid() == 0 }
}
