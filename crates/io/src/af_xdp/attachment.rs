//! The redirect program on an interface, and what else a port holds of it.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::AfXdpSpec;
use super::attached::attached_xdp;
use super::redirect::{Redirects, Row};
use super::refusal;
use super::socket::{Socket, retry_busy};
use crate::bpf::{self, AttachMode, BpfError};
use crate::ethtool::{Channels, Ethtool};
use crate::interface::Interface;

/// Holds the program with its row of sockets, promiscuous mode and the number of queues. Dropping it, or the
/// end of the process, detaches the program and ends promiscuous mode; only the number of queues needs
/// the drop.
#[derive(Debug)]
pub(super) struct Attachment {
    /// Before the rest: packets must stop coming first.
    _link: bpf::Link,
    /// The redirect program's place behind another one.
    _behind: Option<bpf::FrontEntry>,
    row: Row,
    promiscuous: Option<OwnedFd>,
    channels: Option<ReducedChannels>,
}

impl Attachment {
    /// Finds or loads the redirect program for `queues` queues and attaches it.
    ///
    /// An error says what was refused and why, for people.
    pub(super) fn new(
        redirects: &Redirects,
        interface: &Interface,
        mode: AttachMode,
        queues: u32,
        spec: &AfXdpSpec,
    ) -> Result<Self, String> {
        let ifindex = interface.index;
        let row = redirects
            .row(ifindex, queues, &spec.filter)
            .map_err(|error| error.to_string())?;
        let behind = match &spec.front {
            Some(front) => Some(front.before(row.program()).map_err(|e| e.to_string())?),
            None => None,
        };
        let program = match &spec.front {
            Some(front) => &front.program,
            None => row.program(),
        };
        // A program of a process that has just died may still be there for a moment.
        let link = retry_busy(&[libc::EBUSY, libc::EEXIST], || {
            program.attach_xdp(ifindex, mode)
        })
        .map_err(|error| explain(&spec.interface, ifindex, mode, &error))?;
        Ok(Self {
            _link: link,
            _behind: behind,
            row,
            promiscuous: None,
            channels: None,
        })
    }

    /// Makes the interface take frames for all addresses, as long as this lives.
    pub(super) fn hold_promiscuous(&mut self, ifindex: u32) -> io::Result<()> {
        self.promiscuous = Some(promiscuous(ifindex)?);
        Ok(())
    }

    /// Restores the number of queues when this is dropped.
    pub(super) fn hold_channels(&mut self, reduced: Option<ReducedChannels>) {
        self.channels = reduced;
    }

    /// Detaches the program and returns the hold on the number of queues.
    pub(super) fn into_channels(self) -> Option<ReducedChannels> {
        self.channels
    }

    /// Sends the packets of a queue to a socket.
    pub(super) fn insert(&self, queue: u32, socket: &Socket) -> Result<(), BpfError> {
        self.row.insert(queue, socket)
    }

    /// Sends the packets of a queue to the kernel's stack again.
    pub(super) fn remove(&self, queue: u32) {
        self.row.remove(queue);
    }
}

/// Says why a program was not attached, and names the one that is there.
fn explain(interface: &str, ifindex: u32, mode: AttachMode, error: &BpfError) -> String {
    if let (Some(libc::EBUSY | libc::EEXIST), Ok(Some(attached))) =
        (error.errno(), attached_xdp(ifindex))
    {
        let id = attached.program_id;
        let name = bpf::sys::program_name(id).unwrap_or_else(|_| "of unknown name".into());
        let by_link = bpf::sys::is_link_attached(ifindex, id).unwrap_or(false);
        let remedy = if by_link {
            "stop the process that holds it".to_owned()
        } else {
            format!("`ip link set dev {interface} xdp off` removes it")
        };
        return format!("another XDP program is attached: {name}, id {id} ({remedy})");
    }
    refusal::attach(mode, error)
}

/// Adds a membership for all addresses; it ends with the returned socket.
fn promiscuous(ifindex: u32) -> io::Result<OwnedFd> {
    // SAFETY: makes a new socket; no memory is passed. Protocol 0: it receives nothing.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and nobody else's.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let membership = libc::packet_mreq {
        mr_ifindex: ifindex as i32,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    // SAFETY: passes an initialised block of the option's type, with its size.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_ADD_MEMBERSHIP,
            core::ptr::from_ref(&membership).cast(),
            size_of::<libc::packet_mreq>() as libc::socklen_t,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(socket)
}

/// An interface whose receive queues were cut down to those that the node serves.
#[derive(Debug)]
pub(super) struct ReducedChannels {
    ethtool: Ethtool,
    before: Channels,
}

impl ReducedChannels {
    /// Cuts down the number of receive queues: a packet on a queue without a socket would go to the
    /// kernel.
    pub(super) fn new(ethtool: Ethtool, before: Channels, queues: u32) -> io::Result<Self> {
        let mut after = before;
        if before.combined > 0 {
            after.combined = queues;
            after.rx = 0;
        } else {
            after.rx = queues;
        }
        ethtool.set_channels(&after)?;
        Ok(Self { ethtool, before })
    }
}

impl Drop for ReducedChannels {
    fn drop(&mut self) {
        // The interface may be gone.
        let _ = self.ethtool.set_channels(&self.before);
    }
}
