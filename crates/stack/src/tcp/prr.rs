//! Proportional rate reduction (RFC 6937, with the safe-ACK heuristic of RFC 9937).

/// How much may be sent in recovery, bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Prr {
    delivered: u64,
    out: u64,
    /// In flight when recovery began.
    flight: u32,
}

impl Prr {
    /// Begins a recovery.
    pub(crate) const fn new(in_flight: u32) -> Self {
        Self {
            delivered: 0,
            out: 0,
            flight: if in_flight == 0 { 1 } else { in_flight },
        }
    }
    /// Hears that bytes were sent.
    pub(crate) fn on_send(&mut self, bytes: u32) {
        self.out += u64::from(bytes);
    }
    /// Returns the window after an acknowledgement: what is in flight and what may be added.
    pub(crate) fn on_ack(
        &mut self,
        delivered: u32,
        in_flight: u32,
        threshold: u32,
        mss: u32,
        is_safe: bool,
    ) -> u32 {
        self.delivered += u64::from(delivered);
        let mut add = if in_flight > threshold {
            (self.delivered * u64::from(threshold))
                .div_ceil(u64::from(self.flight))
                .saturating_sub(self.out)
        } else {
            let mut limit = self
                .delivered
                .saturating_sub(self.out)
                .max(u64::from(delivered));
            if is_safe {
                limit += u64::from(mss);
            }
            limit.min(u64::from(threshold - in_flight))
        };
        if self.out == 0 {
            // The fast retransmit goes out in any case.
            add = add.max(u64::from(mss));
        }
        in_flight.saturating_add(u32::try_from(add).unwrap_or(u32::MAX / 4))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6937 4: 20 segments in flight, the first lost, the threshold 10: one is sent for two acknowledged.
    #[test]
    fn sends_in_proportion() {
        let mut prr = Prr::new(19);
        let mut in_flight = 19;
        let mut sent = 0;
        for _ in 0..19 {
            in_flight -= 1;
            let window = prr.on_ack(1, in_flight, 10, 1, false);
            while in_flight < window {
                prr.on_send(1);
                in_flight += 1;
                sent += 1;
            }
        }
        assert_eq!(in_flight, 10);
        assert_eq!(sent, 10);
    }
}
