//! `[dpdk]`.

use super::Checker;
use crate::config::schema::{DriverConfig, HugePagesConfig};

/// The longest name of a group, bytes: it is part of the names of files.
const GROUP_MAX_BYTES: usize = 32;
/// Guests of a primary process, at most.
const GUESTS_MAX: u16 = 63;

impl Checker<'_> {
    pub(super) fn dpdk(&mut self) {
        let config = self.config;
        let Some(dpdk) = &config.dpdk else {
            return;
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        let group = &dpdk.group;
        if group.is_empty() || group.len() > GROUP_MAX_BYTES || !group.chars().all(plain) {
            self.problem(
                "dpdk.group",
                format!("`{group}` cannot name a group of nodes"),
                format!("1 to {GROUP_MAX_BYTES} letters, digits, `-` and `_`"),
                "write for example `group = \"edge\"`",
            );
        }
        self.range("dpdk.guests", dpdk.guests.into(), 0, GUESTS_MAX.into(), "");
        if let Some(guest) = dpdk.guest {
            self.range("dpdk.guest", guest.into(), 0, (GUESTS_MAX - 1).into(), "");
            if dpdk.guests > 0 {
                self.problem(
                    "dpdk.guests",
                    "a guest has no guests",
                    "`guest` makes this node a guest of another",
                    "remove `guests`, or `guest` if this is the primary process",
                );
            }
            if config.node.cpus.len() > 1 {
                self.problem(
                    "node.cpus",
                    "a guest has one worker",
                    format!("{} CPUs", config.node.cpus.len()),
                    "name one CPU, and give the others to guests of their own",
                );
            }
        }
        if config.node.huge_pages == HugePagesConfig::Never {
            self.problem(
                "node.huge_pages",
                "nodes share memory in huge pages only",
                "`[dpdk]` asks for shared memory",
                "remove `huge_pages`, or the table `[dpdk]`",
            );
        }
        if !config.port.iter().any(|p| p.driver == DriverConfig::Dpdk) {
            self.problem(
                "dpdk",
                "no port could be shared",
                "no port has `driver = \"dpdk\"`",
                "give a port `driver = \"dpdk\"` and a `device`, or remove the table `[dpdk]`",
            );
        }
    }
}
