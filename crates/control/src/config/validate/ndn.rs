//! `[ndn]`, `[[ndn_face]]`, `[[ndn_route]]`, `[[ndn_strategy]]` and `[[ndn_key]]`.

use wire::ndn::name::Name;

use super::{Checker, SOCKET_PATH_MAX_BYTES};
use crate::config::ndn::KernelCacheMode;
use crate::config::schema::DriverConfig;

/// What management has modules for.
const MODULES: [&str; 5] = ["faces", "fib", "rib", "cs", "strategy-choice"];

impl Checker<'_> {
    pub(super) fn ndn(&mut self) {
        let config = self.config;
        let Some(ndn) = &config.ndn else {
            self.ndn_tables_alone();
            return;
        };
        for (index, path) in ndn.unix.iter().enumerate() {
            let length = path.as_os_str().len();
            if !path.is_absolute() || length > SOCKET_PATH_MAX_BYTES {
                self.problem(
                    &format!("ndn.unix.{index}"),
                    "the path of the socket is relative or too long",
                    format!("{length} bytes; at most {SOCKET_PATH_MAX_BYTES}, from `/` on"),
                    "write a path such as \"/run/nfd/nfd.sock\"",
                );
            }
        }
        for (index, port) in ndn.ethernet.iter().enumerate() {
            let path = format!("ndn.ethernet.{index}");
            if self.is_interface(&path, port) && config.bridge.iter().any(|b| b.name == *port) {
                self.problem(
                    &path,
                    format!("`{port}` is a bridge"),
                    "Ethernet faces are on ports",
                    "write a port that belongs to no bridge",
                );
            }
        }
        self.range(
            "ndn.cache_packets",
            ndn.cache_packets,
            1,
            1 << 30,
            " packets",
        );
        if ndn
            .cache_disk
            .as_ref()
            .is_some_and(|path| !path.is_absolute())
        {
            self.problem(
                "ndn.cache_disk",
                "the path of the disk tier is relative",
                "a node may start in any directory",
                "write a path such as \"/var/cache/tidegate/ndn\"",
            );
        }
        if !(1 << 20..=8 << 40).contains(&ndn.cache_disk_bytes) {
            self.problem(
                "ndn.cache_disk_bytes",
                format!("a disk tier of {} bytes", ndn.cache_disk_bytes),
                "1048576 to 8796093022208 bytes (1 MiB to 8 TiB)",
                "write for example 1073741824",
            );
        }
        self.range(
            "ndn.cache_disk_stop_s",
            ndn.cache_disk_stop_s,
            0,
            3600,
            " seconds",
        );
        self.range("ndn.pit_entries", ndn.pit_entries, 64, 1 << 26, " entries");
        self.range(
            "ndn.fib_prefixes",
            ndn.fib_prefixes,
            16,
            1 << 26,
            " prefixes",
        );
        self.range("ndn.faces", ndn.faces, 16, 1 << 20, " faces");
        self.range("ndn.idle_s", ndn.idle_s, 1, 1 << 30, " seconds");
        self.kernel_cache();
        for (index, region) in ndn.regions.iter().enumerate() {
            self.name(&format!("ndn.regions.{index}"), region);
        }
        for (index, face) in config.ndn_face.iter().enumerate() {
            self.uri(&format!("ndn_face.{index}.remote"), &face.remote);
        }
        for (index, route) in config.ndn_route.iter().enumerate() {
            self.name(&format!("ndn_route.{index}.prefix"), &route.prefix);
            self.uri(&format!("ndn_route.{index}.face"), &route.face);
        }
        for (index, choice) in config.ndn_strategy.iter().enumerate() {
            self.name(&format!("ndn_strategy.{index}.prefix"), &choice.prefix);
        }
        for (index, key) in config.ndn_key.iter().enumerate() {
            for (number, module) in key.modules.iter().enumerate() {
                if !MODULES.contains(&module.as_str()) {
                    let path = format!("ndn_key.{index}.modules.{number}");
                    self.unknown_name(&path, "module of management", module, &MODULES);
                }
            }
        }
    }

    /// The cache in the kernel serves what the kernel drives, and something.
    fn kernel_cache(&mut self) {
        let config = self.config;
        let cache = config
            .ndn
            .as_ref()
            .and_then(|ndn| ndn.kernel_cache.as_ref());
        let Some(cache) = cache else {
            return;
        };
        for (index, name) in cache.ports.iter().enumerate() {
            let path = format!("ndn.kernel_cache.ports.{index}");
            let Some(port) = config.port.iter().find(|port| port.name == *name) else {
                self.problem(
                    &path,
                    format!("there is no port `{name}`"),
                    "a port of the node",
                    "write the name of a `[[port]]`, or the interface under `interfaces`",
                );
                continue;
            };
            let driver = match port.driver {
                DriverConfig::AfXdp if cache.mode == KernelCacheMode::Tc => "af_xdp",
                DriverConfig::Auto if cache.mode == KernelCacheMode::Tc => "auto",
                DriverConfig::Tap => "tap",
                DriverConfig::Pcap => "pcap",
                DriverConfig::Dpdk => "dpdk",
                DriverConfig::Mem => "mem",
                DriverConfig::Auto | DriverConfig::AfXdp | DriverConfig::AfPacket => continue,
            };
            self.problem(
                &path,
                format!("the kernel's cache cannot be on `{name}`, whose driver is `{driver}`"),
                "af_xdp and auto in the modes \"auto\" and \"xdp\"; af_packet in every mode",
                "write another port or driver",
            );
        }
        if cache.ports.is_empty() && cache.interfaces.is_empty() {
            self.problem(
                "ndn.kernel_cache",
                "the kernel's cache serves no port",
                "`ports` or `interfaces`",
                "add a port or an interface, or remove the table",
            );
        }
        self.range(
            "ndn.kernel_cache.packets",
            cache.packets,
            1,
            1 << 24,
            " packets",
        );
    }

    /// Tables that say something about a forwarder that is not there.
    fn ndn_tables_alone(&mut self) {
        let config = self.config;
        let tables = [
            ("ndn_face", config.ndn_face.is_empty()),
            ("ndn_route", config.ndn_route.is_empty()),
            ("ndn_strategy", config.ndn_strategy.is_empty()),
            ("ndn_key", config.ndn_key.is_empty()),
        ];
        for (table, _) in tables.iter().filter(|(_, is_empty)| !is_empty) {
            self.problem(
                table,
                format!("there is `[[{table}]]`, but no `[ndn]`"),
                "the node forwards no named data",
                "add a table `[ndn]`",
            );
        }
    }

    fn name(&mut self, path: &str, uri: &str) {
        if let Err(error) = uri.parse::<Name>() {
            self.problem(
                path,
                format!("`{uri}` is not a name: {error}"),
                "an NDN name",
                "write a name such as \"/example/site\"",
            );
        }
    }

    fn uri(&mut self, path: &str, uri: &str) {
        if !uri.contains("://") {
            self.problem(
                path,
                format!("`{uri}` is not a FaceUri"),
                "a scheme, `://` and an address",
                "write for example \"udp4://192.0.2.9:6363\" or \"ether://[02:00:00:00:00:09]\"",
            );
        }
    }
}
