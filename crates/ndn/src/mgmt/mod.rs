//! NFD's management protocol: signed command Interests, status datasets, face events.
//!
//! [`Management`] answers Interests that reach the internal face, and asks a [`Control`] to do what commands
//! say. It holds the RIB.

mod authorize;
mod command;
mod commands;
mod control;
mod datasets;
mod events;
mod manager;
mod numbers;
mod parameters;
mod prefix_announcement;
mod publish;
pub mod read;
mod response;
mod rib_commands;

pub use authorize::{Authorization, Denied, KeyRing, VerifyingKey};
pub use command::{Command, CommandError};
pub use control::{Control, FaceChange, FaceRefusal, FaceRequest, SingleWorker, Status};
pub use datasets::FaceFilter;
pub use events::FaceEventKind;
pub use manager::{Management, ManagementConfig, Now};
pub use parameters::ControlParameters;
pub use prefix_announcement::PrefixAnnouncement;
