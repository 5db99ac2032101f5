//! How a command ends: exit codes, and failures with one remedy.

use std::fmt;
use std::process::ExitCode;

use control::api::ErrorCode;
use control::socket::ClientError;

/// Exit codes, as documented in the help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Tried and failed.
    Failed = 1,
    /// Makes no sense.
    Usage = 2,
    /// No node answers.
    NotRunning = 3,
    /// This user or machine may not.
    Refused = 4,
    /// What was named does not exist.
    NotFound = 5,
}

impl Exit {
    /// Tells how a command ends that could not read or find a file.
    pub(crate) fn of_file(error: &std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::NotFound => Self::NotFound,
            std::io::ErrorKind::PermissionDenied => Self::Refused,
            _ => Self::Failed,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The exit code.
    pub(crate) exit: Exit,
    /// What went wrong, with its causes; `None` where the command has said it already.
    pub(crate) error: Option<anyhow::Error>,
    /// What to do about it.
    pub(crate) remedy: Option<String>,
}

impl Failure {
    /// Makes a failure from its cause.
    pub(crate) fn new(exit: Exit, error: impl Into<anyhow::Error>) -> Self {
        Self {
            exit,
            error: Some(error.into()),
            remedy: None,
        }
    }

    /// Makes a failure from a message.
    pub(crate) fn message(exit: Exit, message: impl fmt::Display) -> Self {
        Self::new(exit, anyhow::anyhow!("{message}"))
    }

    /// Ends with `exit` and says nothing more.
    pub(crate) fn silent(exit: Exit) -> Self {
        Self {
            exit,
            error: None,
            remedy: None,
        }
    }

    /// Adds what to do about it.
    pub(crate) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::new(Exit::Failed, error)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::new(Exit::Failed, error)
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let exit = match &error {
            ClientError::NotRunning { .. } => Exit::NotRunning,
            ClientError::Refused { .. } => Exit::Refused,
            ClientError::Api(error) => match error.code {
                ErrorCode::Failed => Exit::Failed,
                ErrorCode::Usage => Exit::Usage,
                ErrorCode::Refused => Exit::Refused,
                ErrorCode::NotFound => Exit::NotFound,
            },
            ClientError::Protocol | ClientError::Io(_) => Exit::Failed,
        };
        let remedy = error.remedy();
        Self {
            exit,
            error: Some(error.into()),
            remedy,
        }
    }
}
