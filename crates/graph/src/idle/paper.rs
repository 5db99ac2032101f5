//! The policy of the paper, plain: six transitions (IO-2).

use core::time::Duration;

use wire::Instant;

use super::{Before, Pass, State};

/// Configuration of the paper's policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaperConfig {
    /// Length of the window in which packets are counted.
    pub window: Duration,
    /// W: packets in a window above which polling goes on.
    pub window_pkts: u32,
    /// Unit of time in which interrupts are counted.
    pub unit: Duration,
    /// Interrupts in a unit above which polling starts.
    pub interrupts: u32,
}

impl Default for PaperConfig {
    /// 4 packets in 100 us, 20 interrupts in 1 ms.
    fn default() -> Self {
        Self {
            window: Duration::from_micros(100),
            window_pkts: 4,
            unit: Duration::from_millis(1),
            interrupts: 20,
        }
    }
}

/// The paper's transitions, numbered as there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transition {
    /// (1) Initial: interrupts off, polling, an empty window.
    Start,
    /// (2) R > W: polling goes on. R == W, which the paper leaves open, does the same: nothing changes
    /// without a reason.
    KeepPolling,
    /// (3) R < W: to interrupt mode.
    ToInterrupt,
    /// (4) More interrupts in the unit than the threshold: to polling.
    ToPolling,
    /// (5) No more than the threshold: interrupt mode goes on.
    KeepInterrupt,
    /// (6) Memory is exhausted: through the initial state again.
    Restart,
}

/// The machine.
#[derive(Debug)]
pub struct Paper {
    config: PaperConfig,
    polling: bool,
    /// Start of the window or of the unit.
    since: Instant,
    /// Packets in the window, or interrupts in the unit.
    count: u32,
    exhausted: bool,
    flips: u64,
    taken: [u64; 6],
}

impl Paper {
    /// Makes the machine and takes transition (1).
    pub fn new(config: PaperConfig, now: Instant) -> Self {
        let mut paper = Self {
            config,
            polling: true,
            since: now,
            count: 0,
            exhausted: false,
            flips: 0,
            taken: [0; 6],
        };
        paper.taken[Transition::Start as usize] = 1;
        paper
    }

    /// Returns the state.
    pub fn state(&self) -> State {
        if self.polling {
            State::Poll
        } else {
            State::Wait
        }
    }

    /// Returns how often the machine went from polling to interrupts or back.
    pub fn flips(&self) -> u64 {
        self.flips
    }

    /// Returns how often a transition was taken.
    pub fn taken(&self, transition: Transition) -> u64 {
        self.taken[transition as usize]
    }

    /// Takes what a pass found; returns the transition, if one was due.
    pub fn pass(&mut self, pass: &Pass) -> Option<Transition> {
        // Once an exhaustion: while it lasts the machine is in its initial state already.
        let exhausted = core::mem::replace(&mut self.exhausted, pass.exhausted);
        let transition = if pass.exhausted && !exhausted {
            self.enter(true, pass.now);
            Some(Transition::Restart)
        } else if self.polling {
            self.count = self.count.saturating_add(pass.pkts);
            self.window(pass.now)
        } else {
            self.interrupt(pass)
        };
        if let Some(transition) = transition {
            self.taken[transition as usize] += 1;
        }
        transition
    }

    fn window(&mut self, now: Instant) -> Option<Transition> {
        if now - self.since < self.config.window {
            return None;
        }
        let stays = self.count >= self.config.window_pkts;
        self.enter(stays, now);
        Some(if stays {
            Transition::KeepPolling
        } else {
            Transition::ToInterrupt
        })
    }

    fn interrupt(&mut self, pass: &Pass) -> Option<Transition> {
        let over = pass.now - self.since >= self.config.unit;
        if over {
            self.enter(false, pass.now);
        }
        if pass.before == Before::Interrupt {
            self.count += 1;
        }
        if self.count > self.config.interrupts {
            self.enter(true, pass.now);
            return Some(Transition::ToPolling);
        }
        over.then_some(Transition::KeepInterrupt)
    }

    fn enter(&mut self, polling: bool, now: Instant) {
        self.flips += u64::from(self.polling != polling);
        self.polling = polling;
        self.since = now;
        self.count = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: PaperConfig = PaperConfig {
        window: Duration::from_micros(100),
        window_pkts: 4,
        unit: Duration::from_millis(1),
        interrupts: 3,
    };

    fn pass(now_us: u64, pkts: u32) -> Pass {
        Pass {
            now: Instant::from_ns(now_us * 1000),
            pkts,
            ..Pass::default()
        }
    }

    fn interrupt(now_us: u64) -> Pass {
        Pass {
            before: Before::Interrupt,
            ..pass(now_us, 1)
        }
    }

    /// In interrupt mode since 100 us.
    fn waiting() -> Paper {
        let mut paper = Paper::new(CONFIG, Instant::ZERO);
        assert_eq!(paper.pass(&pass(100, 0)), Some(Transition::ToInterrupt));
        paper
    }

    #[test]
    fn starts_by_polling() {
        let paper = Paper::new(CONFIG, Instant::ZERO);
        assert_eq!(paper.state(), State::Poll);
        assert_eq!(paper.taken(Transition::Start), 1);
    }

    #[test]
    fn more_packets_than_w_keep_polling_and_as_many_do_too() {
        let mut paper = Paper::new(CONFIG, Instant::ZERO);
        assert_eq!(paper.pass(&pass(50, 5)), None);
        assert_eq!(paper.pass(&pass(100, 0)), Some(Transition::KeepPolling));
        assert_eq!(paper.pass(&pass(150, 4)), None);
        assert_eq!(paper.pass(&pass(200, 0)), Some(Transition::KeepPolling));
        assert_eq!(paper.state(), State::Poll);
    }

    #[test]
    fn fewer_packets_than_w_lead_to_interrupts() {
        let mut paper = Paper::new(CONFIG, Instant::ZERO);
        paper.pass(&pass(50, 3));
        assert_eq!(paper.pass(&pass(100, 0)), Some(Transition::ToInterrupt));
        assert_eq!(paper.state(), State::Wait);
        assert_eq!(paper.flips(), 1);
    }

    #[test]
    fn interrupts_above_the_threshold_lead_to_polling() {
        let mut paper = waiting();
        for now_us in [200, 300, 400] {
            assert_eq!(paper.pass(&interrupt(now_us)), None);
        }
        assert_eq!(paper.pass(&interrupt(500)), Some(Transition::ToPolling));
        assert_eq!(paper.state(), State::Poll);
        // The window starts anew.
        assert_eq!(paper.pass(&pass(599, 0)), None);
        assert_eq!(paper.pass(&pass(600, 0)), Some(Transition::ToInterrupt));
    }

    #[test]
    fn no_more_interrupts_than_the_threshold_change_nothing() {
        let mut paper = waiting();
        for now_us in [200, 300, 400] {
            paper.pass(&interrupt(now_us));
        }
        assert_eq!(
            paper.pass(&interrupt(1100)),
            Some(Transition::KeepInterrupt)
        );
        // The unit starts anew, with the interrupt that found it over.
        assert_eq!(paper.pass(&interrupt(1200)), None);
        assert_eq!(paper.pass(&interrupt(1300)), None);
        assert_eq!(paper.pass(&interrupt(1400)), Some(Transition::ToPolling));
    }

    #[test]
    fn exhausted_memory_leads_through_the_initial_state_once() {
        let exhausted = |now_us| Pass {
            exhausted: true,
            ..pass(now_us, 0)
        };
        let mut paper = waiting();
        assert_eq!(paper.pass(&exhausted(150)), Some(Transition::Restart));
        assert_eq!(paper.state(), State::Poll);
        assert_eq!(paper.pass(&exhausted(160)), None);
        assert_eq!(paper.pass(&exhausted(250)), Some(Transition::ToInterrupt));
        assert_eq!(paper.pass(&pass(260, 0)), None);
        assert_eq!(paper.pass(&exhausted(270)), Some(Transition::Restart));
        assert_eq!(paper.taken(Transition::Restart), 2);
    }
}
