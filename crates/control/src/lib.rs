//! Configuration schema, control socket and API types of Tidegate.
#![forbid(unsafe_code)]

pub mod address;
pub mod api;
pub mod config;

pub use address::{InterfaceAddress, Mac, Prefix};
pub use config::Config;
