//! Forwarders over devices of DPDK, ours and testpmd, for the programs that compare them.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use graph::{Mode, Next, Worker, WorkerHandle};
use io::dpdk::DpdkSpec;
use io::port::{self, DriverSpec, PortSpec};
use io::{Arm, BATCH_MAX, Batch, Capabilities, HugePages, Pool, PortId, Queue, QueueStats};
use lab::peer::testpmd::{FLOWGEN_MAC, ForwardMode, Testpmd, TestpmdOptions};
use wire::MacAddr;

use crate::memory::FRAME_BYTES;
use crate::workers::{ip4_frame, router_graph, worker_in_mode};

/// Frames of our forwarders and testpmd's packet buffers.
pub const FRAMES: u32 = 16_384;
/// Bytes of a slot: net_af_xdp needs 4 KiB for packets of 1,500 bytes.
const SLOT_BYTES: u32 = 4096;
/// Descriptors of each ring.
pub const DESCRIPTORS: u16 = 1024;
/// Headers (Ethernet, IPv4, UDP) that are written anew where a device gives frames back as they were sent.
const HEADER_BYTES: usize = 42;
/// How long a device may take until packets come.
const PATIENCE: Duration = Duration::from_secs(10);

/// A kind of device, in the place where forwarders are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// net_null: frames from nowhere to nowhere.
    Null,
    /// net_ring: a burst that circles.
    Ring,
    /// net_vhost, with virtio-user in another process.
    Vhost,
    /// net_af_xdp, between two veth ports.
    AfXdp,
}

impl Device {
    /// All of them, by name.
    pub const ALL: [(&'static str, Self); 4] = [
        ("net_null", Self::Null),
        ("net_ring", Self::Ring),
        ("net_vhost", Self::Vhost),
        ("net_af_xdp", Self::AfXdp),
    ];
}

/// What a forwarder does with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Work {
    /// Passes it on untouched.
    L2,
    /// Routes it: parse, longest-prefix match, TTL, checksum, rewrite.
    L3,
}

impl Work {
    /// Returns its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::L2 => "l2",
            Self::L3 => "l3",
        }
    }
}

/// Passes what one device receives to the other, or back where there is one only.
#[derive(Debug)]
struct Relay {
    queues: Vec<Box<dyn Queue>>,
    pool: Pool,
    batch: Batch,
}

impl Relay {
    fn turn(&mut self) -> u64 {
        let last = self.queues.len() - 1;
        let mut sent = 0;
        for side in 0..=last {
            self.queues[side].rx(&mut self.pool, &mut self.batch);
            sent += self.queues[last - side].tx(&mut self.pool, &mut self.batch) as u64;
            self.pool.free_batch(&mut self.batch);
        }
        sent
    }
}

/// Our forwarder of one thread, which polls.
#[derive(Debug)]
pub struct Ours(Engine);

#[derive(Debug)]
enum Engine {
    Relay(Box<Relay>),
    Router(Box<(Worker, WorkerHandle)>),
}

impl Ours {
    /// Opens the devices and prepares to forward between them.
    ///
    /// # Errors
    /// DPDK refuses, or there is no memory.
    pub fn open(device: Device, vdevs: &[String], work: Work) -> Result<Self> {
        let (pool, queues) = open(device, vdevs)?;
        Ok(Self(match work {
            Work::L2 => Engine::Relay(Box::new(Relay {
                queues,
                pool,
                batch: Batch::new(),
            })),
            Work::L3 => Engine::Router(Box::new(router(device, pool, queues, Mode::Poll))),
        }))
    }

    /// Makes one turn; returns how many packets were sent.
    #[inline]
    pub fn turn(&mut self) -> u64 {
        match &mut self.0 {
            Engine::Relay(relay) => relay.turn(),
            Engine::Router(router) => {
                let worker = &mut router.0;
                let before = worker.counters().tx_pkts.get();
                worker.step(io::cpu::now());
                worker.counters().tx_pkts.get() - before
            }
        }
    }

    /// Forwards for `window` once packets come; returns millions of packets sent a second.
    ///
    /// # Errors
    /// No packet comes.
    pub fn measure(&mut self, window: Duration) -> Result<f64> {
        self.until(|sent| sent > 0)?;
        self.run(Duration::from_millis(100));
        let start = Instant::now();
        let sent = self.run(window);
        Ok(sent as f64 / start.elapsed().as_secs_f64() / 1e6)
    }

    /// Forwards until the number of packets sent satisfies `done`.
    fn until(&mut self, done: impl Fn(u64) -> bool) -> Result<()> {
        let start = Instant::now();
        let mut sent = 0;
        while !done(sent) {
            sent += self.turn();
            ensure!(start.elapsed() < PATIENCE, "no packet comes");
        }
        Ok(())
    }

    fn run(&mut self, window: Duration) -> u64 {
        let start = Instant::now();
        let mut sent = 0;
        while start.elapsed() < window {
            for _ in 0..64 {
                sent += self.turn();
            }
        }
        sent
    }

    /// Turns until the vhost device listens.
    ///
    /// # Errors
    /// It does not.
    pub fn listen(&mut self, socket: &Path) -> Result<()> {
        let start = Instant::now();
        while !socket.exists() {
            self.turn();
            ensure!(start.elapsed() < PATIENCE, "the device does not listen");
        }
        Ok(())
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        match &mut self.0 {
            Engine::Relay(relay) => {
                for queue in &mut relay.queues {
                    queue.close(&mut relay.pool);
                }
            }
            Engine::Router(router) => {
                let (worker, handle) = &mut **router;
                let start = Instant::now();
                if handle.drain().is_ok() {
                    while worker.step(io::cpu::now()) != Next::Stopped && start.elapsed() < PATIENCE
                    {
                    }
                }
            }
        }
    }
}

/// Makes the worker of a router over one device of this kind that waits as `mode` says.
///
/// # Errors
/// DPDK refuses, or there is no memory.
pub fn waiting_router(device: Device, vdev: &str, mode: Mode) -> Result<(Worker, WorkerHandle)> {
    let (pool, queues) = open(device, &[vdev.to_owned()])?;
    Ok(router(device, pool, queues, mode))
}

fn open(device: Device, vdevs: &[String]) -> Result<(Pool, Vec<Box<dyn Queue>>)> {
    let mut pool = Pool::new(FRAMES, SLOT_BYTES, HugePages::Auto)?;
    let mut queues = Vec::new();
    for (id, vdev) in (0..).zip(vdevs) {
        let spec = DriverSpec::Dpdk(DpdkSpec {
            descriptors: DESCRIPTORS,
            ..DpdkSpec::new(vdev)
        });
        let port = PortSpec::new(PortId(id), vdev.as_str(), spec);
        queues.append(&mut port::open(&port, pool.region(), 1)?.queues);
    }
    if device == Device::Ring {
        // As testpmd's `--tx-first`.
        for queue in &mut queues {
            prime(queue.as_mut(), &mut pool)?;
        }
    }
    Ok((pool, queues))
}

/// Sends the first burst.
fn prime(queue: &mut dyn Queue, pool: &mut Pool) -> Result<()> {
    let mut batch = Batch::new();
    pool.alloc_batch(BATCH_MAX, &mut batch);
    for frame in batch.iter_mut() {
        frame.set_len(FRAME_BYTES);
    }
    let start = Instant::now();
    while !batch.is_empty() {
        queue.tx(pool, &mut batch);
        ensure!(start.elapsed() < PATIENCE, "the device does not start");
    }
    Ok(())
}

fn router(
    device: Device,
    pool: Pool,
    queues: Vec<Box<dyn Queue>>,
    mode: Mode,
) -> (Worker, WorkerHandle) {
    let macs = match device {
        Device::Vhost => [FLOWGEN_MAC; 2],
        _ => ROUTER_MACS,
    };
    let graph = router_graph(macs.map(MacAddr), pool.capacity());
    let mut queues: Vec<_> = queues
        .into_iter()
        .map(|queue| {
            Some(match device {
                Device::Null | Device::Ring => Box::new(Renewed::new(queue)) as Box<dyn Queue>,
                Device::Vhost | Device::AfXdp => queue,
            })
        })
        .collect();
    queues.resize_with(2, || None);
    worker_in_mode(pool, queues, graph, mode)
}

/// MAC addresses of the router's ports, but over net_vhost.
pub const ROUTER_MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 0], [2, 0, 0, 0, 0, 1]];

/// A queue whose device gives frames back as they were sent: each is made a packet for the router again, in
/// the receiver's time.
#[derive(Debug)]
struct Renewed {
    queue: Box<dyn Queue>,
    headers: Vec<[u8; HEADER_BYTES]>,
    next: usize,
}

impl Renewed {
    fn new(queue: Box<dyn Queue>) -> Self {
        let header = |flow: u16| {
            let frame = ip4_frame(
                MacAddr(ROUTER_MACS[0]),
                [10, 16, (flow >> 8) as u8, flow as u8],
            );
            core::array::from_fn(|at| frame[at])
        };
        Self {
            queue,
            headers: (0..1024).map(header).collect(),
            next: 0,
        }
    }
}

impl Queue for Renewed {
    fn rx(&mut self, pool: &mut Pool, batch: &mut Batch) -> usize {
        let before = batch.len();
        let got = self.queue.rx(pool, batch);
        for frame in batch.iter_mut().skip(before) {
            let header = &self.headers[self.next % self.headers.len()];
            self.next += 1;
            if let Some(start) = frame.data_mut().first_chunk_mut() {
                *start = *header;
            }
        }
        got
    }

    fn tx(&mut self, pool: &mut Pool, batch: &mut Batch) -> usize {
        self.queue.tx(pool, batch)
    }

    fn arm(&mut self) -> Arm<'_> {
        self.queue.arm()
    }

    fn disarm(&mut self) {
        self.queue.disarm();
    }

    fn capabilities(&self) -> &Capabilities {
        self.queue.capabilities()
    }

    fn stats(&self) -> QueueStats {
        self.queue.stats()
    }

    fn close(&mut self, pool: &mut Pool) -> usize {
        self.queue.close(pool)
    }
}

/// Where processes run and sockets are.
#[derive(Debug)]
pub struct Place {
    /// The core that forwards.
    pub forward_cpu: usize,
    /// The core of everything else.
    pub other_cpu: usize,
    directory: tempfile::TempDir,
    next: AtomicU32,
}

impl Place {
    /// Takes the last core for the forwarder and the first for everything else.
    ///
    /// # Errors
    /// There is one core only, or no directory for sockets.
    pub fn new() -> Result<Self> {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        ensure!(cpus >= 2, "forwarder and generator need a core each");
        Ok(Self {
            forward_cpu: cpus - 1,
            other_cpu: 0,
            directory: tempfile::tempdir()?,
            next: AtomicU32::new(0),
        })
    }

    /// Returns a number that nothing had before.
    pub fn number(&self) -> u32 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns a path for another socket of vhost-user.
    pub fn socket(&self) -> PathBuf {
        self.directory
            .path()
            .join(format!("{}.sock", self.number()))
    }

    /// Starts the process behind a vhost socket: virtio-user, in this mode.
    ///
    /// # Errors
    /// testpmd does not run.
    pub fn behind(&self, socket: &Path, mode: ForwardMode) -> Result<Testpmd> {
        let vdev = format!("net_virtio_user0,path={},queue_size=1024", socket.display());
        let mut testpmd = Testpmd::start(
            None,
            &TestpmdOptions {
                vdevs: vec![vdev],
                mode,
                // Its own main thread sleeps: both may be on one core.
                forward_cpu: self.other_cpu,
                main_cpu: self.forward_cpu,
                mbufs: FRAMES,
                extra: ["--burst=64", "--txpkts=60", "--rxd=1024", "--txd=1024"]
                    .map(str::to_owned)
                    .into(),
            },
        )?;
        testpmd.wait_until_forwarding().context("virtio-user")?;
        Ok(testpmd)
    }

    /// Starts testpmd as the forwarder of these devices.
    ///
    /// # Errors
    /// It does not start.
    pub fn testpmd(
        &self,
        namespace: Option<&lab::netns::Namespace>,
        vdevs: Vec<String>,
        mode: ForwardMode,
        first: bool,
    ) -> Result<Testpmd> {
        let mut extra = vec![
            "--burst=64".to_owned(),
            format!("--rxd={DESCRIPTORS}"),
            format!("--txd={DESCRIPTORS}"),
        ];
        extra.extend(first.then(|| "--tx-first".to_owned()));
        Ok(Testpmd::start(
            namespace,
            &TestpmdOptions {
                vdevs,
                mode,
                forward_cpu: self.forward_cpu,
                main_cpu: self.other_cpu,
                mbufs: FRAMES,
                extra,
            },
        )?)
    }
}
