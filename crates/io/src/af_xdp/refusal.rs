//! What the kernel's refusals mean, and what to do about them.

use std::io;

use crate::bpf::{AttachMode, BpfError};

/// Says why a program could not be attached.
pub(super) fn attach(mode: AttachMode, error: &BpfError) -> String {
    let meaning = match (mode, error.errno()) {
        (AttachMode::Native, Some(libc::EOPNOTSUPP)) => {
            "EOPNOTSUPP: the driver cannot run XDP programs"
        }
        (AttachMode::Native, Some(libc::ERANGE | libc::EINVAL)) => {
            "the MTU is too large for native XDP, which has one page a packet \
             (set an MTU of 1500; most drivers take up to about 3500)"
        }
        (AttachMode::Native, Some(libc::ENOSPC)) => {
            "ENOSPC: the peer of this veth sends on more queues than this side receives on \
             (`ethtool -L` sets both)"
        }
        (_, Some(libc::ENODEV)) => "ENODEV: the interface is gone",
        _ => return format!("attach: {error}"),
    };
    format!("attach: {meaning}")
}

/// Says why a socket could not be made or bound.
pub(super) fn bind(zero_copy: bool, queue: u32, step: &str, error: &io::Error) -> String {
    let meaning = match (step, error.raw_os_error()) {
        ("bind", Some(libc::EOPNOTSUPP)) if zero_copy => {
            "EOPNOTSUPP: the driver has no zero-copy AF_XDP"
        }
        ("bind", Some(libc::EINVAL)) if zero_copy => {
            "EINVAL: the driver refuses zero-copy for this queue or frame size"
        }
        ("bind", Some(libc::EBUSY)) => {
            "EBUSY: the queue belongs to another AF_XDP socket (stop the process that holds it)"
        }
        ("bind", Some(libc::ENETDOWN)) => "ENETDOWN: the interface is down",
        ("bind", Some(libc::EINVAL)) => "EINVAL: the interface has no such queue",
        ("umem registration", Some(libc::ENOBUFS | libc::ENOMEM)) => {
            "the limit of locked memory is too small for the frames (raise `ulimit -l`, or run as root)"
        }
        ("umem registration", Some(libc::EINVAL)) => {
            "EINVAL: the kernel refuses this frame size (2048 or 4096 bytes work everywhere)"
        }
        ("socket", Some(libc::EAFNOSUPPORT)) => {
            "EAFNOSUPPORT: this kernel has no AF_XDP (it needs CONFIG_XDP_SOCKETS)"
        }
        ("socket", Some(libc::EPERM)) => "EPERM: needs root, or CAP_NET_RAW",
        _ => return format!("queue {queue}: {step}: {error}"),
    };
    format!("queue {queue}: {step}: {meaning}")
}

/// Says why busy polling is off.
pub(super) fn busy_poll(queue: u32) -> String {
    format!(
        "busy poll: queue {queue} has no NAPI id (the kernel knows it for zero-copy drivers only), \
         so it would have no effect"
    )
}

/// Says what generic mode on a virtual link cannot take.
pub(super) fn super_frames() -> String {
    "segments larger than the MTU: generic mode gets them from the peer's kernel whole and they do not fit \
     a frame (`ethtool -K` with `tso off gso off` on the peer)"
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_refusals_have_a_meaning_and_others_keep_the_kernels() {
        let error = |errno| io::Error::from_raw_os_error(errno);
        assert!(bind(true, 0, "bind", &error(libc::EOPNOTSUPP)).contains("no zero-copy"));
        assert!(bind(false, 3, "bind", &error(libc::EBUSY)).contains("queue 3"));
        let other = bind(false, 1, "ring", &error(libc::ENOMEM));
        assert!(
            other.contains("queue 1: ring: ") && other.contains("12"),
            "{other}"
        );
        let native = BpfError::Call {
            command: "link create",
            source: error(libc::ERANGE),
        };
        assert!(attach(AttachMode::Native, &native).contains("MTU"));
    }
}
