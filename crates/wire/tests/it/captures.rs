//! Reads the captures of `../shared/data/pcaps`, which lie beside the workspace.

use std::io::Read;
use std::path::{Path, PathBuf};

use pcap_parser::traits::PcapReaderIterator;
use pcap_parser::{LegacyPcapReader, Linktype, PcapBlockOwned, PcapError};

/// One packet of a capture of Ethernet frames.
pub(crate) struct Packet {
    /// File name and number of the packet in it, from 1; ends with `cut` if the capture cut the packet.
    pub(crate) name: String,
    /// The bytes that were captured.
    pub(crate) data: Vec<u8>,
}

/// Returns the packets of all captures, `None` (and says so) if the captures are not there.
///
/// # Panics
/// If `CI` is `true` and the captures are not there.
pub(crate) fn all(test: &str) -> Option<Vec<Packet>> {
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let mut folders = above.map(|up| up.join("shared/data/pcaps"));
    let Some(folder) = folders.find(|folder| folder.is_dir()) else {
        let missing = "the captures in ../shared/data/pcaps beside the workspace";
        assert!(
            !std::env::var("CI").is_ok_and(|ci| ci == "true"),
            "{test} needs {missing}"
        );
        println!("SKIPPED {test}: {missing}");
        return None;
    };
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.retain(|path| path.to_string_lossy().contains(".pcap"));
    files.sort();
    assert!(files.len() >= 30, "only {} captures", files.len());
    Some(files.iter().flat_map(|path| read(path)).collect())
}

fn read(path: &Path) -> Vec<Packet> {
    let file_name = path.file_name().unwrap().to_string_lossy().into_owned();
    let mut bytes = std::fs::read(path).unwrap();
    if file_name.ends_with(".gz") {
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(&bytes[..])
            .read_to_end(&mut plain)
            .unwrap();
        bytes = plain;
    }
    let mut reader = LegacyPcapReader::new(1 << 17, &bytes[..]).unwrap();
    let mut link = None;
    let mut packets = Vec::new();
    loop {
        match reader.next() {
            Ok((used, block)) => {
                match block {
                    PcapBlockOwned::LegacyHeader(header) => link = Some(header.network),
                    PcapBlockOwned::Legacy(packet) => {
                        let cut = if packet.caplen < packet.origlen {
                            " cut"
                        } else {
                            ""
                        };
                        let name = format!("{file_name}#{}{cut}", packets.len() + 1);
                        packets.push(Packet {
                            name,
                            data: packet.data.to_vec(),
                        });
                    }
                    PcapBlockOwned::NG(_) => {}
                }
                reader.consume(used);
            }
            Err(PcapError::Eof) => break,
            Err(PcapError::Incomplete(_)) => reader.refill().unwrap(),
            Err(error) => panic!("{file_name}: {error:?}"),
        }
    }
    as_ethernet(link, packets)
}

/// Puts an Ethernet header before packets that were captured without one.
fn as_ethernet(link: Option<Linktype>, packets: Vec<Packet>) -> Vec<Packet> {
    let mut packets = packets;
    for packet in &mut packets {
        match link {
            Some(Linktype::ETHERNET) => {}
            Some(Linktype(12 | 14 | 101 | 228 | 229)) => {
                let six = packet.data.first().is_some_and(|byte| byte >> 4 == 6);
                let kind: [u8; 2] = if six { [0x86, 0xdd] } else { [8, 0] };
                let header = [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1][..], &kind].concat();
                packet.data.splice(0..0, header);
            }
            // Linux cooked captures: the EtherType is the last field of sixteen bytes.
            Some(Linktype(113)) => {
                packet.data.drain(..14);
                packet
                    .data
                    .splice(0..0, [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
            }
            other => panic!("{}: link type {other:?}", packet.name),
        }
    }
    packets
}
