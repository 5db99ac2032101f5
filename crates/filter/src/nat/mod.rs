//! Address and port translation.
//!
//! - [`rewrite`]: a packet's addresses and ports in place, checksums by difference (RFC 1624).
//! - [`icmp`]: ICMP errors, outside and inside (RFC 5508).
//! - [`mapping`]: endpoint-independent mappings, each with an outer port of its own (RFC 4787, RFC 5382).
//! - [`cgn`]: port blocks for subscribers, drawn or computed (RFC 6888, RFC 7422).
//! - [`nat64`], [`siit`]: between IPv6 hosts and IPv4 (RFC 6146, RFC 7915).
//! - [`nptv6`]: between IPv6 prefixes (RFC 6296).
//! - [`recovery`]: mappings that outlived their process.

pub mod cgn;
pub mod icmp;
pub mod mapping;
pub mod nat64;
pub mod nptv6;
pub mod recovery;
pub mod rewrite;
pub mod siit;
