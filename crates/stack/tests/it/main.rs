//! Two hosts, a link between them that can do them harm, and time that is only a number.

#![expect(unreachable_pub, reason = "modules of one test program")]

mod basic;
mod faults;
mod host;
mod states;
mod support;
mod syn;
