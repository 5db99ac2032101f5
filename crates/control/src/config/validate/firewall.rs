//! `[firewall]`.

use super::Checker;

impl Checker<'_> {
    pub(super) fn firewall(&mut self) {
        let Some(firewall) = &self.config.firewall else {
            return;
        };
        let (inside, connections) = (firewall.inside.clone(), firewall.connections);
        self.is_interface("firewall.inside", &inside);
        self.range("firewall.connections", connections, 1024, 1 << 26, "");
    }
}
