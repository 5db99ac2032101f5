//! The idle policies in virtual time.

mod evaluation;
mod hybrid;
mod virtual_core;
