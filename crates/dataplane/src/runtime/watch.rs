//! Whether ports have a link now, and what their drivers count by names of their own.
//!
//! An interface's name means something only in the network namespace in which the node was started, and
//! who asks for statistics may be in another one; so a thread that the start made asks the kernel. It
//! sleeps unless it is asked.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use io::dpdk::{self, DeviceStatus};
use io::interface::{Interface, Link};

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_millis(200);

type Answer = SyncSender<Vec<DeviceStatus>>;

/// Who knows the state of a port.
#[derive(Debug)]
pub(super) struct Source {
    /// The kernel's interface, where there is one.
    pub(super) interface: Option<String>,
    /// DPDK's device, if it is one's port.
    pub(super) device: Option<String>,
}

/// Asks for the state of all ports. The thread ends with it.
#[derive(Debug)]
pub(super) struct PortWatch {
    ask: SyncSender<Answer>,
}

impl PortWatch {
    /// Starts the thread, in this thread's network namespace; `sources` has one entry a port.
    ///
    /// # Errors
    /// The kernel gives no thread.
    pub(super) fn start(sources: Vec<Source>) -> std::io::Result<Self> {
        let (ask, asked) = sync_channel(4);
        std::thread::Builder::new()
            .name("links".into())
            .spawn(move || answer(&asked, &sources))?;
        Ok(Self { ask })
    }

    /// Returns the state of each port; `None` if the answer takes its time.
    pub(super) fn ports(&self) -> Option<Vec<DeviceStatus>> {
        let (tell, told) = sync_channel(1);
        self.ask.try_send(tell).ok()?;
        told.recv_timeout(PATIENCE).ok()
    }
}

fn answer(asked: &Receiver<Answer>, sources: &[Source]) {
    while let Ok(tell) = asked.recv() {
        // Who asked may have given up.
        let _ = tell.try_send(sources.iter().map(Source::ask).collect());
    }
}

impl Source {
    fn ask(&self) -> DeviceStatus {
        // What has been taken away has no link.
        let gone = DeviceStatus {
            link: Link::Down,
            ..DeviceStatus::default()
        };
        let mut state = match &self.device {
            Some(device) => dpdk::status(device).unwrap_or(gone),
            None => DeviceStatus::default(),
        };
        if let Some(name) = &self.interface {
            state.link = Interface::get(name).map_or(Link::Down, |found| found.link);
        }
        state
    }
}
