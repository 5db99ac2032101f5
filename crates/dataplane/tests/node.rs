//! A whole running node over links inside this process: threads, reload, capture, stop.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use control::Config;
use control::api::{CapturePoint, CaptureRequest};
use dataplane::{Dataplane, ReloadError};
use io::pcapng::Reader;
use io::port::{DriverSpec, PortSpec};
use io::{Batch, HugePages, Pool, PortId, Queue, mem};

const CONFIG: &str = r#"
[idle]
mode = "interrupt"
[[port]]
name = "lan"
driver = "mem"
mac = "02:00:00:00:00:01"
addresses = ["192.0.2.1/24"]
"#;

/// The station on the other end of the node's link.
struct Station {
    queue: Box<dyn Queue>,
    pool: Pool,
}

impl Station {
    /// Starts a node and the station beside it.
    fn beside(config: &str) -> (Dataplane, Self) {
        let (inner, outer) = mem::link(mem::LinkSpec::default());
        let links = HashMap::from([("lan".to_owned(), inner)]);
        let config: Config = toml::from_str(config).expect("TOML");
        let node = Dataplane::start_with_links(&config, None, &links).expect("the node starts");
        let pool = Pool::new(256, 2048, HugePages::Never).expect("a pool");
        let spec = PortSpec::new(PortId(0), "station", DriverSpec::Mem(outer));
        let mut port = io::port::open(&spec, pool.region(), 1).expect("the other end");
        let queue = port.queues.remove(0);
        (node, Self { queue, pool })
    }

    fn send(&mut self, bytes: &[u8]) {
        let mut frame = self.pool.alloc().expect("a frame");
        assert!(frame.fill(bytes));
        let mut batch = Batch::new();
        batch.push(frame).expect("there is room");
        assert_eq!(self.queue.tx(&mut self.pool, &mut batch), 1);
    }

    /// Waits for an ARP reply from `address`; tells whether it came in time.
    fn is_answered_by(&mut self, address: [u8; 4], patience: Duration) -> bool {
        self.wait_for(patience, |data| {
            data[12..14] == [8, 6] && data[21] == 2 && data[28..32] == address
        })
    }

    /// Waits for a frame; tells whether it came in time.
    fn wait_for(&mut self, patience: Duration, wanted: impl Fn(&[u8]) -> bool) -> bool {
        let end = Instant::now() + patience;
        let mut found = false;
        let mut batch = Batch::new();
        while !found && Instant::now() < end {
            if self.queue.rx(&mut self.pool, &mut batch) == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            for frame in batch.drain() {
                found |= wanted(frame.data());
                self.pool.free(frame);
            }
        }
        found
    }

    fn ask(&mut self, address: [u8; 4]) -> bool {
        let mut question = vec![0xff; 6];
        question.extend([
            2, 0, 0, 0, 0, 9, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 9,
        ]);
        question.extend([192, 0, 2, 9, 0, 0, 0, 0, 0, 0]);
        question.extend(address);
        self.send(&question);
        self.is_answered_by(address, Duration::from_secs(5))
    }

    /// Ends the node and checks that all memory is back on both sides.
    fn stop(mut self, node: &Dataplane) {
        self.is_answered_by([0; 4], Duration::from_millis(20));
        let last = node.stop();
        assert!(!node.is_healthy());
        for report in node.ended().expect("it was stopped") {
            let report = report.expect("the worker ended");
            assert_eq!(
                report.home + report.kept_by_drivers,
                report.frames,
                "{report:?}"
            );
        }
        let counted = &last.ports[0].counters;
        assert!(counted.rx_pkts > 0 && counted.tx_pkts > 0, "{counted:?}");
        self.queue.close(&mut self.pool);
        assert_eq!(self.pool.available(), self.pool.capacity());
    }
}

#[test]
fn a_reload_changes_addresses_and_routes_under_way() {
    let (node, mut station) = Station::beside(CONFIG);
    assert!(station.ask([192, 0, 2, 1]));
    let changed = CONFIG.replace("192.0.2.1/24", "192.0.2.77/24")
        + "[[route]]\nto = \"0.0.0.0/0\"\nvia = \"192.0.2.9\"\n[node]\nframes_per_worker = 512\n";
    let changed: Config = toml::from_str(&changed).expect("TOML");
    assert_eq!(node.reload(&changed).expect("it is put in force"), ["node"]);
    assert!(station.ask([192, 0, 2, 77]));
    assert!(node.routes().iter().any(|route| route.to == "0.0.0.0/0"));
    assert_eq!(node.stats().node.config_generation, 2);
    assert_eq!(
        node.config().node.frames_per_worker,
        8192,
        "that needs a restart"
    );
    let bad: Config = toml::from_str(&CONFIG.replace("192.0.2.1/24", "nonsense")).expect("TOML");
    assert!(matches!(node.reload(&bad), Err(ReloadError::Plan(_))));
    let other: Config = toml::from_str(&CONFIG.replace("\"lan\"", "\"wan\"")).expect("TOML");
    assert!(matches!(
        node.reload(&other),
        Err(ReloadError::Structure { .. })
    ));
    assert!(station.ask([192, 0, 2, 77]), "nothing changed");
    assert_eq!(node.neighbours().len(), 1);
    station.stop(&node);
    assert!(matches!(node.reload(&changed), Err(ReloadError::Stopped)));
}

#[test]
fn a_reload_changes_mac_mtu_and_how_workers_wait() {
    let (node, mut station) = Station::beside(CONFIG);
    assert!(station.ask([192, 0, 2, 1]));
    let flips = node.stats().workers[0].flips;
    let changed = CONFIG
        .replace("interrupt", "poll")
        .replace("00:01", "00:77")
        + "mtu = 1300\n";
    let changed: Config = toml::from_str(&changed).expect("TOML");
    assert_eq!(node.reload(&changed).expect("it is put in force"), [""; 0]);
    // It announces its new address, and answers from it.
    let told = station.wait_for(Duration::from_secs(5), |data| {
        data[12..14] == [8, 6] && data[6..12] == [2, 0, 0, 0, 0, 0x77]
    });
    assert!(told);
    assert!(station.ask([192, 0, 2, 1]));
    let stats = node.stats();
    let port = &stats.ports[0];
    assert_eq!(
        (&*port.mac, port.mtu, &*port.idle_mode),
        ("02:00:00:00:00:77", 1300, "poll")
    );
    let polls = |node: &Dataplane| node.stats().workers[0].polls;
    let before = polls(&node);
    std::thread::sleep(Duration::from_millis(100));
    assert!(polls(&node) > before + 1000, "it polls now");
    let config: Config = toml::from_str(CONFIG).expect("TOML");
    assert_eq!(node.reload(&config).expect("and back"), [""; 0]);
    assert!(station.ask([192, 0, 2, 1]));
    std::thread::sleep(Duration::from_millis(50));
    let before = polls(&node);
    std::thread::sleep(Duration::from_millis(100));
    assert!(polls(&node) < before + 100, "it sleeps again");
    assert!(node.stats().workers[0].flips >= flips);
    station.stop(&node);
}

#[test]
fn a_capture_shows_stages_and_the_reason_of_a_drop() {
    let (node, mut station) = Station::beside(CONFIG);
    assert!(station.ask([192, 0, 2, 1]));
    let request = CaptureRequest {
        points: vec![
            CapturePoint::Rx,
            CapturePoint::Stage("resolve".into()),
            CapturePoint::Drop,
        ],
        ..CaptureRequest::default()
    };
    let capture = node.capture(&request).expect("it is prepared");
    let bytes = std::thread::scope(|scope| {
        let running = scope.spawn(|| capture.run_for(Duration::from_millis(1500)));
        // The workers need to hear of the capture first.
        std::thread::sleep(Duration::from_millis(500));
        station.send(&[9; 60]);
        assert!(station.ask([192, 0, 2, 1]));
        running
            .join()
            .expect("no panic")
            .expect("memory takes everything")
    });
    let mut reader = Reader::new(&bytes[..]).expect("pcapng");
    let mut seen = Vec::new();
    while let Some(packet) = reader.next_packet().expect("whole blocks") {
        seen.push((
            packet.interface,
            packet.original_bytes,
            packet.comment.unwrap_or_default(),
        ));
    }
    let names: Vec<_> = reader
        .interfaces()
        .iter()
        .map(|i| i.name.clone().unwrap_or_default())
        .collect();
    let at = |name: &str| names.iter().position(|n| n == name).expect("the interface") as u32;
    assert!(
        seen.iter()
            .any(|(i, bytes, _)| (*i, *bytes) == (at("lan"), 60)),
        "{names:?} {seen:?}"
    );
    assert!(
        seen.iter()
            .any(|(i, _, text)| *i == at("stage resolve") && text == "enters resolve")
    );
    let dropped = seen
        .iter()
        .find(|(i, _, _)| *i == at("drop"))
        .expect("a drop");
    assert!(
        dropped.2.contains("ethernet_source") && dropped.2.contains("eth-input"),
        "{dropped:?}"
    );
    let unknown = CaptureRequest {
        points: vec![CapturePoint::Stage("nothing".into())],
        ..CaptureRequest::default()
    };
    let error = node.capture(&unknown).expect_err("there is no such stage");
    assert!(
        error
            .remedy
            .is_some_and(|remedy| remedy.contains("ip4-forward"))
    );
    station.stop(&node);
}

#[test]
fn mem_ports_need_a_link() {
    let config: Config = toml::from_str(CONFIG).expect("TOML");
    let error = Dataplane::start(&config, None).expect_err("there is no link");
    assert!(error.remedy().is_some() && !error.is_refusal());
}
