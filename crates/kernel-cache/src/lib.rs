#![doc = include_str!("../README.md")]

mod buffer;
mod cache;
mod kernel;
#[expect(
    unsafe_code,
    reason = "maps memory that the kernel's program reads too, and views it as the shared types"
)]
mod memory;
mod mirror;
mod object;
mod outcome;
pub mod shared;

pub use buffer::Buffer;
pub use cache::{Cache, Refusal, Stored};
pub use kernel::{AttachError, Hook, KernelCache, LoadError, Port};
pub use memory::{Arrays, Sizes, monotonic_ns};
pub use mirror::{Mirror, MirrorCounts, Promoted, Watch};
pub use object::ObjectError;
pub use shared::answer::{OUTCOMES, Outcome};
