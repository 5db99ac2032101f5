//! Capture files: what we write, others read, and what others write, we read; damaged files are refused.

use std::time::{Duration, Instant};

use io::pcap::{Capture, Pace, PcapSpec};
use io::pcapng::{
    Direction, InterfaceDescription, Packet, ReadPacket, Reader, Section, Verdict, Writer,
};
use io::port::{self, DriverSpec, OpenError, OpenPort, PortSpec};
use io::{Arm, Batch, HugePages, Pool, PortId};
use pcap_parser::traits::PcapReaderIterator;
use pcap_parser::{Block, OptionCode, PcapBlockOwned, PcapError, PcapNGReader};

/// Two interfaces, a plain packet, and one with every option.
fn written() -> Vec<u8> {
    let section = Section {
        application: Some("test"),
        os: Some("Linux"),
        hardware: Some("machine"),
    };
    let mut writer = Writer::new(Vec::new(), &section).unwrap();
    let rx = InterfaceDescription {
        description: Some("what port a receives"),
        mac: Some([2, 0, 0, 0, 0, 1]),
        ..InterfaceDescription::ethernet("a:rx")
    };
    assert_eq!(writer.add_interface(&rx).unwrap(), 0);
    writer.write_packet(&Packet::new(0, 1, b"one")).unwrap();
    let drop = InterfaceDescription::ethernet("drop");
    assert_eq!(writer.add_interface(&drop).unwrap(), 1);
    let full = Packet {
        original_bytes: 1514,
        comment: Some("dropped: ttl-expired"),
        direction: Some(Direction::Inbound),
        verdict: Some(Verdict::Xdp(1)),
        queue: Some(3),
        packet_id: Some(0x0123_4567_89ab_cdef),
        lost_pkts: Some(9),
        ..Packet::new(1, 1_700_000_000_123_456_789, b"second")
    };
    writer.write_packet(&full).unwrap();
    writer
        .write_statistics(1, 1_700_000_001_000_000_000, 2, 9)
        .unwrap();
    writer.flush().unwrap();
    let unknown = Packet::new(2, 0, b"");
    assert!(writer.write_packet(&unknown).is_err(), "no such interface");
    writer.into_inner()
}

/// Calls `each` for every block that the oracle finds.
fn oracle(bytes: &[u8], mut each: impl FnMut(&Block<'_>)) {
    let mut reader = PcapNGReader::new(65536, bytes).unwrap();
    loop {
        match reader.next() {
            Ok((len, PcapBlockOwned::NG(block))) => {
                each(&block);
                reader.consume(len);
            }
            Ok(_) => panic!("not pcapng"),
            Err(PcapError::Eof) => return,
            Err(PcapError::Incomplete(_)) => reader.refill().unwrap(),
            Err(error) => panic!("{error:?}"),
        }
    }
}

#[test]
fn another_reader_finds_all_that_was_written() {
    let mut packets = Vec::new();
    let mut interfaces = Vec::new();
    let mut statistics = 0;
    oracle(&written(), |block| match block {
        Block::SectionHeader(section) => {
            let codes: Vec<u16> = section.options.iter().map(|o| o.code.0).collect();
            assert_eq!(codes, [2, 3, 4, 0]);
        }
        Block::InterfaceDescription(interface) => {
            let name = &interface.options[0];
            assert_eq!(name.code, OptionCode(2));
            interfaces.push(String::from_utf8_lossy(&name.value).into_owned());
            assert_eq!(interface.ts_resolution(), Some(1_000_000_000));
        }
        Block::EnhancedPacket(packet) => {
            let time = (u64::from(packet.ts_high) << 32) | u64::from(packet.ts_low);
            let data = packet.data[..packet.caplen as usize].to_vec();
            let options: Vec<(u16, Vec<u8>)> = packet
                .options
                .iter()
                .map(|o| (o.code.0, o.value[..usize::from(o.len)].to_vec()))
                .collect();
            packets.push((packet.if_id, time, data, packet.origlen, options));
        }
        Block::InterfaceStatistics(found) => {
            statistics += 1;
            assert_eq!(found.if_id, 1);
        }
        other => panic!("{other:?}"),
    });
    assert_eq!(interfaces, ["a:rx", "drop"]);
    assert_eq!(statistics, 1);
    assert_eq!(packets[0], (0, 1, b"one".to_vec(), 3, vec![]));
    let mut verdict = vec![2];
    verdict.extend(1_u64.to_ne_bytes());
    let options = vec![
        (1, b"dropped: ttl-expired".to_vec()),
        (2, 1_u32.to_ne_bytes().to_vec()),
        (4, 9_u64.to_ne_bytes().to_vec()),
        (5, 0x0123_4567_89ab_cdef_u64.to_ne_bytes().to_vec()),
        (6, 3_u32.to_ne_bytes().to_vec()),
        (7, verdict),
        (0, vec![]),
    ];
    let time = 1_700_000_000_123_456_789;
    assert_eq!(packets[1], (1, time, b"second".to_vec(), 1514, options));
}

#[test]
fn tcpdump_reads_what_was_written() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut writer = Writer::new(Vec::new(), &Section::default()).unwrap();
    writer
        .add_interface(&InterfaceDescription::ethernet("a"))
        .unwrap();
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    frame.extend([0; 46]);
    for i in 0..3 {
        writer
            .write_packet(&Packet::new(0, i * 1_000_000_000, &frame))
            .unwrap();
    }
    std::fs::write(file.path(), writer.into_inner()).unwrap();
    let Ok(output) = std::process::Command::new("tcpdump")
        .arg("-enr")
        .arg(file.path())
        .output()
    else {
        println!("SKIPPED tcpdump_reads_what_was_written: tcpdump is not installed");
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"));
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(
        text.matches("02:00:00:00:00:01 > ff:ff:ff:ff:ff:ff")
            .count(),
        3,
        "{text}"
    );
    assert_eq!(text.matches("0x88b5").count(), 3, "{text}");
}

/// Interface, time, bytes, original length and comment of a packet.
type Fields = (u32, u64, Vec<u8>, u32, Option<String>);

fn packets(bytes: &[u8]) -> Vec<Fields> {
    let mut reader = Reader::new(bytes).unwrap();
    let mut packets = Vec::new();
    while let Some(packet) = reader.next_packet().unwrap() {
        let ReadPacket {
            interface,
            timestamp_ns,
            data,
            original_bytes,
            comment,
        } = packet;
        packets.push((
            interface,
            timestamp_ns,
            data.to_vec(),
            original_bytes,
            comment,
        ));
    }
    packets
}

#[test]
fn we_read_what_we_write() {
    let packets = packets(&written());
    assert_eq!(packets[0], (0, 1, b"one".to_vec(), 3, None));
    let comment = Some("dropped: ttl-expired".to_owned());
    let time = 1_700_000_000_123_456_789;
    assert_eq!(packets[1], (1, time, b"second".to_vec(), 1514, comment));
    assert_eq!(packets.len(), 2);
}

/// Puts a big-endian block together.
fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let padded = body.len().next_multiple_of(4);
    let len = (padded as u32 + 12).to_be_bytes();
    let mut bytes = kind.to_be_bytes().to_vec();
    bytes.extend(len);
    bytes.extend(body);
    bytes.resize(8 + padded, 0);
    bytes.extend(len);
    bytes
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_be_bytes()).collect()
}

/// A big-endian section: an interface with timestamps in 2^-10 s that are 100 s late, cut at 4 bytes; a
/// simple, an enhanced, an obsolete and an unknown block.
fn foreign() -> Vec<u8> {
    let mut file = block(0x0a0d_0d0a, &words(&[0x1a2b_3c4d, 0x0001_0000, !0, !0]));
    let mut interface = words(&[0x0001_0000, 4]);
    interface.extend([0, 9, 0, 1, 0x8a, 0, 0, 0]);
    interface.extend([0, 14, 0, 8]);
    interface.extend(100_u64.to_be_bytes());
    file.extend(block(1, &interface));
    let mut simple = words(&[10]);
    simple.extend(b"abcd");
    file.extend(block(3, &simple));
    file.extend(block(0x0bad_cafe, b"not known"));
    let mut enhanced = words(&[0, 0, 1536, 3, 60]);
    enhanced.extend(b"efg");
    file.extend(block(6, &enhanced));
    let mut old = words(&[0x0000_0007, 0, 1024, 2, 2]);
    old.extend(b"hi");
    file.extend(block(2, &old));
    file
}

#[test]
fn other_byte_orders_blocks_and_resolutions_are_read() {
    let s = 1_000_000_000;
    let expected = [
        (0, 0, b"abcd".to_vec(), 10, None),
        (0, 101 * s + s / 2, b"efg".to_vec(), 60, None),
        (0, 101 * s, b"hi".to_vec(), 2, None),
    ];
    assert_eq!(packets(&foreign()), expected);
    // A second section, of the other order, describes its interfaces anew.
    let mut both = foreign();
    both.extend(written());
    let found = packets(&both);
    assert_eq!(found[..3], expected);
    assert_eq!(found[3..], packets(&written()));
}

fn classic(magic: u32, big: bool) -> Vec<u8> {
    let word = |w: u32| {
        if big {
            w.to_be_bytes()
        } else {
            w.to_le_bytes()
        }
    };
    let half = |h: u16| {
        if big {
            h.to_be_bytes()
        } else {
            h.to_le_bytes()
        }
    };
    let mut file = word(magic).to_vec();
    file.extend([half(2), half(4)].concat());
    file.extend([word(0), word(0), word(65535), word(1)].concat());
    for (i, data) in [&b"first"[..], b"", b"third"].iter().enumerate() {
        let header = [
            word(7),
            word(5 + i as u32),
            word(data.len() as u32),
            word(99),
        ];
        file.extend(header.concat());
        file.extend(*data);
    }
    file
}

#[test]
fn all_four_kinds_of_pcap_are_read() {
    for (magic, unit) in [(0xa1b2_c3d4, 1000), (0xa1b2_3c4d, 1)] {
        for big in [false, true] {
            let capture = Capture::read(classic(magic, big).as_slice()).unwrap();
            assert_eq!(capture.len(), 3);
            let third = capture.get(2).unwrap();
            assert_eq!(third.data, b"third");
            assert_eq!(third.original_bytes, 99);
            assert_eq!(third.timestamp_ns, 7_000_000_000 + 7 * unit);
            assert_eq!(capture.packets().nth(1).unwrap().data, b"");
        }
    }
    let mut other_link = classic(0xa1b2_c3d4, false);
    other_link[20] = 101;
    let bare_ip = Capture::read(other_link.as_slice()).unwrap();
    assert_eq!(
        bare_ip.get(0).unwrap().data[12..],
        *b"\x86\xddfirst",
        "'f' is 0x66"
    );
    assert_eq!(bare_ip.get(0).unwrap().original_bytes, 99 + 14);
    other_link[20] = 105;
    let refused = Capture::read(other_link.as_slice()).unwrap_err();
    assert!(refused.to_string().contains("link type 105"), "{refused}");
}

#[test]
fn damaged_files_are_refused_wherever_they_end_and_whatever_they_hold() {
    for file in [written(), foreign(), classic(0xa1b2_c3d4, true)] {
        let whole = Capture::read(file.as_slice()).unwrap().len();
        for end in 0..file.len() {
            // An end between two blocks is a shorter file; any other is an error.
            if let Ok(capture) = Capture::read(&file[..end]) {
                assert!(capture.len() <= whole);
            }
        }
        let mut state = 3_u64;
        for _ in 0..5_000 {
            let mut bytes = file.clone();
            for _ in 0..3 {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let at = (state >> 33) as usize % bytes.len();
                bytes[at] = (state >> 20) as u8;
            }
            let _ = Capture::read(bytes.as_slice());
        }
    }
    let mut lengths = foreign();
    let end = lengths.len();
    lengths[end - 1] ^= 4;
    let damaged = Capture::read(lengths.as_slice()).unwrap_err();
    assert!(
        damaged.to_string().contains("lengths at both ends"),
        "{damaged}"
    );
    assert!(
        Capture::read(&b"GIF89a"[..])
            .unwrap_err()
            .to_string()
            .contains("not a pcap")
    );
}

fn open(pool: &Pool, settings: PcapSpec) -> Result<OpenPort, OpenError> {
    let spec = PortSpec::new(PortId(4), "file", DriverSpec::Pcap(settings));
    port::open(&spec, pool.region(), 2)
}

#[test]
fn a_port_replays_in_rounds_and_records_what_is_sent() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (
        directory.path().join("from.pcap"),
        directory.path().join("to.pcapng"),
    );
    std::fs::write(&from, classic(0xa1b2_c3d4, false)).unwrap();
    let mut pool = Pool::new(8, 2048, HugePages::Never).unwrap();
    let settings = PcapSpec {
        record: Some(to.clone()),
        loops: 4,
        ..PcapSpec::replay(from)
    };
    let mut port = open(&pool, settings).unwrap();
    assert_eq!(port.queues.len(), 1, "a file has one order");
    let queue = &mut *port.queues[0];
    let mut batch = Batch::new();
    let mut received = 0;
    loop {
        received += queue.rx(&mut pool, &mut batch);
        if batch.is_empty() {
            break;
        }
        assert!(batch.iter().all(|frame| frame.rx_port == PortId(4)));
        queue.tx(&mut pool, &mut batch);
        assert_eq!(pool.available(), 8);
    }
    assert_eq!(received, 12);
    assert!(
        matches!(queue.arm(), Arm::Armed(_)),
        "nothing more will come"
    );
    queue.disarm();
    assert_eq!(queue.close(&mut pool), 0);
    assert_eq!((queue.stats().rx_pkts, queue.stats().tx_pkts), (12, 12));
    let recorded = Capture::open(&to).unwrap();
    let all: Vec<&[u8]> = recorded.packets().map(|p| p.data).collect();
    assert_eq!(all, [&b"first"[..], b"", b"third"].repeat(4));
}

#[test]
fn an_empty_pool_delays_a_replay_and_loses_nothing() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), classic(0xa1b2_c3d4, false)).unwrap();
    let mut pool = Pool::new(1, 2048, HugePages::Never).unwrap();
    let mut port = open(&pool, PcapSpec::replay(file.path())).unwrap();
    let mut batch = Batch::new();
    for expected in [&b"first"[..], b"", b"third"] {
        assert_eq!(port.queues[0].rx(&mut pool, &mut batch), 1);
        assert_eq!(batch[0].data(), expected);
        assert_eq!(port.queues[0].rx(&mut pool, &mut batch), 0);
        pool.free_batch(&mut batch);
    }
    assert_eq!(port.queues[0].rx(&mut pool, &mut batch), 0);
}

#[test]
fn a_paced_replay_keeps_the_pauses_of_the_file() {
    let mut writer = Writer::new(Vec::new(), &Section::default()).unwrap();
    writer
        .add_interface(&InterfaceDescription::ethernet("a"))
        .unwrap();
    for ms in [5, 5, 45] {
        writer
            .write_packet(&Packet::new(0, ms * 1_000_000, b"frame"))
            .unwrap();
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), writer.into_inner()).unwrap();
    let mut pool = Pool::new(8, 2048, HugePages::Never).unwrap();
    let settings = PcapSpec {
        pace: Pace::Timestamps,
        ..PcapSpec::replay(file.path())
    };
    let mut port = open(&pool, settings).unwrap();
    let queue = &mut *port.queues[0];
    let mut batch = Batch::new();
    let start = Instant::now();
    assert_eq!(queue.rx(&mut pool, &mut batch), 2);
    assert!(
        matches!(queue.arm(), Arm::Unsupported),
        "a nap, not a sleep"
    );
    while batch.len() < 3 {
        queue.rx(&mut pool, &mut batch);
        assert!(start.elapsed() < Duration::from_secs(10));
    }
    assert!(start.elapsed() >= Duration::from_millis(40));
    pool.free_batch(&mut batch);
}

#[test]
fn a_port_without_files_or_with_a_bad_one_is_refused() {
    let pool = Pool::new(1, 2048, HugePages::Never).unwrap();
    let none = open(&pool, PcapSpec::default()).unwrap_err();
    assert!(none.to_string().contains("replay or to record"), "{none}");
    let missing = open(&pool, PcapSpec::replay("/no/such.pcap")).unwrap_err();
    assert!(missing.to_string().contains("/no/such.pcap"), "{missing}");
}
