//! The commands that ask a running node, a file or the machine.

pub(crate) mod bench;
pub(crate) mod capture;
pub(crate) mod check;
pub(crate) mod doctor;
pub(crate) mod generate;
pub(crate) mod list;
pub(crate) mod ndn;
pub(crate) mod reload;
pub(crate) mod rule;
pub(crate) mod session;
pub(crate) mod stats;
pub(crate) mod top;
