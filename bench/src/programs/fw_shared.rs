//! The paper's throughput test (LF-5) and its time in the update (LF-6): two workers forward frames of the sizes of RFC
//! 2544, each packet is counted in a counter that both share, by its UDP destination port, and the counters are under
//! a reader-writer lock, or lock-free. In memory: no line limits it, and no packet is lost at any rate, so that the
//! throughput of RFC 2544 26.1 is the rate of the loop.

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use bench::memory::{Forwarder, Queues, working_forward};
use bench::shared_counters::{Shared, schemes};
use bench::{Options, Report, Table, median};
use io::cpu::{allowed, pin, thread_time};
use io::{BATCH_MAX, Batch};
use serde_json::json;
use wire::{Addresses, ip_protocol, ipv4, udp};

/// Frame sizes of RFC 2544 9.1, bytes on the wire.
const SIZES: [u16; 7] = [64, 128, 256, 512, 1024, 1280, 1518];
/// Workers: as many as compete for a counter in the paper at a time.
const WORKERS: usize = 2;
/// Ports that the tester goes through, one more with each frame; both workers the same.
const PORTS: u16 = 1024;
/// Frames of a worker.
const FRAMES: u32 = 512;
/// Packets of LF-6.
const PACKETS: f64 = 500_000.0;
/// What is compared: the paper's two, and what this project counts with where it can.
const COMPARED: [&str; 5] = ["rwlock_spin", "rwlock_std", "cas", "fetch_add", "per_core"];

/// A scheme, or none: what forwarding alone costs.
type Scheme = Option<Arc<dyn Shared>>;

/// Makes the tester's frames of a size on the wire, FCS included.
fn templates(size: u16, ports: u16) -> Vec<Vec<u8>> {
    (0..ports)
        .map(|port| {
            let mut frame = vec![0; usize::from(size) - 4];
            frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
            let (source, destination) = ([198, 18, 0, 2].into(), [198, 19, 0, 2].into());
            let bytes = frame.len() - 14 - ipv4::HEADER_BYTES;
            let header = ipv4::Repr::new(source, destination, ip_protocol::UDP, bytes as u16);
            header.emit(&mut frame[14..]).expect("room for a header");
            let datagram = udp::Repr {
                source_port: 49_152,
                destination_port: 7 + port,
            };
            let addresses = Addresses::V4 {
                source,
                destination,
            };
            let segment = &mut frame[14 + ipv4::HEADER_BYTES..];
            datagram.emit(segment, &addresses).expect("room for a header");
            frame
        })
        .collect()
}

/// Reads the destination ports of a batch.
fn ports_of<'a>(batch: &Batch, ports: &'a mut [u16; BATCH_MAX]) -> &'a [u16] {
    let mut count = 0;
    for (frame, port) in batch.iter().zip(ports.iter_mut()) {
        let data = frame.data();
        let Ok(layout) = wire::parse(data) else {
            continue;
        };
        let at = usize::from(layout.transport) + 2;
        if let Some(&[high, low]) = data.get(at..).and_then(<[u8]>::first_chunk) {
            *port = u16::from_be_bytes([high, low]);
            count += 1;
        }
    }
    &ports[..count]
}

/// A worker that forwards and counts; `updates` gets the time of each batch's update, if there is one.
fn worker(
    index: usize,
    templates: Vec<Vec<u8>>,
    scheme: Scheme,
    updates: Option<std::sync::mpsc::Sender<Duration>>,
) -> Queues {
    let mut ports = [0; BATCH_MAX];
    let work = move |batch: &Batch| {
        let ports = ports_of(batch, &mut ports);
        let Some(scheme) = &scheme else {
            std::hint::black_box(ports);
            return;
        };
        match &updates {
            None => scheme.run(index, ports, ports.len(), 0),
            Some(updates) => {
                let start = Instant::now();
                scheme.run(index, ports, ports.len(), 0);
                // Nobody listens any more when the run is over.
                let _ = updates.send(start.elapsed());
            }
        }
    };
    working_forward(FRAMES, templates, Box::new(work))
}

/// Lets two workers forward for `window`; returns packets a second of both, by the time that each had a processor.
fn forward(size: u16, ports: u16, scheme: &Scheme, window: Duration) -> f64 {
    let cpus = allowed().unwrap_or_default();
    let barrier = Barrier::new(WORKERS);
    let before = scheme.as_ref().map(|scheme| scheme.total());
    let (rates, packets): (Vec<f64>, Vec<u64>) = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|index| {
                let (barrier, cpus) = (&barrier, &cpus);
                scope.spawn(move || {
                    if let Some(cpu) = cpus.get(index) {
                        let _ = pin(*cpu);
                    }
                    let mut queues = worker(index, templates(size, ports), scheme.clone(), None);
                    barrier.wait();
                    let start = thread_time();
                    let packets = queues.run(Instant::now() + window);
                    (packets as f64 / (thread_time() - start).as_secs_f64(), packets)
                })
            })
            .collect();
        let join = |worker: std::thread::ScopedJoinHandle<'_, _>| worker.join().expect("no panic");
        workers.into_iter().map(join).unzip()
    });
    if let (Some(before), Some(scheme)) = (before, scheme) {
        let counted = scheme.total() - before;
        assert_eq!(counted, packets.iter().sum::<u64>(), "every packet is counted once");
    }
    rates.iter().sum()
}

/// Nanoseconds of a packet's update while two workers forward: half of the batches take no longer (LF-6).
fn update_ns(size: u16, scheme: &Scheme, window: Duration) -> f64 {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        for index in 0..WORKERS {
            let sender = (index == 0).then(|| sender.clone());
            scope.spawn(move || {
                if let Some(cpu) = allowed().unwrap_or_default().get(index) {
                    let _ = pin(*cpu);
                }
                worker(index, templates(size, PORTS), scheme.clone(), sender)
                    .run(Instant::now() + window);
            });
        }
    });
    drop(sender);
    let times: Vec<f64> = receiver.iter().map(|time| time.as_nanos() as f64).collect();
    median(&times) / BATCH_MAX as f64
}

pub(crate) fn main() {
    let options = bench::parse::<Options>();
    // 7 sizes, 6 subjects, so many rounds: within three minutes by default.
    let window = options.window() / 5;
    let mut report = Report::new("fw_shared");
    let mut subjects: Vec<(&str, Scheme)> = vec![("none", None)];
    for (name, scheme) in schemes() {
        if COMPARED.contains(&name) {
            subjects.push((name, Some(Arc::from(scheme))));
        }
    }
    let mut table = Table::new(
        "LF-5: Mpps of two workers by frame size; each packet counted by its port in shared counters",
        &[
            "bytes", "no counter", "rwlock (spinning)", "rwlock (std)", "compare-and-swap",
            "fetch-add", "a row a worker", "lock-free gains, %", "the paper, %",
        ],
    );
    for size in SIZES {
        let rates = measure(size, PORTS, &subjects, window, options.rounds);
        let of = |name: &str| rate_of(&subjects, &rates, name);
        let gain = of("cas") / of("rwlock_spin");
        let paper = match size {
            64 => json!(23.68),
            128 => json!(22.61),
            _ => json!("line rate"),
        };
        let mut row = vec![json!(size)];
        row.extend(rates.iter().map(|rate| json!(rate / 1e6)));
        row.extend([json!((gain - 1.0) * 100.0), paper]);
        table.rows.push(row);
        report.figure(&format!("cas_to_rwlock_{size}"), gain);
        report.figure(&format!("per_core_to_rwlock_{size}"), of("per_core") / of("rwlock_spin"));
        report.figure(&format!("cas_mpps_{size}"), of("cas") / 1e6);
    }
    report.table(table);

    // All packets to one port: both workers always want the same counter.
    let rates = measure(64, 1, &subjects, window, options.rounds);
    let of = |name: &str| rate_of(&subjects, &rates, name);
    report.figure("cas_to_rwlock_64_one_port", of("cas") / of("rwlock_spin"));
    report.figure("per_core_to_rwlock_64_one_port", of("per_core") / of("rwlock_spin"));

    let mut table = Table::new(
        "LF-6: time in the update of the shared counters for 500,000 packets of 64 bytes, two workers",
        &["scheme", "ns a packet", "ms for 500,000", "share of a packet's time", "Amdahl: two workers"],
    );
    let alone = rate_of(&subjects, &measure(64, PORTS, &subjects[..1], window, options.rounds), "none");
    let private_ns = 1e9 * WORKERS as f64 / alone;
    for (name, scheme) in subjects.iter().filter(|(_, scheme)| scheme.is_some()) {
        let samples: Vec<f64> = (0..options.rounds).map(|_| update_ns(64, scheme, window)).collect();
        let ns = median(&samples);
        let serial = ns / (ns + private_ns);
        let amdahl = 1.0 / (serial + (1.0 - serial) / WORKERS as f64);
        table.rows.push(vec![
            json!(name), json!(ns), json!(ns * PACKETS / 1e6), json!(serial), json!(amdahl),
        ]);
        report.figure(&format!("{name}_update_ns"), ns);
    }
    report.table(table);
    report.note("a worker's rate is its packets by the time that it had a processor; a lock that sleeps (std) is not charged for its wait");
    report.note("the paper's rates from 256 bytes on are those of its gigabit lines; here there is no line");
    report.print(&options);
}

fn measure(
    size: u16,
    ports: u16,
    subjects: &[(&str, Scheme)],
    window: Duration,
    rounds: usize,
) -> Vec<f64> {
    let mut measured: Vec<Box<dyn FnMut() -> f64 + '_>> = subjects
        .iter()
        .map(|(_, scheme)| Box::new(move || forward(size, ports, scheme, window)) as _)
        .collect();
    let mut turns: Vec<&mut dyn FnMut() -> f64> =
        measured.iter_mut().map(|subject| subject.as_mut() as _).collect();
    let samples = bench::rounds(rounds, &mut turns);
    samples.iter().map(|samples| median(samples)).collect()
}

fn rate_of(subjects: &[(&str, Scheme)], rates: &[f64], name: &str) -> f64 {
    let mut found = subjects.iter().zip(rates);
    found.find(|((subject, _), _)| *subject == name).map_or(f64::NAN, |(_, rate)| *rate)
}
