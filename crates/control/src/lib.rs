#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod address;
pub mod api;
pub mod config;
pub mod socket;

pub use config::Config;
