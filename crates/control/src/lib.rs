#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod address;
pub mod api;
pub mod config;
pub mod socket;

pub use address::{InterfaceAddress, Mac, Prefix};
pub use config::Config;
