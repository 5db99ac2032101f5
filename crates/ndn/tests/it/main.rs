//! Integration tests of the forwarder, in one program.

mod forwarding;
mod link;
mod management;
mod scopes;
mod strategies;
mod support;
mod workers;
