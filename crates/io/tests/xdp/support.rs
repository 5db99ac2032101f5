//! Wires, ports and forwarders for the tests.

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use io::af_xdp::AfXdpSpec;
use io::port::{DriverSpec, OpenError, OpenPort, PortSpec};
use io::{Arm, Batch, HugePages, Pool, PortId, Queue, QueueStats, Region};
use lab::{Line, LineOptions, Namespace};

/// Makes an AF_XDP socket; `None` if the kernel has none.
pub(crate) fn xdp_socket() -> Option<OwnedFd> {
    // SAFETY: makes a new socket; no memory is passed.
    let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    // SAFETY: the descriptor is new and nobody else's.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Needs root and a kernel with AF_XDP.
pub(crate) fn ready(test: &str) -> bool {
    let there = xdp_socket().is_some();
    lab::need::root(test) && lab::need::need(test, "a kernel with AF_XDP", there)
}

/// A line of three namespaces whose sides are on one network, 10.9.0.1 and 10.9.0.2, so that a node
/// that forwards frames both ways connects them.
pub(crate) fn wire(prefix: &str, queues: u32) -> Line {
    let options = LineOptions {
        queues,
        addresses: false,
        ..LineOptions::default()
    };
    let line = Line::new(prefix, options).unwrap();
    for (side, last) in [(&line.left, 1), (&line.right, 2)] {
        let mut links = side.namespace.links().unwrap();
        let address = Ipv4Addr::new(10, 9, 0, last).into();
        links.add_address(&side.device, address, 24).unwrap();
    }
    line
}

pub(crate) const RIGHT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 2));

/// Makes one pool a worker.
pub(crate) fn pools(frames: u32, workers: u16) -> Vec<Pool> {
    Pool::split(frames, workers, 2048, HugePages::Auto).unwrap()
}

/// Opens an AF_XDP port in a namespace.
pub(crate) fn open(
    namespace: &Namespace,
    spec: AfXdpSpec,
    region: &Arc<Region>,
    workers: u16,
) -> Result<OpenPort, OpenError> {
    let spec = PortSpec::new(PortId(7), "test", DriverSpec::AfXdp(spec));
    namespace
        .run(|| io::port::open(&spec, region, workers))
        .unwrap()
}

/// Frees a batch's frames, keeping none.
pub(crate) fn close_all(queues: &mut [Box<dyn Queue>], pool: &mut Pool) {
    for queue in queues {
        assert_eq!(queue.close(pool), 0, "the kernel kept frames");
    }
}

/// Waits until a descriptor is readable; `false` at the timeout.
pub(crate) fn wait(fds: &[RawFd], timeout: Duration) -> bool {
    let mut polled: Vec<libc::pollfd> = fds
        .iter()
        .map(|&fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    // SAFETY: passes an array of initialised entries and its length.
    let ready = unsafe {
        libc::poll(
            polled.as_mut_ptr(),
            polled.len() as libc::nfds_t,
            timeout.as_millis() as libc::c_int,
        )
    };
    ready > 0
}

/// A worker that passes frames between two queues both ways, sleeping when there are none.
pub(crate) struct Forwarder {
    stop: Arc<AtomicBool>,
    workers: Vec<JoinHandle<Report>>,
}

/// What a worker did.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) left: QueueStats,
    pub(crate) right: QueueStats,
    /// Frames missing in the pool after closing.
    pub(crate) missing: usize,
    pub(crate) sleeps: u64,
}

impl Forwarder {
    /// Starts one worker for each pool; it owns the queues of its number.
    pub(crate) fn start(left: OpenPort, right: OpenPort, pools: Vec<Pool>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let queues = left.queues.into_iter().zip(right.queues);
        let workers = queues
            .zip(pools)
            .map(|((left, right), pool)| {
                let stop = Arc::clone(&stop);
                std::thread::spawn(move || work(left, right, pool, &stop))
            })
            .collect();
        Self { stop, workers }
    }

    /// Opens both node ports of a line in the same way and starts.
    pub(crate) fn between(line: &Line, spec: &AfXdpSpec, pools: Vec<Pool>) -> Self {
        let workers = pools.len() as u16;
        let port = |device: &str| {
            let spec = AfXdpSpec {
                interface: device.to_owned(),
                ..spec.clone()
            };
            open(&line.node, spec, pools[0].region(), workers).unwrap()
        };
        let (left, right) = (port(&line.left.node_device), port(&line.right.node_device));
        println!("mode: {}; refused: {:?}", left.mode, left.refused);
        Self::start(left, right, pools)
    }

    /// Stops, closes all queues and checks that no frame is missing.
    pub(crate) fn stop(self) -> Vec<Report> {
        self.stop.store(true, Ordering::Relaxed);
        let reports: Vec<Report> = self
            .workers
            .into_iter()
            .map(|worker| worker.join().unwrap())
            .collect();
        let missing: usize = reports.iter().map(|report| report.missing).sum();
        assert_eq!(missing, 0, "frames lost to their pools");
        reports
    }
}

fn pass(from: &mut dyn Queue, to: &mut dyn Queue, pool: &mut Pool, batch: &mut Batch) -> usize {
    let received = from.rx(pool, batch);
    while !batch.is_empty() {
        if to.tx(pool, batch) == 0 {
            // Full: drop the rest, as a node without a hold policy does.
            pool.free_batch(batch);
        }
    }
    received
}

fn armed(queue: &mut dyn Queue) -> Option<RawFd> {
    match queue.arm() {
        Arm::Armed(fd) => Some(fd.as_raw_fd()),
        Arm::Ready | Arm::Unsupported => None,
    }
}

fn work(
    mut left: Box<dyn Queue>,
    mut right: Box<dyn Queue>,
    mut pool: Pool,
    stop: &AtomicBool,
) -> Report {
    let mut batch = Batch::new();
    let mut sleeps = 0;
    while !stop.load(Ordering::Relaxed) {
        let mut passed = pass(&mut *left, &mut *right, &mut pool, &mut batch);
        passed += pass(&mut *right, &mut *left, &mut pool, &mut batch);
        if passed == 0
            && let (Some(left), Some(right)) = (armed(&mut *left), armed(&mut *right))
        {
            wait(&[left, right], Duration::from_millis(50));
            sleeps += 1;
        }
    }
    let report = |queue: &dyn Queue| queue.stats();
    let (left_stats, right_stats) = (report(&*left), report(&*right));
    let kept = left.close(&mut pool) + right.close(&mut pool);
    let strays = pool.strays();
    for stray in pool.take_strays().collect::<Vec<_>>() {
        // Its own pool belongs to another thread; the counts are compared as a sum.
        let _ = stray.compact();
    }
    Report {
        left: left_stats,
        right: right_stats,
        missing: (pool.capacity() - pool.available() + kept) - strays,
        sleeps,
    }
}

/// Repeats `step` until it says that it is done; fails after a time.
pub(crate) fn until(what: &str, limit: Duration, mut step: impl FnMut() -> bool) {
    let start = Instant::now();
    while !step() {
        assert!(start.elapsed() < limit, "{what}: not within {limit:?}");
    }
}
