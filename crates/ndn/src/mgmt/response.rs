//! ControlResponse: status code, text and parameters.

use alloc::borrow::Cow;
use alloc::vec;
use alloc::vec::Vec;

use wire::ndn::Writer;

use super::ControlParameters;
use super::numbers as n;

/// The answer to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ControlResponse {
    pub(super) code: u64,
    pub(super) text: Cow<'static, str>,
    pub(super) body: Option<ControlParameters>,
}

impl ControlResponse {
    pub(super) fn new(code: u64, text: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            text: text.into(),
            body: None,
        }
    }

    /// It was done.
    pub(super) fn ok(body: ControlParameters) -> Self {
        Self {
            body: Some(body),
            ..Self::new(200, "OK")
        }
    }

    /// Parameters are missing, or not allowed for this command.
    pub(super) fn malformed() -> Self {
        Self::new(400, "failed in validating parameters")
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        // Texts of ours, and parameters that came in one packet.
        let mut out = vec![0; 9000];
        let mut writer = Writer::new(&mut out);
        let fits = writer.nested(n::CONTROL_RESPONSE, |out| {
            out.integer(n::STATUS_CODE, self.code)?;
            out.element(n::STATUS_TEXT, self.text.as_bytes())?;
            match &self.body {
                Some(body) => body.write(out),
                None => Ok(()),
            }
        });
        let length = fits.map_or(0, |()| writer.len());
        out.truncate(length);
        out
    }
}
