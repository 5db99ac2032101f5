//! Anonymous network namespaces: nothing is named, so nothing is left behind, whatever happens.
//!
//! A [`Namespace`] is a file descriptor. The kernel destroys the namespace, with its veth pairs,
//! addresses and routes, when the last descriptor and the last process in it are gone: also after
//! `kill -9`. Child processes made by [`Namespace::command`] are killed with the thread that spawned
//! them.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::process::Command;
use std::thread;

use io::ethtool::{Ethtool, Offload};

use crate::links::{self, Links};
use crate::sys;

/// What the kernel refused.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what}{}{name}{}", if name.is_empty() { "" } else { " " }, remedy(source))]
pub struct NetnsError {
    what: &'static str,
    name: String,
    /// The kernel's answer.
    pub source: std::io::Error,
}

impl NetnsError {
    pub(crate) fn new(what: &'static str, name: &str, source: std::io::Error) -> Self {
        Self {
            what,
            name: name.to_owned(),
            source,
        }
    }
}

fn remedy(source: &std::io::Error) -> &'static str {
    match source.kind() {
        std::io::ErrorKind::PermissionDenied => " (run as root, or inside a user namespace)",
        _ => "",
    }
}

/// A network namespace, held open by a file descriptor.
#[derive(Debug)]
pub struct Namespace {
    label: String,
    fd: OwnedFd,
}

impl Namespace {
    /// Makes an empty namespace with its loopback up. `label` is for messages only.
    ///
    /// # Errors
    /// The caller may not make namespaces.
    pub fn new(label: &str) -> Result<Self, NetnsError> {
        let fd = in_thread(|| {
            sys::unshare(libc::CLONE_NEWNET)?;
            current_fd()
        })
        .map_err(|source| NetnsError::new("make the network namespace", label, source))?;
        let namespace = Self {
            label: label.to_owned(),
            fd,
        };
        namespace.links()?.set_up("lo")?;
        Ok(namespace)
    }

    /// Returns the namespace of the calling thread.
    ///
    /// # Errors
    /// `/proc` is not mounted.
    pub fn current() -> Result<Self, NetnsError> {
        let fd = current_fd()
            .map_err(|source| NetnsError::new("open the network namespace", "current", source))?;
        Ok(Self {
            label: "current".into(),
            fd,
        })
    }

    /// Returns the label given at the start.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Returns the descriptor that holds the namespace.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Opens the namespace's devices for configuration.
    ///
    /// # Errors
    /// As [`Namespace::run`]; or no netlink socket.
    pub fn links(&self) -> Result<Links, NetnsError> {
        self.run(Links::open)?
    }

    /// Moves the calling thread into the namespace, for good. Use it at the start of a thread.
    ///
    /// # Errors
    /// The caller may not enter.
    pub fn enter(&self) -> Result<(), NetnsError> {
        sys::enter_network_namespace(self.fd())
            .map_err(|source| NetnsError::new("enter the network namespace", &self.label, source))
    }

    /// Runs `f` in a thread inside the namespace and returns its result. Sockets that it opens stay
    /// in the namespace and can be used from any thread.
    ///
    /// # Errors
    /// The caller may not enter.
    ///
    /// # Panics
    /// If `f` does.
    pub fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> Result<T, NetnsError> {
        in_thread(|| {
            self.enter()?;
            Ok(f())
        })
    }

    /// Makes a command that starts `program` inside the namespace, with a `/sys` that shows the
    /// namespace's devices. The process is killed when the thread that spawned it ends, so spawn it
    /// from a thread that lives long enough.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        sys::start_in_network_namespace(&mut command, self.fd.as_raw_fd());
        command
    }

    /// Writes a sysctl of the namespace, e.g. `net/ipv4/ip_forward`.
    ///
    /// # Errors
    /// The sysctl does not exist or the caller may not write it.
    pub fn set_sysctl(&self, name: &str, value: &str) -> Result<(), NetnsError> {
        self.run(|| std::fs::write(format!("/proc/sys/{name}"), value))?
            .map_err(|source| NetnsError::new("write the sysctl", name, source))
    }

    /// Stops the kernel from sending IPv6 frames of its own accord (router solicitations, multicast
    /// reports) in the namespace: a test then sees only frames that it sent. Call it before devices
    /// are made.
    ///
    /// # Errors
    /// As [`Namespace::set_sysctl`].
    pub fn disable_ipv6(&self) -> Result<(), NetnsError> {
        self.set_sysctl("net/ipv6/conf/all/disable_ipv6", "1")?;
        self.set_sysctl("net/ipv6/conf/default/disable_ipv6", "1")
    }

    /// Turns an offload of a device on or off.
    ///
    /// # Errors
    /// No such device, or it does not let the offload be changed.
    pub fn set_offload(&self, device: &str, offload: Offload, on: bool) -> Result<(), NetnsError> {
        self.run(|| Ethtool::open(device)?.set_offload(offload, on))?
            .map_err(|source| NetnsError::new("change an offload of", device, source))
    }

    /// Turns off the offloads by which kernel programs hand over packets with unfinished checksums or
    /// longer than the MTU; a packet driver at the other end of a veth pair wants this.
    ///
    /// # Errors
    /// As [`Namespace::set_offload`].
    pub fn disable_send_offloads(&self, device: &str) -> Result<(), NetnsError> {
        self.run(|| Ethtool::open(device)?.disable_offloads())?
            .map_err(|source| NetnsError::new("turn off the offloads of", device, source))
    }

    /// Lets a device receive in kernel threads of its own (threaded NAPI) rather than in the sender's
    /// context, and pins them to `cpu`; returns their ids. On a veth device this turns GRO on, without
    /// which it has no NAPI; the device must be up. This is how the cost of receiving is charged to
    /// the core of who receives.
    ///
    /// # Errors
    /// No such device, or a kernel without threaded NAPI (before 5.12) or without a way to tell the
    /// threads (before 6.8).
    pub fn receive_on_cpu(&self, device: &str, cpu: usize) -> Result<Vec<i32>, NetnsError> {
        self.set_offload(device, Offload::GenericReceive, true)?;
        let index = self.links()?.get(device)?.index;
        let threads = self
            .run(|| {
                sys::mount_private_sysfs()?;
                std::fs::write(format!("/sys/class/net/{device}/threaded"), "1")?;
                let threads = links::napi_threads(index)?;
                for &thread in &threads {
                    sys::pin_thread(thread, cpu)?;
                }
                Ok(threads)
            })?
            .map_err(|source| NetnsError::new("move the receiving of", device, source))?;
        if threads.is_empty() {
            return Err(NetnsError::new(
                "find the receiving threads of",
                device,
                std::io::ErrorKind::NotFound.into(),
            ));
        }
        Ok(threads)
    }
}

/// Moves the calling process into a user namespace in which it is root, and a network namespace that
/// belongs to it; then [`Namespace::new`] works for an ordinary user. Call it first in `main`: the
/// process must still have one thread.
///
/// # Errors
/// The process has several threads, or the kernel does not let users make user namespaces.
pub fn become_root_in_user_namespace() -> Result<(), NetnsError> {
    sys::become_root_in_user_namespace()
        .map_err(|source| NetnsError::new("make a user namespace", "", source))
}

/// Makes `command` start as root of a new user namespace and inside a new network namespace: for a
/// process that has threads already and wants to run itself again.
pub fn start_in_user_namespace(command: &mut Command) {
    sys::start_in_user_namespace(command);
}

/// Tells whether the caller can make namespaces: it is root, of the machine or of a user namespace.
pub fn is_root() -> bool {
    sys::is_root()
}

fn current_fd() -> std::io::Result<OwnedFd> {
    File::open("/proc/thread-self/ns/net").map(OwnedFd::from)
}

/// Runs `f` in a thread of its own, whose namespaces may then differ from the caller's.
fn in_thread<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| match scope.spawn(f).join() {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}
