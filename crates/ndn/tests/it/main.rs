//! Integration tests of the forwarder, in one program.

mod conformance;
mod forwarding;
mod link;
mod management;
mod scopes;
mod shared_store;
mod simulation;
mod strategies;
mod support;
mod workers;
