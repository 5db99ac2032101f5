//! A primary process of DPDK and its guests: they share ports, frames, and a flow map in a memzone; either is
//! killed, and the other goes on.
#![cfg(feature = "dpdk")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use io::dpdk::DpdkSpec;
use io::dpdk::process::{self, SharedFrames};
use io::port::{DriverSpec, PortSpec};
use io::{Batch, Pool, PortId, Queue};
use lab::vdev::SharedMemory;
use tables::flow_map::FlowMap;
use tables::quiescent::Domain;
use tables::segment::{Segment, SegmentError};
use tables::signature::{Keyed, Session4, SessionKey};
use tables::slots::{SlotLine, SlotMemory};

const ROLE: &str = "TIDEGATE_DPDK_PROCESSES";
const FRAMES: SharedFrames = SharedFrames {
    frames_per_worker: 4096,
    frame_bytes: 2048,
    workers: 1,
    guests: 1,
};
const RING: &str = "net_ring_shared";
const NULL: &str = "net_null_shared,size=64";
const LAYOUT: u64 = 0x0d9d_0001;
const HASH: Keyed = Keyed::new([3, 1, 4, 1]);
const CONNECTIONS: usize = 256;
const PATIENCE: Duration = Duration::from_secs(30);

fn session(n: u32) -> Session4 {
    Session4 {
        source: 0x0a00_0000 + n,
        destination: 0x0808_0808,
        source_port: 1024,
        destination_port: 53,
        protocol: 17,
    }
}

/// Reserves the objects of a flow map.
fn reserve(segment: &Segment) -> Result<(), SegmentError> {
    let buckets = SlotMemory::<Session4>::buckets_for(2 * CONNECTIONS);
    segment.reserve::<SlotLine>("flow words", buckets)?;
    let records = SlotMemory::<Session4>::records_in(buckets);
    segment.reserve::<<Session4 as SessionKey>::Record>("flow records", records)?;
    segment.reserve::<CachePadded<AtomicU64>>("domain", 4)?;
    Ok(())
}

fn memory(segment: &Segment) -> Result<(SlotMemory<Session4>, Domain), SegmentError> {
    let memory = SlotMemory {
        lines: segment.lookup("flow words")?,
        records: segment.lookup("flow records")?,
    };
    Ok((memory, Domain::with_memory(segment.lookup("domain")?)))
}

/// What a process of the group does: circles frames through its queues of both ports, and adds the flows and
/// answers the questions that come line by line.
struct Member {
    pool: Pool,
    queues: Vec<Box<dyn Queue>>,
    segment: Segment,
    flows: FlowMap<Session4>,
    rounds: u64,
}

impl Member {
    fn start(role: &str, group: &str) -> Result<Self, String> {
        let text = |error: process::SharingError| error.to_string();
        let primary = role == "primary";
        let pool = match primary {
            true => process::host(group, FRAMES).map_err(text)?.remove(0),
            false => process::join(group, 0).map_err(text)?,
        };
        let mut queues = Vec::new();
        for (id, device) in [RING, NULL].into_iter().enumerate() {
            let spec = DriverSpec::Dpdk(DpdkSpec::new(device));
            let port = io::port::open(
                &PortSpec::new(PortId(id as u16), device, spec),
                pool.region(),
                1,
            );
            queues.append(&mut port.map_err(|error| error.to_string())?.queues);
        }
        assert_eq!(queues.len(), 2, "one queue of each port");
        let segment = match primary {
            true => process::create_segment("flows", 1 << 20, LAYOUT),
            false => process::attach_segment("flows", LAYOUT),
        };
        let segment = segment.map_err(text)?;
        if primary {
            reserve(&segment).unwrap();
        }
        let (memory, domain) = memory(&segment).unwrap();
        Ok(Self {
            pool,
            queues,
            segment,
            flows: FlowMap::with_memory(memory, HASH, domain),
            rounds: 0,
        })
    }

    /// Sends marked frames around the ring, and takes frames from one device to give them to the other.
    fn turn(&mut self, mark: u8) {
        let mut batch = Batch::new();
        let [ring, null] = self.queues.as_mut_slice() else {
            panic!("two queues");
        };
        null.rx(&mut self.pool, &mut batch);
        for frame in batch.iter_mut() {
            frame.data_mut()[..2].copy_from_slice(&[mark, 64]);
        }
        ring.tx(&mut self.pool, &mut batch);
        self.pool.free_batch(&mut batch);
        if ring.rx(&mut self.pool, &mut batch) > 0 {
            assert!(
                batch
                    .iter()
                    .all(|frame| frame.data()[..2] == [mark, 64] && frame.len() == 64)
            );
            self.rounds += 1;
        }
        null.tx(&mut self.pool, &mut batch);
        self.pool.free_batch(&mut batch);
    }

    fn answer(&mut self, question: &str) -> String {
        let words: Vec<&str> = question.split(' ').collect();
        match words.as_slice() {
            ["rounds"] => self.rounds.to_string(),
            ["free"] => self.pool.available().to_string(),
            ["add", n] => {
                let mut worker = self.flows.join().expect("a place in the domain");
                let key = session(n.parse().unwrap());
                let done = self.flows.insert(&mut worker, &key, None, &[7; 5]);
                format!("{}", done.is_ok())
            }
            ["find", n] => {
                let found = self.flows.find(&session(n.parse().unwrap()));
                let values = found.and_then(|flow| self.flows.values(flow.connection));
                let whole =
                    values.is_some_and(|v| v.iter().all(|w| w.load(Ordering::Relaxed) == 7));
                whole.to_string()
            }
            ["owner"] => self.segment.has_living_owner().to_string(),
            ["inherit"] => match process::recover_segment("flows", LAYOUT) {
                Ok(segment) => {
                    self.segment = segment;
                    format!("generation {}", self.segment.generation())
                }
                Err(error) => error.to_string(),
            },
            ["close"] => {
                let gave: usize = self
                    .queues
                    .iter_mut()
                    .map(|queue| queue.close(&mut self.pool))
                    .sum();
                format!("gave {gave}, has {}", self.pool.available())
            }
            other => format!("what is {other:?}?"),
        }
    }
}

/// Not a test of its own: what a process of the group does.
#[test]
fn member() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let (role, group) = role.split_once(' ').expect("role and group");
    let say = |line: &str| {
        println!("\n> {line}");
        std::io::stdout().flush().unwrap();
    };
    let mut member = match Member::start(role, group) {
        Ok(member) => member,
        Err(error) => {
            say(&error);
            std::process::exit(0);
        }
    };
    let (ask, asked) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if ask.send(line).is_err() {
                return;
            }
        }
    });
    say("runs");
    let mark = if role == "primary" { 1 } else { 2 };
    let deadline = Instant::now() + 4 * PATIENCE;
    while Instant::now() < deadline {
        member.turn(mark);
        match asked.try_recv() {
            Ok(question) => {
                let answer = member.answer(&question);
                say(&answer);
                if question == "close" {
                    std::process::exit(0);
                }
            }
            Err(std::sync::mpsc::TryRecvError::Disconnected) => std::process::exit(0),
            Err(std::sync::mpsc::TryRecvError::Empty) => {
                std::thread::sleep(Duration::from_micros(200))
            }
        }
    }
}

struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Process {
    fn start(role: &str, group: &str) -> (Self, String) {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "member", "--nocapture", "--test-threads=1"])
            .env(ROLE, format!("{role} {group}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut process = Self {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
        };
        let first = process.line();
        (process, first)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            let read = self.output.read_line(&mut line).unwrap();
            assert!(read > 0, "the process ended");
            if let Some(said) = line.strip_prefix("> ") {
                return said.trim_end().to_owned();
            }
        }
    }

    fn ask(&mut self, question: &str) -> String {
        writeln!(self.input, "{question}").unwrap();
        self.line()
    }

    fn number(&mut self, question: &str) -> u64 {
        self.ask(question).parse().unwrap()
    }

    /// Waits until frames have gone around `n` times more.
    fn forwards(&mut self, n: u64) {
        let target = self.number("rounds") + n;
        let deadline = Instant::now() + PATIENCE;
        while self.number("rounds") < target {
            assert!(Instant::now() < deadline, "it forwards no more");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn either_process_is_killed_and_the_other_goes_on() {
    let test = "either_process_is_killed_and_the_other_goes_on";
    let Some(_memory) = SharedMemory::get(test, 64) else {
        return;
    };
    let group = format!("tidegate-test-{}", std::process::id());
    let (mut primary, said) = Process::start("primary", &group);
    assert_eq!(said, "runs");
    primary.forwards(20);
    assert_eq!(primary.ask("add 1"), "true");

    // A guest joins, forwards over queues of its own, and shares the flow map.
    let (mut guest, said) = Process::start("guest", &group);
    assert_eq!(said, "runs");
    guest.forwards(20);
    primary.forwards(20);
    assert_eq!(guest.ask("find 1"), "true");
    assert_eq!(guest.ask("add 2"), "true");
    assert_eq!(primary.ask("find 2"), "true");
    assert_eq!(primary.ask("find 3"), "false");
    let (_, said) = Process::start("guest", &group);
    assert!(said.contains("another process is guest 0"), "{said}");

    // It is killed; the primary does not notice, and what it added stays.
    guest.kill();
    primary.forwards(50);
    assert_eq!(primary.ask("find 2"), "true");

    // The next guest has its frames: all but two bursts that may have been on their way to a driver.
    let (mut guest, said) = Process::start("guest", &group);
    assert_eq!(said, "runs");
    guest.forwards(40);
    // Without what the dead one had, it would have less than half.
    assert!(guest.number("free") > 2500);
    let given = "gave 4096, has 0";
    assert_eq!(guest.ask("close"), given, "it gives them all back");
    drop(guest);
    let (mut guest, _) = Process::start("guest", &group);
    guest.forwards(20);

    // The primary is killed: its guest forwards on, has the flows, and takes the segment over.
    assert_eq!(guest.ask("owner"), "true");
    let refused = guest.ask("inherit");
    assert!(refused.contains("own"), "{refused}");
    primary.kill();
    guest.forwards(50);
    assert_eq!(guest.ask("owner"), "false");
    assert_eq!(
        (guest.ask("find 1"), guest.ask("find 2")),
        ("true".into(), "true".into())
    );
    assert_eq!(guest.ask("inherit"), "generation 2");
    assert_eq!(guest.ask("add 3"), "true");
    guest.forwards(20);

    // No new primary beside it; with the guest gone, there is one.
    let (_, said) = Process::start("primary", &group);
    assert!(said.contains("end them first"), "{said}");
    guest.kill();
    let (mut primary, said) = Process::start("primary", &group);
    assert_eq!(said, "runs");
    primary.forwards(20);
    assert_eq!(primary.ask("find 1"), "false", "new memory");
    assert!(primary.ask("close").starts_with("gave 0"));
    let _ = std::fs::remove_dir_all(format!("/var/run/dpdk/{group}"));
}
