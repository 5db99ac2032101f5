//! Deadlines of the host, beside those of TCP's connections.

use crate::stack::Stack;

impl Stack {
    /// Returns when something of the host is due, ns.
    pub(crate) fn host_deadline(&self) -> Option<u64> {
        let dhcp = self
            .dhcp
            .as_ref()
            .map(|dhcp| dhcp.deadline())
            .filter(|at| *at != u64::MAX);
        let times = [
            self.neighbours.deadline(),
            self.reassembly.deadline(),
            self.paths.deadline(),
            self.groups.deadline(),
            self.autoconf.deadline(),
            dhcp,
        ];
        times.into_iter().flatten().min()
    }

    pub(crate) fn host_timers(&mut self, now_ns: u64) {
        self.neighbours.on_timer(now_ns);
        self.fail_neighbours(now_ns);
        self.paths.expire(now_ns);
        self.expire_fragments(now_ns);
        self.group_timers(now_ns);
        self.autoconf_timers(now_ns);
        self.dhcp_timer(now_ns);
    }

    /// Turns what the tables ask for into frames of the host's queue.
    pub(crate) fn host_output(&mut self, _now_ns: u64) {
        while let Some(solicit) = self.neighbours.solicit.pop() {
            if solicit.ip.is_ipv4() {
                self.solicit_ipv4(solicit);
            } else {
                self.solicit_ipv6(solicit);
            }
        }
    }
}
