//! The signature table (TL-1 to TL-7): sessions found by 32-bit signatures in one cache line, their records
//! in implied places.
//!
//! [`SignatureTable`] is the default; [`PaperTable`] is the paper's layout, kept for comparison.

mod bucket;
mod conflict;
mod find;
mod functions;
mod growth;
mod key;
mod paper;
mod records;
mod recovery;
mod table;

pub use bucket::Bucket;
pub use functions::{
    Crc32c, Crc32cTwoSeeds, KeyHash, Keyed, SignatureFunction, SipHash13, Xor, XorKeyedBucket,
};
pub use key::{Session4, Session6, SessionKey};
pub use paper::PaperTable;
pub use records::Place;
pub use recovery::Repairs;
pub use table::{AddError, Occupancy, Probes, Shape, SignatureTable, TableMemory};
