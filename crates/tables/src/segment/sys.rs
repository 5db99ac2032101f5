//! System calls that `std` does not have.

use super::{HUGE_PAGE_BYTES, PAGE_BYTES};
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Makes a file without a name in `directory`, for this user alone. It goes with its last descriptor unless
/// it is given a name.
pub(super) fn unnamed_file(directory: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .mode(0o600)
        .custom_flags(libc::O_TMPFILE)
        .open(directory)
}

/// Gives an unnamed file its name, unless the name is taken: in one step, so that a process killed at any
/// moment leaves the whole file or none.
pub(super) fn link(file: &File, path: &Path) -> io::Result<()> {
    let from = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let to = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: both names are C strings that outlive the call.
    let result = unsafe {
        libc::linkat(
            libc::AT_FDCWD,
            from.as_ptr(),
            libc::AT_FDCWD,
            to.as_ptr(),
            libc::AT_SYMLINK_FOLLOW,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The user that this process acts for.
pub(super) fn user() -> u32 {
    // SAFETY: asks for a number.
    unsafe { libc::geteuid() }
}

/// Gives a file its size, and its memory now: a full filesystem is an error here, not a signal at the first
/// use of a page. Huge pages are taken when the file is mapped.
pub(super) fn allocate(file: &File, size: usize, huge: bool) -> io::Result<()> {
    file.set_len(size as u64)?;
    if huge {
        return Ok(());
    }
    let size = libc::off_t::try_from(size).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the descriptor is open.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, size) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

fn statfs(file: &File) -> io::Result<libc::statfs> {
    let mut stats = core::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the descriptor is open and `stats` has room for the answer.
    let result = unsafe { libc::fstatfs(file.as_raw_fd(), stats.as_mut_ptr()) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, hence filled `stats`.
    Ok(unsafe { stats.assume_init() })
}

/// Page size of the file's filesystem: 2 MiB or more in hugetlbfs.
pub(super) fn page_bytes(file: &File) -> io::Result<usize> {
    let stats = statfs(file)?;
    let is_huge = stats.f_type == libc::HUGETLBFS_MAGIC;
    Ok(if is_huge {
        usize::try_from(stats.f_bsize).unwrap_or(HUGE_PAGE_BYTES)
    } else {
        PAGE_BYTES
    })
}

/// Makes a memory file, in huge pages of the default size if `huge`.
pub(super) fn memfd_create(name: &str, huge: bool) -> io::Result<File> {
    let name = CString::new(name)?;
    let flags = libc::MFD_CLOEXEC | if huge { libc::MFD_HUGETLB } else { 0 };
    // SAFETY: the name is a C string that outlives the call.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call gave a new descriptor that nobody else has.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    Ok(fd.into())
}

/// Takes, or asks about, the owner's lock: a write lock on the first byte, tied to the open file.
pub(super) fn lock_call(file: &File, command: i32) -> io::Result<libc::flock> {
    let mut lock = libc::flock {
        l_type: libc::F_WRLCK as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: 0,
        l_len: 1,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open and `lock` is valid for the call to read and write.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(lock)
}
