//! Configuration schema, control socket and API types of Tidegate.
#![forbid(unsafe_code)]

pub mod api;
pub mod config;

pub use config::Config;
