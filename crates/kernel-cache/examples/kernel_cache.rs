//! Serves the files of a directory as NDN Data from the kernel, without any socket:
//! `cargo run -p tidegate-kernel-cache --example kernel_cache -- eth0 /my/files DIRECTORY [native|generic|ingress]`
//!
//! A file `a.txt` becomes `/my/files/a.txt/seg=0`, `seg=1`, ... of 1,000 bytes each, the last one named in
//! FinalBlockId, signed by digest, fresh for an hour. Asks for `/my/files/a.txt` with CanBePrefix find a segment.
//! Needs root. Prints each second what came of the frames; ends, and detaches, with Ctrl-C.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use io::interface::Interface;
use kernel_cache::shared::layout::PortRow;
use kernel_cache::{Cache, Hook, KernelCache, Outcome, Sizes, monotonic_ns};
use wire::ndn::name::Name;
use wire::ndn::{DataFields, DigestSigner, PACKET_BYTES_MAX};

/// Bytes of a file in one packet.
const SEGMENT_BYTES: usize = 1000;
const FRESHNESS_MS: u64 = 3_600_000;
/// Bytes of an Ethernet header.
const ETHERNET_BYTES: u32 = 14;
const PACKETS_MAX: u32 = 100_000;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [device, prefix, directory, hook @ ..] = &arguments[..] else {
        return Err(
            "usage: kernel_cache INTERFACE PREFIX DIRECTORY [native|generic|ingress]".into(),
        );
    };
    let hook = match hook.first().map(String::as_str) {
        None | Some("ingress") => Hook::Ingress,
        Some("native") => Hook::Native,
        Some("generic") => Hook::Generic,
        Some(other) => return Err(format!("{other}: none of native, generic, ingress").into()),
    };
    let prefix: Name = prefix.parse().map_err(|e| format!("{prefix}: {e}"))?;
    let (mut kernel, mut cache) = KernelCache::load(Sizes::of(PACKETS_MAX))?;
    let packets = fill(&mut cache, &prefix, Path::new(directory))?;
    let _port = kernel.attach(&port_row(device)?, hook)?;
    println!("{packets} packets of {directory} are served on {device} ({hook:?})");
    loop {
        std::thread::sleep(Duration::from_secs(1));
        let counts = kernel.outcomes()?;
        let of = |outcome: Outcome| counts[outcome as usize];
        println!(
            "exact {} prefix {} absent {} stale {} no-room {} too-long {} torn {} other {}",
            of(Outcome::Exact),
            of(Outcome::Prefix),
            of(Outcome::Absent),
            of(Outcome::Stale),
            of(Outcome::NoRoom),
            of(Outcome::TooLong),
            of(Outcome::Torn),
            of(Outcome::Other),
        );
    }
}

/// Describes an interface to the cache.
fn port_row(device: &str) -> Result<PortRow, Box<dyn Error>> {
    let interface = Interface::get(device)?;
    let mut mac = [0; 8];
    mac[..6].copy_from_slice(&interface.mac);
    Ok(PortRow {
        ifindex: interface.index,
        frame_bytes_max: interface.mtu + ETHERNET_BYTES,
        mac: u64::from_le_bytes(mac),
    })
}

/// Makes packets of the files and stores them; returns how many.
fn fill(cache: &mut Cache, prefix: &Name, directory: &Path) -> Result<usize, Box<dyn Error>> {
    let mut buffer = vec![0; PACKET_BYTES_MAX];
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        if !entry.file_type()?.is_file() {
            continue;
        }
        let content = std::fs::read(entry.path())?;
        let file = prefix.with_generic(entry.file_name().as_encoded_bytes());
        let segments = content.len().div_ceil(SEGMENT_BYTES).max(1);
        let last = file.with_segment(segments as u64 - 1);
        for segment in 0..segments {
            let start = segment * SEGMENT_BYTES;
            let part = &content[start..content.len().min(start + SEGMENT_BYTES)];
            let name = file.with_segment(segment as u64);
            let fields = DataFields {
                freshness_ms: FRESHNESS_MS,
                final_block: last.as_ref().last(),
                ..DataFields::new(name.as_ref(), part)
            };
            let length = fields
                .encode(&DigestSigner, &mut buffer)
                .map_err(|_| format!("{name}: longer than {PACKET_BYTES_MAX} bytes"))?;
            cache
                .insert(&buffer[..length], monotonic_ns())
                .map_err(|refusal| format!("{name}: {refusal}"))?;
        }
    }
    Ok(cache.len())
}
