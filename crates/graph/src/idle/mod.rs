//! How a worker waits for packets: pure state machines, without a clock, a thread or a descriptor.
//!
//! Time and what was found come in ([`Pass`]), a [`Decision`] goes out, the same under a real clock, a
//! simulated one, or none. Four modes, chosen a port:
//!
//! | mode | waits by |
//! | --- | --- |
//! | [`Mode::Poll`] | asking again and again |
//! | [`Mode::Interrupt`] | sleeping whenever a pass finds nothing |
//! | [`Mode::Paper`] | the six transitions of IO-2 ([`paper::Paper`]) |
//! | [`Mode::Hybrid`] | polling, timed naps or sleep, whichever meets a latency budget at the least CPU ([`hybrid::Hybrid`]) |
//!
//! One worker may have ports of different modes; it waits as the most eager of them asks ([`Engine`]).

pub mod hybrid;
mod lateness;
pub mod paper;

use core::time::Duration;

use wire::Instant;

use hybrid::{Hybrid, HybridConfig};
use paper::{Paper, PaperConfig};

/// How a port waits for packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Polls under load, naps or sleeps when idle, within a latency budget.
    #[default]
    Hybrid,
    /// Always polls.
    Poll,
    /// Sleeps whenever nothing is there.
    Interrupt,
    /// The plain policy of the paper.
    Paper,
}

/// What a machine does while nothing is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum State {
    /// Asks again at once.
    Poll,
    /// Sleeps for a bounded time with interrupts off.
    Nap,
    /// Sleeps until an interrupt, a message or a timer.
    Wait,
}

/// What to do before the next pass over the queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing: go on.
    Spin,
    /// Sleep for so long.
    Nap(Duration),
    /// Arm the interrupts, look once more, and sleep until something comes.
    Block,
}

/// What went before a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Before {
    /// Another pass.
    #[default]
    Pass,
    /// A nap, which ended this much later than asked.
    Nap {
        /// Lateness.
        late: Duration,
    },
    /// A sleep, or a try at one, that an interrupt ended.
    Interrupt,
    /// A sleep that a timer or a message ended.
    Other,
}

/// One pass over the queues.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pass {
    /// The worker's time at its start.
    pub now: Instant,
    /// Packets that it found.
    pub pkts: u32,
    /// The worker has no free frame.
    pub exhausted: bool,
    /// What went before.
    pub before: Before,
}

/// Configuration of the machines.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IdleConfig {
    /// For ports in [`Mode::Hybrid`].
    pub hybrid: HybridConfig,
    /// For ports in [`Mode::Paper`].
    pub paper: PaperConfig,
}

/// All machines of one worker: one a port in [`Mode::Paper`], one for all ports in [`Mode::Hybrid`] and
/// what other workers hand over.
#[derive(Debug)]
pub struct Engine {
    modes: Vec<Mode>,
    papers: Vec<Option<Paper>>,
    hybrid: Option<Hybrid>,
    polls: bool,
    state: State,
}

impl Engine {
    /// Makes the machines for ports of these modes.
    pub fn new(modes: &[Mode], config: &IdleConfig, now: Instant) -> Self {
        let paper = |&mode: &Mode| (mode == Mode::Paper).then(|| Paper::new(config.paper, now));
        Self {
            modes: modes.to_vec(),
            papers: modes.iter().map(paper).collect(),
            hybrid: modes
                .contains(&Mode::Hybrid)
                .then(|| Hybrid::new(config.hybrid, now)),
            polls: modes.contains(&Mode::Poll),
            state: State::Poll,
        }
    }

    /// Returns the mode of a port.
    pub fn mode(&self, port: usize) -> Mode {
        self.modes.get(port).copied().unwrap_or_default()
    }

    /// Returns the state of a port's machine.
    pub fn port_state(&self, port: usize) -> State {
        match self.mode(port) {
            Mode::Poll => State::Poll,
            Mode::Interrupt => State::Wait,
            Mode::Paper => self
                .papers
                .get(port)
                .and_then(Option::as_ref)
                .map_or(State::Poll, Paper::state),
            Mode::Hybrid => self.hybrid.as_ref().map_or(State::Poll, Hybrid::state),
        }
    }

    /// Returns the most eager state among the machines.
    pub fn state(&self) -> State {
        self.state
    }

    /// Returns how often machines changed their state.
    pub fn flips(&self) -> u64 {
        let papers: u64 = self.papers.iter().flatten().map(Paper::flips).sum();
        papers + self.hybrid.as_ref().map_or(0, Hybrid::flips)
    }

    /// Returns the machine of the ports in [`Mode::Hybrid`].
    pub fn hybrid(&self) -> Option<&Hybrid> {
        self.hybrid.as_ref()
    }

    /// Returns the machine of a port in [`Mode::Paper`].
    pub fn paper(&self, port: usize) -> Option<&Paper> {
        self.papers.get(port).and_then(Option::as_ref)
    }

    /// Tells the CPU time of the worker's thread so far; call it every few milliseconds if it is known.
    pub fn cpu_time(&mut self, cpu: Duration) {
        if let Some(hybrid) = &mut self.hybrid {
            hybrid.cpu_time(cpu);
        }
    }

    /// Takes what one pass found, in all (`pass`) and a port (`port_pkts`), and decides what to do next.
    #[inline]
    pub fn pass(&mut self, pass: &Pass, port_pkts: &[u32]) -> Decision {
        if self.polls {
            return Decision::Spin;
        }
        let mut papers = State::Wait;
        for (paper, &pkts) in self.papers.iter_mut().zip(port_pkts) {
            if let Some(paper) = paper {
                paper.pass(&Pass { pkts, ..*pass });
                papers = papers.min(paper.state());
            }
        }
        let (hybrid, decision) = match &mut self.hybrid {
            Some(hybrid) => {
                let decision = hybrid.pass(pass);
                (hybrid.state(), decision)
            }
            None => (State::Wait, Decision::Block),
        };
        self.state = papers.min(hybrid);
        if pass.pkts > 0 || papers == State::Poll {
            Decision::Spin
        } else {
            decision
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty(now_us: u64) -> Pass {
        Pass {
            now: Instant::from_ns(now_us * 1000),
            ..Pass::default()
        }
    }

    #[test]
    fn the_most_eager_port_decides() {
        let config = IdleConfig::default();
        let mut both = Engine::new(&[Mode::Interrupt, Mode::Poll], &config, Instant::ZERO);
        assert_eq!(both.pass(&empty(1), &[0, 0]), Decision::Spin);
        assert_eq!(both.port_state(0), State::Wait);
        assert_eq!(both.port_state(1), State::Poll);
        let mut waits = Engine::new(&[Mode::Interrupt], &config, Instant::ZERO);
        assert_eq!(waits.pass(&empty(1), &[0]), Decision::Block);
        let mut paper = Engine::new(&[Mode::Interrupt, Mode::Paper], &config, Instant::ZERO);
        assert_eq!(paper.pass(&empty(1), &[0, 0]), Decision::Spin);
    }

    #[test]
    fn packets_are_always_followed_by_another_pass() {
        let mut waits = Engine::new(&[Mode::Interrupt], &IdleConfig::default(), Instant::ZERO);
        let pass = Pass {
            pkts: 3,
            ..empty(1)
        };
        assert_eq!(waits.pass(&pass, &[3]), Decision::Spin);
    }
}
