//! Integration tests of the forwarder, in one program.

mod forwarding;
mod scopes;
mod strategies;
mod support;
mod workers;
