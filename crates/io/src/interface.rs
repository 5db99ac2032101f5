//! What the kernel knows about a network interface, and the few settings that drivers change.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A MAC address.
pub type MacAddress = [u8; 6];

/// Whether a port has a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Link {
    /// The interface is up and has a carrier.
    Up,
    /// The interface is down or has no carrier.
    Down,
    /// The driver cannot tell.
    #[default]
    Unknown,
}

/// A snapshot of an interface's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its index in this network namespace.
    pub index: u32,
    /// Its MAC address; zero for interfaces without one.
    pub mac: MacAddress,
    /// Largest packet that it sends, bytes, without the Ethernet header.
    pub mtu: u32,
    /// Administrative state and carrier.
    pub link: Link,
    /// It is the loopback interface.
    pub loopback: bool,
    /// It carries Ethernet frames (the loopback interface does, too).
    pub ethernet: bool,
}

impl Interface {
    /// Reads the settings of an interface of the current network namespace.
    ///
    /// # Errors
    /// `ENODEV` if there is none of that name, `EINVAL` if it cannot be a name.
    pub fn get(name: &str) -> io::Result<Self> {
        let socket = control_socket()?;
        let mut request = Request::new(name)?;
        request.call(&socket, libc::SIOCGIFINDEX as _)?;
        let index = request.int() as u32;
        request.call(&socket, libc::SIOCGIFFLAGS as _)?;
        let flags = libc::c_int::from(request.short());
        request.call(&socket, libc::SIOCGIFMTU as _)?;
        let mtu = u32::try_from(request.int()).unwrap_or(0);
        request.call(&socket, libc::SIOCGIFHWADDR as _)?;
        let (family, mac) = request.hardware_address();
        let running = libc::IFF_UP | libc::IFF_RUNNING;
        Ok(Self {
            name: name.to_owned(),
            index,
            mac,
            mtu,
            link: if flags & running == running {
                Link::Up
            } else {
                Link::Down
            },
            loopback: flags & libc::IFF_LOOPBACK != 0,
            ethernet: family == libc::ARPHRD_ETHER || family == libc::ARPHRD_LOOPBACK,
        })
    }

    /// Sets the interface up.
    ///
    /// # Errors
    /// The kernel's refusal, usually `EPERM` without `CAP_NET_ADMIN`.
    pub fn set_up(name: &str) -> io::Result<()> {
        let socket = control_socket()?;
        let mut request = Request::new(name)?;
        request.call(&socket, libc::SIOCGIFFLAGS as _)?;
        let flags = request.short();
        if libc::c_int::from(flags) & libc::IFF_UP != 0 {
            return Ok(());
        }
        request.set_short(flags | libc::IFF_UP as libc::c_short);
        request.call(&socket, libc::SIOCSIFFLAGS as _)
    }

    /// Sets the largest packet that the interface sends, bytes.
    ///
    /// # Errors
    /// The kernel's refusal: no privilege, or a size that the device does not allow.
    pub fn set_mtu(name: &str, mtu: u32) -> io::Result<()> {
        let socket = control_socket()?;
        let mut request = Request::new(name)?;
        request.set_int(libc::c_int::try_from(mtu).unwrap_or(libc::c_int::MAX));
        request.call(&socket, libc::SIOCSIFMTU as _)
    }

    /// Sets the MAC address.
    ///
    /// # Errors
    /// The kernel's refusal: no privilege, a group address, or a device that must be down for it.
    pub fn set_mac(name: &str, mac: MacAddress) -> io::Result<()> {
        let socket = control_socket()?;
        let mut request = Request::new(name)?;
        request.set_hardware_address(mac);
        request.call(&socket, libc::SIOCSIFHWADDR as _)
    }
}

/// Makes `tun` a queue of the TAP interface `name` (a `%d` in it becomes a number), creating it if there is
/// none, with vnet headers and the kernel's offloads; returns the name that it got.
pub(crate) fn attach_tap(tun: &File, name: &str, multi_queue: bool) -> io::Result<String> {
    const OFFLOADS: libc::c_uint = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6;
    let mut request = Request::new(name)?;
    let mut flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    if multi_queue {
        flags |= libc::IFF_MULTI_QUEUE;
    }
    request.0.ifr_ifru.ifru_flags = flags as libc::c_short;
    request.call(tun, libc::TUNSETIFF)?;
    // SAFETY: TUNSETOFFLOAD takes its argument by value.
    let result = unsafe { libc::ioctl(tun.as_raw_fd(), libc::TUNSETOFFLOAD, OFFLOADS) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(request.name())
}

/// Opens a socket to put interface requests to.
pub(crate) fn control_socket() -> io::Result<OwnedFd> {
    // SAFETY: `socket` takes no pointers.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// One `struct ifreq`.
struct Request(libc::ifreq);

impl Request {
    /// Makes a zeroed request for the interface of that name.
    fn new(name: &str) -> io::Result<Self> {
        let name = CString::new(name).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: all-zero bytes are a valid `ifreq` (integers, arrays and pointers only).
        let mut request: libc::ifreq = unsafe { core::mem::zeroed() };
        let bytes = name.as_bytes_with_nul();
        if bytes.len() < 2 || bytes.len() > request.ifr_name.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        for (to, from) in request.ifr_name.iter_mut().zip(bytes) {
            *to = *from as libc::c_char;
        }
        Ok(Self(request))
    }

    /// Puts the request to the kernel.
    fn call(&mut self, fd: &impl AsRawFd, request: libc::Ioctl) -> io::Result<()> {
        // SAFETY: every request that this crate passes reads or writes one `ifreq`, which `self.0` is.
        let result = unsafe { libc::ioctl(fd.as_raw_fd(), request, &raw mut self.0) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Returns the interface's name as the kernel completed it.
    fn name(&self) -> String {
        self.0
            .ifr_name
            .iter()
            .take_while(|c| **c != 0)
            .map(|c| char::from(*c as u8))
            .collect()
    }

    fn int(&self) -> libc::c_int {
        // SAFETY: every field of the union is plain data over the same zeroed bytes.
        unsafe { self.0.ifr_ifru.ifru_ifindex }
    }

    fn set_int(&mut self, value: libc::c_int) {
        self.0.ifr_ifru.ifru_mtu = value;
    }

    fn short(&self) -> libc::c_short {
        // SAFETY: as in `int`.
        unsafe { self.0.ifr_ifru.ifru_flags }
    }

    fn set_short(&mut self, value: libc::c_short) {
        self.0.ifr_ifru.ifru_flags = value;
    }

    fn hardware_address(&self) -> (u16, MacAddress) {
        // SAFETY: as in `int`.
        let address = unsafe { self.0.ifr_ifru.ifru_hwaddr };
        let mut mac = [0; 6];
        for (to, from) in mac.iter_mut().zip(address.sa_data) {
            *to = from as u8;
        }
        (address.sa_family, mac)
    }

    fn set_hardware_address(&mut self, mac: MacAddress) {
        // SAFETY: all-zero bytes are a valid `sockaddr`.
        let mut address: libc::sockaddr = unsafe { core::mem::zeroed() };
        address.sa_family = libc::ARPHRD_ETHER;
        for (to, from) in address.sa_data.iter_mut().zip(mac) {
            *to = from as libc::c_char;
        }
        self.0.ifr_ifru.ifru_hwaddr = address;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_known() {
        let lo = Interface::get("lo").unwrap();
        assert!(lo.loopback && lo.ethernet);
        assert_eq!((lo.index, lo.mac), (1, [0; 6]));
        assert!(lo.mtu >= 1500);
    }

    #[test]
    fn names_that_cannot_be_are_refused() {
        for name in ["", "sixteen-bytes-is", "nul\0", "tg-none-such"] {
            assert!(Interface::get(name).is_err(), "{name:?}");
        }
    }
}
