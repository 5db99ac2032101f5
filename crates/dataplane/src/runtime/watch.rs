//! Whether ports have a link now.
//!
//! An interface's name means something only in the network namespace in which the node was started, and
//! who asks for statistics may be in another one; so a thread that the start made asks the kernel. It
//! sleeps unless it is asked.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use io::interface::{Interface, Link};

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_millis(200);

type Answer = SyncSender<Vec<Link>>;

/// Asks for the links of all ports. The thread ends with it.
#[derive(Debug)]
pub(super) struct LinkWatch {
    ask: SyncSender<Answer>,
}

impl LinkWatch {
    /// Starts the thread, in this thread's network namespace; `interfaces` has one entry a port.
    ///
    /// # Errors
    /// The kernel gives no thread.
    pub(super) fn start(interfaces: Vec<Option<String>>) -> std::io::Result<Self> {
        let (ask, asked) = sync_channel(4);
        std::thread::Builder::new()
            .name("links".into())
            .spawn(move || answer(&asked, &interfaces))?;
        Ok(Self { ask })
    }

    /// Returns the link of each port; `None` if the kernel takes its time.
    pub(super) fn links(&self) -> Option<Vec<Link>> {
        let (tell, told) = sync_channel(1);
        self.ask.try_send(tell).ok()?;
        told.recv_timeout(PATIENCE).ok()
    }
}

fn answer(asked: &Receiver<Answer>, interfaces: &[Option<String>]) {
    while let Ok(tell) = asked.recv() {
        let links = interfaces.iter().map(|name| match name {
            // One that has been taken away has no link.
            Some(name) => Interface::get(name).map_or(Link::Down, |found| found.link),
            None => Link::Unknown,
        });
        // Who asked may have given up.
        let _ = tell.try_send(links.collect());
    }
}
