//! What `ethtool` tells and sets: offloads, numbers of queues, the kernel driver's name; by
//! `ioctl(2)`, without the program.
//!
//! All calls act in the network namespace that the calling thread was in at [`Ethtool::open`].

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::interface::control_socket;

/// Longest interface name, bytes, without the terminator.
const NAME_MAX: usize = 15;

/// An offload that can be turned on and off (the classic `ethtool -K` names).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// `rx`: receive checksum verification.
    RxChecksum,
    /// `tx`: transmit checksums are left to the device. On virtual interfaces nobody fills them in
    /// (see [`crate::af_xdp`]).
    TxChecksum,
    /// `sg`: frames made of several pieces.
    ScatterGather,
    /// `tso`: TCP segments larger than the MTU.
    TcpSegmentation,
    /// `gso`: the same for all protocols, in software, as late as possible.
    GenericSegmentation,
    /// `gro`: received segments are merged. On veth it also makes receive processing NAPI.
    GenericReceive,
}

impl Offload {
    /// All that make a frame something else than the bytes of one packet on a wire, in the order in
    /// which they depend on each other.
    pub const ALL: [Self; 6] = [
        Self::TcpSegmentation,
        Self::GenericSegmentation,
        Self::GenericReceive,
        Self::ScatterGather,
        Self::TxChecksum,
        Self::RxChecksum,
    ];

    /// The `ETHTOOL_G*` command; the `ETHTOOL_S*` one is the next number.
    const fn get_command(self) -> u32 {
        match self {
            Self::RxChecksum => 0x14,
            Self::TxChecksum => 0x16,
            Self::ScatterGather => 0x18,
            Self::TcpSegmentation => 0x1e,
            Self::GenericSegmentation => 0x23,
            Self::GenericReceive => 0x2b,
        }
    }
}

/// Numbers of queues of an interface (`ethtool -l`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Channels {
    /// Most receive queues.
    pub max_rx: u32,
    /// Most transmit queues.
    pub max_tx: u32,
    /// Most queues that do both.
    pub max_combined: u32,
    /// Receive-only queues in use.
    pub rx: u32,
    /// Transmit-only queues in use.
    pub tx: u32,
    /// Queues in use that do both.
    pub combined: u32,
}

impl Channels {
    /// Returns how many receive queues are in use.
    pub fn rx_queues(&self) -> u32 {
        self.rx + self.combined
    }

    /// Returns how many transmit queues are in use.
    pub fn tx_queues(&self) -> u32 {
        self.tx + self.combined
    }
}

/// Asks and sets for one interface.
#[derive(Debug)]
pub struct Ethtool {
    socket: OwnedFd,
    name: [u8; NAME_MAX + 1],
}

/// `struct ifreq`: a name, and here the address of an `ethtool` block.
#[repr(C)]
struct Request {
    name: [u8; NAME_MAX + 1],
    block: usize,
    rest: [u8; 24 - size_of::<usize>()],
}

/// `struct ethtool_value`
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// `struct ethtool_channels`
#[repr(C)]
#[derive(Default)]
struct ChannelsBlock {
    command: u32,
    max_rx: u32,
    max_tx: u32,
    max_other: u32,
    max_combined: u32,
    rx_count: u32,
    tx_count: u32,
    other_count: u32,
    combined_count: u32,
}

/// `struct ethtool_drvinfo`
#[repr(C)]
struct DriverBlock {
    command: u32,
    driver: [u8; 32],
    rest: [u8; 160],
}

const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
const ETHTOOL_SCHANNELS: u32 = 0x3d;
const SIOCETHTOOL: libc::Ioctl = 0x8946;

impl Ethtool {
    /// Prepares to ask about an interface; does not check that it is there.
    ///
    /// # Errors
    /// `EINVAL` if `name` cannot be an interface's.
    pub fn open(name: &str) -> io::Result<Self> {
        if name.is_empty() || name.len() > NAME_MAX || name.contains('\0') {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let mut padded = [0; NAME_MAX + 1];
        padded[..name.len()].copy_from_slice(name.as_bytes());
        Ok(Self {
            socket: control_socket()?,
            name: padded,
        })
    }

    /// Makes a request on a block of the kernel's layout.
    fn call<T>(&self, block: &mut T) -> io::Result<()> {
        let mut request = Request {
            name: self.name,
            block: core::ptr::from_mut(block) as usize,
            rest: [0; _],
        };
        // SAFETY: `request` has the size and layout of `struct ifreq`, and the block that it points to
        // is initialised, has the layout that its command asks for, and outlives the call.
        let result = unsafe {
            libc::ioctl(
                self.socket.as_raw_fd(),
                SIOCETHTOOL,
                core::ptr::from_mut(&mut request),
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Returns the name of the kernel driver, e.g. `veth`.
    ///
    /// # Errors
    /// The kernel's answer: `ENODEV` without such an interface, `EOPNOTSUPP` if it has no name.
    pub fn driver(&self) -> io::Result<String> {
        let mut block = DriverBlock {
            command: ETHTOOL_GDRVINFO,
            driver: [0; 32],
            rest: [0; 160],
        };
        self.call(&mut block)?;
        let name = CStr::from_bytes_until_nul(&block.driver).unwrap_or_default();
        Ok(name.to_string_lossy().into_owned())
    }

    /// Tells whether an offload is on.
    ///
    /// # Errors
    /// The kernel's answer.
    pub fn offload(&self, offload: Offload) -> io::Result<bool> {
        let mut block = Value {
            command: offload.get_command(),
            data: 0,
        };
        self.call(&mut block)?;
        Ok(block.data != 0)
    }

    /// Turns an offload on or off.
    ///
    /// # Errors
    /// The kernel's answer: `EOPNOTSUPP` if it cannot be changed.
    pub fn set_offload(&self, offload: Offload, on: bool) -> io::Result<()> {
        let mut block = Value {
            command: offload.get_command() + 1,
            data: u32::from(on),
        };
        self.call(&mut block)
    }

    /// Turns off every offload that makes a frame something else than one finished packet: no
    /// unfilled checksums, no super-frames. Use it on the kernel's side of a virtual link whose other
    /// side is a port of the node. Offloads that are fixed are left alone.
    ///
    /// # Errors
    /// The kernel's answer, if transmit checksums or segmentation stay on.
    pub fn disable_offloads(&self) -> io::Result<()> {
        for offload in Offload::ALL {
            let must = matches!(
                offload,
                Offload::TxChecksum | Offload::TcpSegmentation | Offload::GenericSegmentation
            );
            match self.set_offload(offload, false) {
                Ok(()) => {}
                Err(error) if must && self.offload(offload)? => return Err(error),
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Returns the numbers of queues; one for both directions if the driver does not say.
    ///
    /// # Errors
    /// The kernel's answer.
    pub fn channels(&self) -> io::Result<Channels> {
        match self.read_channels() {
            Ok(block) => Ok(Channels {
                max_rx: block.max_rx,
                max_tx: block.max_tx,
                max_combined: block.max_combined,
                rx: block.rx_count,
                tx: block.tx_count,
                combined: block.combined_count,
            }),
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(Channels {
                max_combined: 1,
                combined: 1,
                ..Channels::default()
            }),
            Err(error) => Err(error),
        }
    }

    fn read_channels(&self) -> io::Result<ChannelsBlock> {
        let mut block = ChannelsBlock {
            command: ETHTOOL_GCHANNELS,
            ..ChannelsBlock::default()
        };
        self.call(&mut block)?;
        Ok(block)
    }

    /// Sets the numbers of queues in use; the maxima in `channels` are ignored.
    ///
    /// # Errors
    /// The kernel's answer: `EINVAL` above the maxima, `EOPNOTSUPP` if they cannot be changed.
    pub fn set_channels(&self, channels: &Channels) -> io::Result<()> {
        let mut block = self.read_channels()?;
        block.command = ETHTOOL_SCHANNELS;
        block.rx_count = channels.rx;
        block.tx_count = channels.tx;
        block.combined_count = channels.combined;
        self.call(&mut block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_one_queue() {
        let channels = Ethtool::open("lo").unwrap().channels().unwrap();
        assert_eq!((channels.rx_queues(), channels.tx_queues()), (1, 1));
    }

    #[test]
    fn what_is_not_there_is_an_error() {
        let error = Ethtool::open("tg-none").unwrap().driver().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
        for name in ["", "name-of-16-bytes", "a\0b"] {
            assert!(Ethtool::open(name).is_err(), "{name:?}");
        }
    }
}
