//! What joins ports: bridges and links.

use std::collections::HashMap;

use super::{Checker, has};
use crate::config::schema::LinkConfig;

/// Longest delay of a link: 10 s.
const LINK_DELAY_MAX_US: u32 = 10_000_000;

impl Checker<'_> {
    pub(super) fn bridges(&mut self) {
        let config = self.config;
        let mut owner: HashMap<&str, &str> = HashMap::new();
        for (index, bridge) in config.bridge.iter().enumerate() {
            self.range(
                &format!("bridge.{index}.ageing_s"),
                bridge.ageing_s,
                10,
                1_000_000,
                " seconds",
            );
            if bridge.ports.is_empty() {
                self.problem(
                    &format!("bridge.{index}.ports"),
                    format!("bridge `{}` has no port", bridge.name),
                    "empty",
                    "name the ports that it joins",
                );
            }
            for (member, name) in bridge.ports.iter().enumerate() {
                let path = format!("bridge.{index}.ports.{member}");
                let Some(at) = config.port.iter().position(|port| port.name == *name) else {
                    let known: Vec<_> = config.port.iter().map(|port| port.name.as_str()).collect();
                    self.unknown_name(&path, "port", name, &known);
                    continue;
                };
                if let Some(other) = owner.insert(name, &bridge.name) {
                    self.problem(
                        &path,
                        format!("port `{name}` belongs to two bridges"),
                        format!("bridge `{other}` has it already"),
                        "remove it from one of them",
                    );
                } else if !config.port[at].addresses.is_empty() {
                    self.problem(
                        &format!("port.{at}.addresses"),
                        format!(
                            "port `{name}` has addresses and belongs to bridge `{}`",
                            bridge.name
                        ),
                        "a bridge's ports have no addresses of their own",
                        format!("move the addresses to bridge `{}`", bridge.name),
                    );
                }
            }
        }
    }

    pub(super) fn links(&mut self) {
        let config = self.config;
        let mut owner: HashMap<&str, &str> = HashMap::new();
        for (index, link) in config.link.iter().enumerate() {
            if link.ports.len() != 2 {
                self.problem(
                    &format!("link.{index}.ports"),
                    format!("link `{}` has {} ports", link.name, link.ports.len()),
                    "a link has two ends",
                    "name two ports, or join more by a `[[bridge]]`",
                );
            }
            for (member, name) in link.ports.iter().enumerate() {
                let path = format!("link.{index}.ports.{member}");
                if let Some(other) = owner.insert(name, &link.name) {
                    self.problem(
                        &path,
                        format!("port `{name}` is two ends of links"),
                        format!("link `{other}` has it already"),
                        "name another port",
                    );
                    continue;
                }
                self.link_port(&path, &link.name, name);
            }
            self.link_values(index, link);
        }
        self.link_frames();
    }

    fn link_port(&mut self, path: &str, link: &str, name: &str) {
        let config = self.config;
        let Some(at) = config.port.iter().position(|port| port.name == *name) else {
            let known: Vec<_> = config.port.iter().map(|port| port.name.as_str()).collect();
            self.unknown_name(path, "port", name, &known);
            return;
        };
        if let Some(bridge) = config.bridge.iter().find(|b| has(&b.ports, name)) {
            self.problem(
                path,
                format!("port `{name}` belongs to a link and to a bridge"),
                format!("bridge `{}` has it already", bridge.name),
                "remove it from one of the two",
            );
        }
        if !config.port[at].addresses.is_empty() {
            self.problem(
                &format!("port.{at}.addresses"),
                format!("port `{name}` has addresses and belongs to link `{link}`"),
                "a link's ports belong to nobody: what one receives leaves by the other",
                "remove the addresses, or remove the port from the link",
            );
        }
    }

    fn link_values(&mut self, index: usize, link: &LinkConfig) {
        let path = |key: &str| format!("link.{index}.{key}");
        for (key, value) in [
            ("drop_ppm", link.drop_ppm),
            ("duplicate_ppm", link.duplicate_ppm),
            ("corrupt_ppm", link.corrupt_ppm),
            ("reorder_ppm", link.reorder_ppm),
        ] {
            self.range(&path(key), value, 0, 1_000_000, " of a million packets");
        }
        for (key, value) in [
            ("reorder_us", link.reorder_us),
            ("delay_us", link.delay_us),
            ("jitter_us", link.jitter_us),
        ] {
            self.range(&path(key), value, 0, LINK_DELAY_MAX_US, " microseconds");
        }
        if link.reorder_ppm > 0 && link.reorder_us == 0 {
            self.problem(
                &path("reorder_ppm"),
                format!("link `{}` reorders packets by no time", link.name),
                "needs `reorder_us`",
                "add a line such as `reorder_us = 1000`",
            );
        }
        if link.rate_bps == Some(0) {
            self.problem(
                &path("rate_bps"),
                format!("link `{}` carries nothing", link.name),
                "at least 1 bit a second",
                "write `rate_bps = 10000000`, or remove the key for no limit",
            );
        }
        if let Some(mtu) = link.mtu {
            self.range(&path("mtu"), mtu.into(), 68, 32_000, " bytes");
        }
        self.range(&path("queue_pkts"), link.queue_pkts, 1, 1 << 19, " packets");
    }

    /// Packets on links are frames that nobody else has: rings and queues need theirs, too.
    fn link_frames(&mut self) {
        let config = self.config;
        let frames = u64::from(config.node.frames_per_worker);
        let held: u64 = config
            .link
            .iter()
            .map(|l| 2 * u64::from(l.queue_pkts))
            .sum();
        if let Some(last) = config.link.len().checked_sub(1)
            && held > frames / 2
        {
            let fits = (frames / 4 / config.link.len() as u64).max(1);
            self.problem(
                &format!("link.{last}.queue_pkts"),
                format!("links may hold {held} of the {frames} frames of a worker"),
                "twice this for each link; at most half of the frames in all",
                format!("write `queue_pkts = {fits}`, or raise `frames_per_worker` under `[node]`"),
            );
        }
    }
}
