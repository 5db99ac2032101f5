#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod area;
mod attachment;
mod code;
mod core;
mod futex;
mod host;
mod node;
pub mod service;
mod tcp;
pub mod tokio;
mod udp;

pub use ::io::port::DriverSpec;
pub use ::io::raw;
pub use graph::Mode;
pub use host::{Host, HostBuilder, HostError};
pub use stack::{Algorithm, Modules, TcpConfig};
pub use tcp::{TcpListener, TcpStream};
pub use udp::UdpSocket;
pub use wire::MacAddr;
