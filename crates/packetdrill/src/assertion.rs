//! `%{ assert tcpi_snd_cwnd == 10, tcpi_snd_cwnd }%`: a small part of Python, about the connection's state.

use stack::{State, TcpInfo};

use crate::error::Error;
use crate::machine::Machine;

/// Nesting of expressions at most.
const DEPTH_MAX: usize = 32;

impl Machine {
    /// Checks each assertion of a block.
    pub(crate) fn check_code(&mut self, code: &str, line: usize) -> Result<(), Error> {
        let info = self
            .subject()
            .and_then(|handle| self.stack.tcp_info(handle).ok());
        let state = self
            .subject()
            .and_then(|handle| self.stack.tcp_state(handle));
        let joined = code.replace("\\\n", " ");
        for (below, text) in joined.lines().enumerate() {
            let text = text.split('#').next().unwrap_or_default();
            for statement in text.split(';').map(str::trim).filter(|s| !s.is_empty()) {
                let line = line + below;
                let unsupported = |what: &str| Error::Unsupported {
                    line,
                    what: format!("{what} in `{statement}`"),
                };
                let Some(expression) = statement.strip_prefix("assert") else {
                    return Err(unsupported("a statement other than assert"));
                };
                let mut reader = Reader {
                    rest: expression,
                    info: info.as_ref(),
                    state,
                    unknown: None,
                };
                let value = reader.either(0);
                if let Some(name) = reader.unknown {
                    return Err(unsupported(&name));
                }
                let rest = reader.rest.trim_start();
                match value {
                    Some(value) if rest.is_empty() || rest.starts_with(',') => {
                        if value == 0 {
                            return Err(Error::Mismatch {
                                line,
                                what: "an assertion does not hold".into(),
                                expected: expression.trim().into(),
                                actual: info.map_or_else(
                                    || format!("{state:?}"),
                                    |info| format!("{info:?}"),
                                ),
                            });
                        }
                    }
                    _ => return Err(unsupported("an expression")),
                }
            }
        }
        Ok(())
    }
}

/// Reads and evaluates at once; a comparison is 1 or 0.
struct Reader<'a> {
    rest: &'a str,
    info: Option<&'a TcpInfo>,
    state: Option<State>,
    unknown: Option<String>,
}

impl Reader<'_> {
    fn take(&mut self, token: &str) -> bool {
        let after = self.rest.trim_start().strip_prefix(token);
        let is_word = token.starts_with(|c: char| c.is_ascii_alphabetic());
        match after {
            Some(after) if !is_word || !after.starts_with(is_name) => {
                self.rest = after;
                true
            }
            _ => false,
        }
    }

    fn either(&mut self, depth: usize) -> Option<i64> {
        let mut value = self.both(depth)?;
        while self.take("or") {
            let other = self.both(depth)?;
            value = i64::from(value != 0 || other != 0);
        }
        Some(value)
    }

    fn both(&mut self, depth: usize) -> Option<i64> {
        let mut value = self.inverse(depth)?;
        while self.take("and") {
            let other = self.inverse(depth)?;
            value = i64::from(value != 0 && other != 0);
        }
        Some(value)
    }

    fn inverse(&mut self, depth: usize) -> Option<i64> {
        if depth > DEPTH_MAX {
            return None;
        }
        if self.take("not") {
            return Some(i64::from(self.inverse(depth + 1)? == 0));
        }
        self.comparison(depth)
    }

    /// As in Python, `a <= b <= c` is two comparisons.
    fn comparison(&mut self, depth: usize) -> Option<i64> {
        let mut left = self.sum(depth)?;
        let mut holds = None;
        loop {
            let is_true: fn(i64, i64) -> bool = if self.take("==") {
                |a, b| a == b
            } else if self.take("!=") {
                |a, b| a != b
            } else if self.take("<=") {
                |a, b| a <= b
            } else if self.take(">=") {
                |a, b| a >= b
            } else if self.take("<") {
                |a, b| a < b
            } else if self.take(">") {
                |a, b| a > b
            } else {
                return Some(holds.map_or(left, i64::from));
            };
            let right = self.sum(depth)?;
            holds = Some(holds.unwrap_or(true) && is_true(left, right));
            left = right;
        }
    }

    fn sum(&mut self, depth: usize) -> Option<i64> {
        let mut value = self.product(depth)?;
        loop {
            if self.take("+") {
                value = value.checked_add(self.product(depth)?)?;
            } else if self.take("-") {
                value = value.checked_sub(self.product(depth)?)?;
            } else {
                return Some(value);
            }
        }
    }

    fn product(&mut self, depth: usize) -> Option<i64> {
        let mut value = self.term(depth)?;
        loop {
            if self.take("*") {
                value = value.checked_mul(self.term(depth)?)?;
            } else if self.take("//") || self.take("/") {
                value = value.checked_div(self.term(depth)?)?;
            } else {
                return Some(value);
            }
        }
    }

    fn term(&mut self, depth: usize) -> Option<i64> {
        if depth > DEPTH_MAX {
            return None;
        }
        if self.take("(") {
            let value = self.either(depth + 1)?;
            return self.take(")").then_some(value);
        }
        if self.take("-") {
            return self.term(depth + 1)?.checked_neg();
        }
        if self.take("abs") {
            return Some(self.term(depth + 1)?.abs());
        }
        self.rest = self.rest.trim_start();
        let end = self.rest.find(|c| !is_name(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            return word.parse().ok();
        }
        let value = self.value(word);
        if value.is_none() && !word.is_empty() {
            self.unknown = Some(word.to_owned());
        }
        value
    }

    fn value(&self, name: &str) -> Option<i64> {
        if let Some(number) = state_number(name) {
            return Some(number);
        }
        match name {
            "tcpi_state" => {
                return STATES
                    .iter()
                    .find(|(_, state, _)| Some(*state) == self.state)
                    .map(|(_, _, number)| *number);
            }
            "TCP_CA_Open" => return Some(0),
            "TCP_CA_Recovery" => return Some(3),
            "TCP_CA_Loss" => return Some(4),
            "TCP_INFINITE_SSTHRESH" => return Some(0x7fff_ffff),
            _ => {}
        }
        let info = self.info?;
        let mss = info.segment_bytes.max(1);
        Some(match name {
            "tcpi_snd_cwnd" => (info.window / mss).into(),
            // Not set yet.
            "tcpi_snd_ssthresh" if info.threshold >= 1 << 29 => 0x7fff_ffff,
            "tcpi_snd_ssthresh" => (info.threshold / mss).into(),
            "tcpi_snd_mss" => info.segment_bytes.into(),
            "tcpi_snd_wnd" => info.peer_window.into(),
            "tcpi_rtt" => info.srtt_us.into(),
            "tcpi_rttvar" => info.rtt_var_us.into(),
            "tcpi_rto" => i64::try_from(info.rto_us).unwrap_or(i64::MAX),
            "tcpi_unacked" => info.outstanding.div_ceil(mss).into(),
            "tcpi_sacked" => info.sacked.div_ceil(mss).into(),
            "tcpi_lost" => info.lost.div_ceil(mss).into(),
            "tcpi_backoff" => info.backoff.into(),
            "tcpi_notsent_bytes" => (info.queued.saturating_sub(info.outstanding)).into(),
            "tcpi_ca_state" => match (info.timed_out, info.recovering) {
                (true, _) => 4,
                (_, true) => 3,
                _ => 0,
            },
            _ => return None,
        })
    }
}

/// Names of the states in `tcpi_state`, and Linux's numbers of them.
const STATES: [(&str, State, i64); 10] = [
    ("TCP_ESTABLISHED", State::Established, 1),
    ("TCP_SYN_SENT", State::SynSent, 2),
    ("TCP_SYN_RECV", State::SynReceived, 3),
    ("TCP_FIN_WAIT1", State::FinWait1, 4),
    ("TCP_FIN_WAIT2", State::FinWait2, 5),
    ("TCP_TIME_WAIT", State::TimeWait, 6),
    ("TCP_CLOSE", State::Closed, 7),
    ("TCP_CLOSE_WAIT", State::CloseWait, 8),
    ("TCP_LAST_ACK", State::LastAck, 9),
    ("TCP_CLOSING", State::Closing, 11),
];

fn state_number(name: &str) -> Option<i64> {
    let known = STATES.iter().find(|(other, ..)| *other == name);
    known.map(|(_, _, number)| *number)
}

const fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}
