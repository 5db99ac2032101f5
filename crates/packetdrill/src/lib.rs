#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod assertion;
mod calls;
mod error;
mod flow;
mod frame;
mod machine;
mod parse;
mod settings;
mod syntax;

pub use error::Error;
pub use machine::run;
pub use parse::parse;
pub use syntax::{Action, Body, Call, Ecn, Event, Opt, Packet, Script, Segment, Value, When};

/// Reads and runs a script; what the stack sends after its last line is an error.
///
/// # Errors
/// What is wrong with the script, or the first thing that does not go as it says.
pub fn check(text: &str) -> Result<(), Error> {
    run(&parse(text)?, true)
}
