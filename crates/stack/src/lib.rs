#![doc = include_str!("../README.md")]
#![cfg_attr(not(any(feature = "std", test)), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod config;
mod error;
mod event;
mod handle;
mod host;
mod rx;
mod sink;
mod stack;
mod tcp;
mod tcp_api;
mod tcp_path;
mod tcp_rx;
mod udp;

pub use config::{Algorithm, FlowOwner, Limits, Modules, StackConfig, TcpConfig};
pub use error::Error;
pub use event::{Event, Ready};
pub use handle::{ListenerHandle, TcpHandle, UdpHandle};
pub use host::address::{Address, AddressState, Route};
pub use host::dhcp::Lease;
pub use sink::{FrameList, TxSink};
pub use stack::{Stack, Usage};
pub use tcp::congestion::{Ack, CongestionControl};
pub use tcp::state::State;
pub use tcp::stats::TcpStats;
pub use tcp_api::{Shutdown, TcpInfo, TcpOption};
pub use udp::{Datagram, UdpOption};
