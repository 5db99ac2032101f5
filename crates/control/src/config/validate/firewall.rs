//! `[firewall]`.

use super::Checker;

impl Checker<'_> {
    pub(super) fn firewall(&mut self) {
        let Some(firewall) = &self.config.firewall else {
            return;
        };
        let (inside, connections) = (firewall.inside.clone(), firewall.connections);
        match (inside, firewall.rules.is_some()) {
            (Some(_), true) => self.problem(
                "firewall.inside",
                "the firewall has both rules and an inside",
                "with a file of rules, they say what may pass",
                "remove `inside`",
            ),
            (None, false) => self.problem(
                "firewall",
                "the firewall does not know what may pass",
                "neither `rules` nor `inside`",
                "add `rules = \"/etc/tidegate/rules.nft\"`, or `inside = \"lan\"` for all that one side opens",
            ),
            (Some(inside), false) => {
                self.is_interface("firewall.inside", &inside);
            }
            (None, true) => {}
        }
        let state = firewall.state_file();
        if state.is_some_and(|path| !path.is_absolute()) {
            self.problem(
                "firewall.state",
                "`state` is neither an absolute path nor \"off\"",
                "a file in memory, such as one in /dev/shm or /run",
                "write for example `state = \"/run/tidegate/connections.state\"`",
            );
        }
        if let Some(guard) = &firewall.guard {
            self.range(
                "firewall.guard.hold_off_s",
                guard.hold_off_s,
                1,
                86_400,
                " seconds",
            );
        }
        self.range("firewall.connections", connections, 1024, 1 << 26, "");
    }
}
