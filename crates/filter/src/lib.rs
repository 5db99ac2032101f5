#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(any(test, feature = "lang"))]
extern crate std;

pub mod alg;
pub mod guard;
#[cfg(feature = "lang")]
pub mod json;
#[cfg(feature = "lang")]
pub mod lang;
pub mod nat;
pub mod packet;
pub mod pipeline;
pub mod rehearsal;
pub mod rules;
#[cfg(test)]
mod testing;
pub mod track;
pub mod verdict;
