//! What the scenarios share: who the hosts are, and links by seed.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use sim::{Faults, Plan, Random};
use wire::MacAddr;

/// The MAC address of a host.
pub(crate) fn host_mac(host: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0x11, 0, host])
}

/// `10.0.NET.HOST`.
pub(crate) fn v4(net: u8, host: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, net, host)
}

/// `2001:db8:NET::HOST`.
pub(crate) fn v6(net: u16, host: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, net, 0, 0, 0, 0, host)
}

/// Reads the configuration of a node.
pub(crate) fn config(text: &str) -> control::Config {
    toml::from_str(text).expect("the configuration is TOML")
}

/// Links that lose, delay, damage and double what they carry: how much, the seed says.
pub(crate) fn faults(random: &mut Random) -> Faults {
    let mut ppm = |most: u64| random.below(most) as u32;
    let (drop_ppm, duplicate_ppm) = (ppm(100_000), ppm(50_000));
    let (corrupt_ppm, reorder_ppm) = (ppm(20_000), ppm(100_000));
    Faults {
        drop_ppm,
        duplicate_ppm,
        corrupt_ppm,
        reorder_ppm,
        reorder_by: Duration::from_micros(random.below(2000)),
        delay: Duration::from_micros(random.below(200)),
        jitter: Duration::from_micros(random.below(500)),
        bandwidth_bps: 100_000_000,
        ..Faults::default()
    }
}

/// One to three workers in one of the idle modes, by seed.
pub(crate) fn plan(random: &mut Random) -> Plan {
    let modes = [
        graph::Mode::Hybrid,
        graph::Mode::Interrupt,
        graph::Mode::Paper,
    ];
    Plan {
        workers: 1 + random.below(3) as u16,
        mode: modes[random.below(3) as usize],
        ..Plan::default()
    }
}
