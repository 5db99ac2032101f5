//! Test traffic: frames that carry a sequence number and a send stamp, sent at a rate, and the account
//! of what came back.

mod account;
mod pace;
pub(crate) mod profile;
mod tester;

pub use account::{Account, Latency};
pub use pace::Pacer;
pub use profile::{FRAME_SIZES, Profile, ProfileError, Stamp};
pub use tester::{Endpoint, Load, Tester, Trial, TrialPlan};
