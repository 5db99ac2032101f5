//! Network namespaces, and a forwarder between two queues, for the tests that use a kernel.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use io::{Arm, Batch, Pool, Queue, QueueStats};

/// Says that a test cannot run here; in CI that is a failure.
pub(crate) fn skip(test: &str, missing: &str) {
    println!("SKIPPED {test}: {missing}");
    assert!(
        std::env::var("CI").as_deref() != Ok("true"),
        "{test} was skipped in CI: {missing}"
    );
}

/// Tells whether a test may make network namespaces and has the tools that it names; says what is missing.
pub(crate) fn needs(test: &str, tools: &[&str]) -> bool {
    // SAFETY: `geteuid` has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        skip(test, "needs root for network namespaces");
        return false;
    }
    for tool in ["ip"].iter().chain(tools) {
        let found = std::env::var_os("PATH").is_some_and(|path| {
            std::env::split_paths(&path).any(|directory| directory.join(tool).exists())
        });
        if !found {
            skip(test, &format!("{tool} is not installed"));
            return false;
        }
    }
    true
}

fn run(command: &mut Command) -> Output {
    let output = command.output().expect("the tool starts");
    assert!(
        output.status.success(),
        "{command:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// Runs `ip` with the words of a line.
pub(crate) fn ip(line: &str) {
    run(Command::new("ip").args(line.split_whitespace()));
}

/// A network namespace that goes away with the value.
#[derive(Debug)]
pub(crate) struct Namespace(pub(crate) String);

impl Namespace {
    pub(crate) fn new(role: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tg-drivers-{}-{number}-{role}", std::process::id());
        ip(&format!("netns add {name}"));
        let namespace = Self(name);
        namespace.ip("link set lo up");
        namespace
    }

    /// Runs `ip` inside.
    pub(crate) fn ip(&self, line: &str) {
        ip(&format!("-n {} {line}", self.0));
    }

    /// Makes a command that runs inside.
    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.0])
            .args(line.split_whitespace());
        command
    }

    /// Runs a command inside and returns what it printed; it must succeed.
    pub(crate) fn exec(&self, line: &str) -> String {
        let output = run(&mut self.command(line));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Moves the calling thread inside: sockets that it opens are there. Call it on a thread of its own.
    pub(crate) fn enter(&self) {
        let file = std::fs::File::open(format!("/run/netns/{}", self.0)).expect("the namespace");
        // SAFETY: `setns` takes a descriptor, which is open.
        let result = unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).output();
    }
}

/// Joins an interface of one namespace to one of another.
pub(crate) fn veth(left: (&Namespace, &str), right: (&Namespace, &str)) {
    left.0.ip(&format!(
        "link add {} type veth peer name {} netns {}",
        left.1, right.1, right.0.0
    ));
    for (namespace, name) in [left, right] {
        namespace.ip(&format!("link set {name} up"));
    }
}

/// Waits until a queue has frames, at most 10 ms.
pub(crate) fn wait(queue: &mut dyn Queue) {
    if let Arm::Armed(fd) = queue.arm() {
        let mut poll = libc::pollfd {
            fd: fd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: `poll` is one valid entry.
        unsafe { libc::poll(&raw mut poll, 1, 1) };
    }
    queue.disarm();
}

/// A thread that forwards between two queues, both ways, until it is told to stop.
pub(crate) struct Forwarder {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<[QueueStats; 2]>>,
}

impl Forwarder {
    /// Starts the thread; `open` runs on it and opens the two queues.
    pub(crate) fn start(
        open: impl FnOnce() -> (Pool, Box<dyn Queue>, Box<dyn Queue>) + Send + 'static,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let (ready, opened) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let (mut pool, mut a, mut b) = open();
            ready.send(()).expect("the test waits");
            let deadline = Instant::now() + Duration::from_secs(120);
            let mut batches = [Batch::new(), Batch::new()];
            while !told.load(Ordering::Relaxed) && Instant::now() < deadline {
                let mut moved = a.rx(&mut pool, &mut batches[0]);
                b.tx(&mut pool, &mut batches[0]);
                moved += b.rx(&mut pool, &mut batches[1]);
                a.tx(&mut pool, &mut batches[1]);
                if moved == 0 {
                    wait(&mut *a);
                    wait(&mut *b);
                }
            }
            for batch in &mut batches {
                pool.free_batch(batch);
            }
            assert_eq!(a.close(&mut pool) + b.close(&mut pool), 0);
            assert_eq!(pool.available(), pool.capacity(), "frames are conserved");
            [a.stats(), b.stats()]
        });
        opened.recv().expect("the forwarder opened its queues");
        Self {
            stop,
            thread: Some(thread),
        }
    }

    /// Stops the thread and returns both queues' counters; every frame is back in the pool.
    pub(crate) fn stop(mut self) -> [QueueStats; 2] {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("stopped once");
        match thread.join() {
            Ok(stats) => stats,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Runs `body` on a thread inside a namespace.
pub(crate) fn inside<R: Send>(namespace: &Namespace, body: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| {
        scope
            .spawn(|| {
                namespace.enter();
                body()
            })
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Bytes that tell where they belong.
fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32)
        .map(|i| (i.wrapping_mul(0x9e37_79b9) >> 24) as u8)
        .collect()
}

/// Sends `len` bytes over TCP from one namespace to an address of another and compares every byte.
pub(crate) fn transfer(client: &Namespace, server: &Namespace, address: &str, len: usize) {
    let sent = pattern(len);
    let listener = inside(server, || TcpListener::bind(address).expect("bind"));
    let received = std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let (mut stream, _) = listener.accept().expect("accept");
            let limit = Some(Duration::from_secs(30));
            stream.set_read_timeout(limit).expect("time-out");
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).expect("read");
            bytes
        });
        inside(client, || {
            let address = address.parse().expect("address");
            let limit = Duration::from_secs(10);
            let mut stream = TcpStream::connect_timeout(&address, limit).expect("connect");
            stream.write_all(&sent).expect("write");
        });
        server.join().expect("the server thread")
    });
    assert_eq!(received.len(), sent.len());
    assert!(received == sent, "the bytes differ");
}
