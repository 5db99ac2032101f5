#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod alg;
pub mod nat;
pub mod packet;
pub mod pipeline;
#[cfg(test)]
mod testing;
pub mod track;
pub mod verdict;
