//! Why a script did not pass.

/// Why a script did not pass: where, and what was wanted instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It cannot be read.
    #[error("line {line}: wanted {wanted} at `{here}`")]
    Syntax {
        /// Line, from 1.
        line: usize,
        /// What the language has there.
        wanted: String,
        /// What stands there.
        here: String,
    },
    /// It asks for what this interpreter, or the stack, does not have.
    #[error("line {line}: not supported: {what}")]
    Unsupported {
        /// Line, from 1.
        line: usize,
        /// What.
        what: String,
    },
    /// The stack did something else than the script says.
    #[error("line {line}: {what}\n  expected: {expected}\n    actual: {actual}")]
    Mismatch {
        /// Line, from 1.
        line: usize,
        /// What differs.
        what: String,
        /// What the script says.
        expected: String,
        /// What happened.
        actual: String,
    },
}
