//! The link-layer API for applications (IO-7): a port of one's own, raw frames in and out, ten lines.
//!
//! The port has a pool of its own and one queue, and sleeps when there is nothing to receive. Who needs
//! bursts, several workers or frames without a copy uses [`crate::port::open`] and [`crate::Queue`].
//!
//! ```no_run
//! use std::time::Duration;
//!
//! let mut port = io::raw::RawPort::open("eth0")?;
//! port.send(b"\xff\xff\xff\xff\xff\xff\x02\0\0\0\0\x01\x88\xb5 hello, everybody on this link")?;
//! while let Some(frame) = port.receive(Duration::from_secs(1)) {
//!     println!("{} bytes from {:02x?}", frame.len(), &frame[6..12]);
//! }
//! # Ok::<(), io::raw::RawError>(())
//! ```

use std::time::{Duration, Instant};

use crate::af_packet::AfPacketSpec;
use crate::batch::Batch;
use crate::frame::Frame;
use crate::ids::PortId;
use crate::interface::MacAddress;
use crate::pool::{HugePages, Pool, RegionError};
use crate::port::{self, DriverSpec, OpenError, OpenPort, PortSpec};
use crate::queue::{Arm, QueueStats};
use crate::wait::PollSet;

/// Frames that the port owns.
const FRAMES: u32 = 1024;

/// The longest nap where the driver cannot wake a sleeper.
const NAP: Duration = Duration::from_micros(100);

/// Why a raw port does not work.
#[derive(Debug, thiserror::Error)]
pub enum RawError {
    /// It could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// There is no memory for its frames.
    #[error(transparent)]
    Memory(#[from] RegionError),
    /// The frame is longer than the port can send.
    #[error("a frame of {bytes} bytes is longer than the {max_bytes} that the port can send")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The most that the port sends.
        max_bytes: usize,
    },
    /// The driver is full; receive, or wait a moment, and send again.
    #[error("the transmit ring is full")]
    Full,
}

/// An open port of one application thread.
#[derive(Debug)]
pub struct RawPort {
    port: OpenPort,
    pool: Pool,
    /// Received and not yet asked for.
    received: Batch,
    /// What the last call of `receive` returned.
    lent: Option<Frame>,
    sending: Batch,
    sleep: PollSet,
}

impl RawPort {
    /// Opens an interface of this network namespace with AF_PACKET: the kernel's own stack sees received
    /// frames, too.
    ///
    /// # Errors
    /// There is no such interface, or the user may not (needs `CAP_NET_RAW`; `unshare -Urn` gives it).
    pub fn open(interface: &str) -> Result<Self, RawError> {
        Self::with_driver(
            interface,
            DriverSpec::AfPacket(AfPacketSpec::new(interface)),
        )
    }

    /// Opens a port with any driver; `name` is for messages.
    ///
    /// # Errors
    /// What the driver refuses.
    pub fn with_driver(name: &str, driver: DriverSpec) -> Result<Self, RawError> {
        let pool = Pool::new(FRAMES, 2048, HugePages::Auto)?;
        let spec = PortSpec::new(PortId(0), name, driver);
        let port = port::open(&spec, pool.region(), 1)?;
        Ok(Self {
            port,
            pool,
            received: Batch::new(),
            lent: None,
            sending: Batch::new(),
            sleep: PollSet::with_capacity(1),
        })
    }

    /// Returns the port's MAC address.
    pub fn mac(&self) -> MacAddress {
        self.port.mac
    }

    /// Returns the largest packet that can be sent, bytes, without the Ethernet header.
    pub fn mtu(&self) -> u16 {
        self.port.mtu
    }

    /// Returns what was found when the port was opened: driver, mode, link.
    pub fn port(&self) -> &OpenPort {
        &self.port
    }

    /// Returns the counters.
    pub fn stats(&self) -> QueueStats {
        self.port
            .queues
            .first()
            .map_or_else(QueueStats::default, |queue| queue.stats())
    }

    /// Sends one frame, from the destination address to the end of the payload, without FCS.
    ///
    /// # Errors
    /// The frame is too long, or the driver cannot take it now.
    pub fn send(&mut self, frame: &[u8]) -> Result<(), RawError> {
        let max_bytes = usize::from(self.port.mtu) + 22;
        let too_long = RawError::TooLong {
            bytes: frame.len(),
            max_bytes,
        };
        if frame.len() > max_bytes {
            return Err(too_long);
        }
        let Some(queue) = self.port.queues.first_mut() else {
            return Err(RawError::Full);
        };
        let mut copy = self.pool.alloc().ok_or(RawError::Full)?;
        if !copy.fill(frame) {
            self.pool.free(copy);
            return Err(too_long);
        }
        if let Err(copy) = self.sending.push(copy) {
            self.pool.free(copy);
            return Err(RawError::Full);
        }
        queue.tx(&mut self.pool, &mut self.sending);
        if self.sending.is_empty() {
            return Ok(());
        }
        self.pool.free_batch(&mut self.sending);
        Err(RawError::Full)
    }

    /// Returns the next received frame, waiting for one for at most `timeout`; `None` if none came. The
    /// bytes are the caller's until the next call.
    pub fn receive(&mut self, timeout: Duration) -> Option<&mut [u8]> {
        if let Some(frame) = self.lent.take() {
            self.pool.free(frame);
        }
        let deadline = Instant::now().checked_add(timeout);
        while self.received.is_empty() {
            let queue = self.port.queues.first_mut()?;
            if queue.rx(&mut self.pool, &mut self.received) > 0 {
                break;
            }
            // A time that the clock cannot hold is for ever.
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return None;
            }
            self.sleep.clear();
            match queue.arm() {
                Arm::Ready => {}
                Arm::Armed(fd) => {
                    self.sleep.add(fd);
                    self.sleep.wait(left);
                }
                Arm::Unsupported => std::thread::sleep(left.map_or(NAP, |left| left.min(NAP))),
            }
            queue.disarm();
        }
        self.lent = self.received.drain_front(1).next();
        self.lent.as_mut().map(Frame::data_mut)
    }
}

impl Drop for RawPort {
    fn drop(&mut self) {
        if let Some(frame) = self.lent.take() {
            self.pool.free(frame);
        }
        self.pool.free_batch(&mut self.received);
        for queue in &mut self.port.queues {
            // What the kernel cannot give back keeps its memory: the pool sees to it.
            queue.close(&mut self.pool);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem;

    #[test]
    fn frames_go_and_come_through_any_driver() {
        let (left, right) = mem::link(mem::LinkSpec {
            depth: 4,
            ..mem::LinkSpec::default()
        });
        let mut a = RawPort::with_driver("a", DriverSpec::Mem(left)).unwrap();
        let mut b = RawPort::with_driver("b", DriverSpec::Mem(right)).unwrap();
        assert_ne!(a.mac(), b.mac());
        assert_eq!(b.receive(Duration::ZERO), None);
        for i in 0..4 {
            a.send(&[i; 60]).unwrap();
        }
        assert!(matches!(a.send(&[9; 60]), Err(RawError::Full)));
        for i in 0..4 {
            let frame = b.receive(Duration::from_secs(1));
            assert_eq!(frame, Some(&mut [i; 60][..]));
        }
        let start = Instant::now();
        assert_eq!(b.receive(Duration::from_millis(20)), None);
        assert!(start.elapsed() >= Duration::from_millis(20));
        assert!(matches!(
            a.send(&[0; 1523]),
            Err(RawError::TooLong {
                max_bytes: 1522,
                ..
            })
        ));
        assert_eq!((a.stats().tx_pkts, b.stats().rx_pkts), (4, 4));
    }

    #[test]
    fn an_interface_that_is_not_there_is_named() {
        let error = RawPort::open("tg-no-such").unwrap_err();
        assert!(error.to_string().contains("tg-no-such"), "{error}");
    }
}
