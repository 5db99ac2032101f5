//! The interfaces that a ruleset knows: names become numbers when it is compiled.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

use crate::packet::InterfaceId;

/// Most interfaces, names that rules mention included.
pub const INTERFACES_MAX: usize = 65_535;

/// One interface, or a name that rules mention without an interface of that name being there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// There is such an interface; otherwise only its name is known.
    pub present: bool,
    /// Hardware type (`iiftype`), as ARP counts them: 1 is Ethernet, 772 loopback.
    pub kind: u16,
    /// Group (`iifgroup`).
    pub group: u32,
    /// The bridge it is a port of.
    pub bridge: InterfaceId,
}

/// All interfaces by number. Number 0 is "none", with the empty name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interfaces {
    list: Vec<Interface>,
}

impl Default for Interfaces {
    fn default() -> Self {
        Self {
            list: Vec::from([Interface::default()]),
        }
    }
}

impl Interfaces {
    /// Makes a list of Ethernet interfaces of these names, for tests and offline checks.
    pub fn ethernet(names: &[&str]) -> Self {
        let mut interfaces = Self::default();
        for name in names {
            interfaces.add(Interface {
                name: (*name).to_owned(),
                present: true,
                kind: 1,
                ..Interface::default()
            });
        }
        interfaces
    }

    /// Adds an interface (or replaces the one of its name) and returns its number; `None` if there are too many.
    pub fn add(&mut self, interface: Interface) -> Option<InterfaceId> {
        if let Some(id) = self.find(&interface.name) {
            if let Some(place) = self.list.get_mut(usize::from(id.0)) {
                *place = interface;
            }
            return Some(id);
        }
        if self.list.len() > INTERFACES_MAX {
            return None;
        }
        self.list.push(interface);
        u16::try_from(self.list.len() - 1).ok().map(InterfaceId)
    }

    /// Returns the number of a name, given now if it is new.
    pub fn intern(&mut self, name: &str) -> Option<InterfaceId> {
        match self.find(name) {
            Some(id) => Some(id),
            None => self.add(Interface {
                name: name.to_owned(),
                ..Interface::default()
            }),
        }
    }

    /// Finds a name.
    pub fn find(&self, name: &str) -> Option<InterfaceId> {
        let at = self
            .list
            .iter()
            .position(|interface| interface.name == name)?;
        u16::try_from(at).ok().map(InterfaceId)
    }

    /// Returns a real interface; `None` for "none" and for mere names.
    #[inline]
    pub fn get(&self, id: InterfaceId) -> Option<&Interface> {
        self.list
            .get(usize::from(id.0))
            .filter(|interface| interface.present)
    }

    /// Returns the name of a number, empty for none.
    pub fn name(&self, id: InterfaceId) -> &str {
        self.list
            .get(usize::from(id.0))
            .map_or("", |interface| &interface.name)
    }

    /// Goes over all names, with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (InterfaceId, &Interface)> {
        self.list
            .iter()
            .enumerate()
            .map(|(at, interface)| (InterfaceId(at as u16), interface))
    }
}
