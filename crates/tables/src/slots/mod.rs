//! A concurrent map of fixed size (LF-3): slots in buckets of one cache line, two buckets a key, one
//! 64-bit word a slot that holds generation, state and tag and is changed by compare-and-swap only.
//!
//! # Protocol
//! An insert claims a free slot, writes the record, publishes it as *tentative*, and then settles it: a scan
//! of both buckets, begun after the record was seen tentative, that finds no live record of the key and no
//! tentative one in a lower slot, and aborts those in higher slots, makes it live. Whoever meets a
//! tentative record settles it, so nobody waits for anybody; an insert that lost has seen (or made) the
//! winner live. A removal swaps live for dead, and exactly one wins. A dead slot is freed, with the next
//! generation, when every worker has reported a quiescent state since.
//!
//! Lookups write nothing: they load the word, read the record, and load the word again; an equal word, whose
//! generation tells reuse, means that what they read was one record. `docs/aba.md` says why this answers
//! LF-7, and `tests/loom_slots.rs` has the variant without generations, which fails.

#[expect(unsafe_code, reason = "a cache line of atomics is plain memory")]
mod map;
mod word;
mod worker;

pub(crate) use map::{Claim, Settled, VALUE_WORDS_MAX};
pub use map::{InsertError, Leaks, SlotKey, SlotLine, SlotMap, SlotMemory, SlotRef, SlotRepairs};
pub use worker::SlotWorker;
