//! A forwarder between two queues, and TCP that compares every byte, for the tests that use a kernel.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use io::wait::PollSet;
use io::{Arm, Batch, Pool, Queue, QueueStats};
use lab::netns::Namespace;

/// Tells whether a test may make network namespaces and has the tools that it names; says what is missing.
pub(crate) fn needs(test: &str, tools: &[&str]) -> bool {
    lab::need::root(test) && tools.iter().all(|tool| lab::need::program(test, tool))
}

/// Runs a command line in a namespace and returns what it printed; it must succeed.
pub(crate) fn exec(namespace: &Namespace, line: &str) -> String {
    let mut words = line.split_whitespace();
    let mut command = namespace.command(words.next().expect("a program"));
    let output = command.args(words).output().expect("the tool starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {text}{errors}");
    text
}

/// Makes a namespace.
pub(crate) fn namespace(label: &str) -> Arc<Namespace> {
    Arc::new(Namespace::new(label).expect("a namespace"))
}

/// Joins a device of one namespace to one of another and waits until both are up.
pub(crate) fn veth(left: (&Namespace, &str), right: (&Namespace, &str), mtu: u32) {
    let mut links = left.0.links().expect("links");
    let end = |(namespace, name)| lab::links::VethEnd::new(name, namespace).mtu(mtu);
    links.add_veth(&end(left), &end(right)).expect("a veth");
    right.0.links().expect("links").set_up(right.1).expect("up");
    let limit = Duration::from_secs(5);
    links.set_up_and_wait(left.1, limit).expect("carrier");
}

/// Waits until a queue has frames, a millisecond at most.
pub(crate) fn wait(queue: &mut dyn Queue) {
    if let Arm::Armed(fd) = queue.arm() {
        let mut set = PollSet::with_capacity(1);
        set.add(fd);
        set.wait(Some(Duration::from_millis(1)));
    }
    queue.disarm();
}

/// Receives until there are `n` frames or a second is over.
pub(crate) fn receive(queue: &mut dyn Queue, pool: &mut Pool, batch: &mut Batch, n: usize) {
    let deadline = Instant::now() + Duration::from_secs(1);
    while batch.len() < n && Instant::now() < deadline {
        if queue.rx(pool, batch) == 0 {
            wait(queue);
        }
    }
}

/// A thread that forwards between two queues, both ways, until it is told to stop.
pub(crate) struct Forwarder {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<[QueueStats; 2]>>,
}

impl Forwarder {
    /// Starts the thread, which owns the queues and whose frames are all of `pool`.
    pub(crate) fn start(mut pool: Pool, mut a: Box<dyn Queue>, mut b: Box<dyn Queue>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
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

/// Bytes that tell where they belong.
fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32)
        .map(|i| (i.wrapping_mul(0x9e37_79b9) >> 24) as u8)
        .collect()
}

/// Sends `len` bytes over TCP from one namespace to an address of another and compares every byte.
pub(crate) fn transfer(client: &Namespace, server: &Namespace, address: &str, len: usize) {
    let sent = pattern(len);
    let listener = server.run(|| TcpListener::bind(address).expect("bind"));
    let listener = listener.expect("the server's namespace");
    let received = std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let (mut stream, _) = listener.accept().expect("accept");
            let limit = Some(Duration::from_secs(30));
            stream.set_read_timeout(limit).expect("time-out");
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).expect("read");
            bytes
        });
        let stream = client.run(|| {
            let address = address.parse().expect("address");
            TcpStream::connect_timeout(&address, Duration::from_secs(10)).expect("connect")
        });
        let mut stream = stream.expect("the client's namespace");
        stream.write_all(&sent).expect("write");
        drop(stream);
        server.join().expect("the server thread")
    });
    assert_eq!(received.len(), sent.len());
    assert!(received == sent, "the bytes differ");
}
