//! Programs that use the node's host.

use std::path::Path;
use std::sync::{Arc, Mutex};

use control::api::{ApiError, Attachment, ErrorCode};
use socket::service::{HostService, Program};

use super::workers::Workers;
use super::{Dataplane, lock};

/// A program's sockets; dropped when the program is gone.
#[derive(Debug)]
pub struct Lease {
    service: Arc<HostService>,
    workers: Arc<Mutex<Workers>>,
    /// Taken when dropped.
    program: Option<Program>,
}

impl Lease {
    pub(super) fn new(node: &Dataplane, beside: &Path) -> Result<Self, ApiError> {
        let service = node.shared.host.as_ref().ok_or_else(|| ApiError {
            code: ErrorCode::NotFound,
            message: "the node has no host for programs".into(),
            remedy: Some("add the table `[host]` to its configuration and restart it".into()),
        })?;
        let failed = |message: String| ApiError {
            code: ErrorCode::Failed,
            message,
            remedy: None,
        };
        let program = service.attach(beside);
        let program = program.map_err(|error| failed(chain(&error)))?;
        let lease = Self {
            service: Arc::clone(service),
            workers: Arc::clone(&node.workers),
            program: Some(program),
        };
        if lease.publish() {
            Ok(lease)
        } else {
            Err(failed("a worker does not read its messages".into()))
        }
    }

    /// Returns what the program is to be told.
    ///
    /// # Panics
    /// Never: the program is there until the drop.
    pub fn attachment(&self) -> Attachment {
        let program = self.program.as_ref();
        program.expect("there until the drop").attachment.clone()
    }

    fn publish(&self) -> bool {
        lock(&self.workers).reload(&self.service.snapshot())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(program) = self.program.take() {
            self.service.detach(program);
            if !self.publish() {
                tracing::warn!("a worker does not read its messages");
            }
        }
    }
}

/// Writes an error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}
