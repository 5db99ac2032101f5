//! Rules before and after they are in force: explanations, differences, trials, and putting them in force.

pub(crate) mod diff;
pub(crate) mod explain;
pub(crate) mod live;
mod node;
mod packet;
mod text;
pub(crate) mod trial;
