//! The routing information base: routes by prefix, face and origin, with inheritance and expiry; it says which
//! next hops the FIB should have.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Bound;
use core::time::Duration;

use wire::Instant;
use wire::ndn::NameRef;
use wire::ndn::name::Name;

use crate::face::FaceId;
use crate::hash::DEPTH_MAX;

/// Who made a route.
pub mod origin {
    /// An application.
    pub const APP: u64 = 0;
    /// Automatic prefix registration.
    pub const AUTOREG: u64 = 64;
    /// The local client.
    pub const CLIENT: u64 = 65;
    /// Automatic configuration.
    pub const AUTOCONF: u64 = 66;
    /// A prefix announcement.
    pub const PREFIX_ANNOUNCEMENT: u64 = 129;
    /// NLSR.
    pub const NLSR: u64 = 128;
    /// An operator.
    pub const STATIC: u64 = 255;
}

/// Longer names may use the route too.
pub const CHILD_INHERIT: u64 = 1;
/// Routes of shorter names are not used here.
pub const CAPTURE: u64 = 2;

/// A route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The next hop.
    pub face: FaceId,
    /// One of [`origin`], or another number.
    pub origin: u64,
    /// Lower is better.
    pub cost: u64,
    /// [`CHILD_INHERIT`] and [`CAPTURE`].
    pub flags: u64,
    /// When it ends.
    pub expires: Option<Instant>,
}

/// A change that the FIB needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FibUpdate {
    /// The prefix has this next hop, with this cost.
    Add(Name, FaceId, u64),
    /// The prefix has this next hop no longer.
    Remove(Name, FaceId),
}

/// Why a route was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RibError {
    /// The table holds as many routes as it was made for.
    #[error("rib is full; make it for more routes")]
    Full,
    /// The prefix has more than 32 components.
    #[error("prefix has more than 32 components")]
    TooDeep,
}

#[derive(Debug, Default)]
struct Entry {
    routes: Vec<Route>,
    /// What the FIB has.
    installed: BTreeMap<FaceId, u64>,
}

/// The routing information base.
#[derive(Debug)]
pub struct Rib {
    entries: BTreeMap<Name, Entry>,
    expiry: BTreeSet<(Instant, Name, FaceId, u64)>,
    routes: usize,
    capacity: usize,
}

impl Rib {
    /// Makes room for `capacity` routes.
    pub const fn new(capacity: usize) -> Self {
        Self {
            entries: BTreeMap::new(),
            expiry: BTreeSet::new(),
            routes: 0,
            capacity,
        }
    }

    /// Returns the number of routes.
    pub const fn len(&self) -> usize {
        self.routes
    }

    /// True if there is no route.
    pub const fn is_empty(&self) -> bool {
        self.routes == 0
    }

    /// Adds a route, or takes the place of the one of the same face and origin; appends what the FIB needs
    /// to `updates`. O(entries below the prefix).
    ///
    /// # Errors
    /// [`RibError`].
    pub fn register(
        &mut self,
        prefix: NameRef<'_>,
        route: Route,
        updates: &mut Vec<FibUpdate>,
    ) -> Result<(), RibError> {
        if prefix.len() > DEPTH_MAX {
            return Err(RibError::TooDeep);
        }
        let name = Name::from(prefix);
        self.forget_expiry(&name, route.face, route.origin);
        let is_full = self.routes >= self.capacity;
        let known = self.entries.get_mut(&name).and_then(|entry| {
            let mut routes = entry.routes.iter_mut();
            routes.find(|known| known.face == route.face && known.origin == route.origin)
        });
        match known {
            Some(known) => *known = route,
            None if is_full => return Err(RibError::Full),
            None => {
                self.entries
                    .entry(name.clone())
                    .or_default()
                    .routes
                    .push(route);
                self.routes += 1;
            }
        }
        if let Some(when) = route.expires {
            self.expiry.insert((when, name, route.face, route.origin));
        }
        self.refresh_below(prefix, updates);
        Ok(())
    }

    /// Removes a route; true if it was there.
    pub fn unregister(
        &mut self,
        prefix: NameRef<'_>,
        face: FaceId,
        origin: u64,
        updates: &mut Vec<FibUpdate>,
    ) -> bool {
        let name = Name::from(prefix);
        self.forget_expiry(&name, face, origin);
        let Some(entry) = self.entries.get_mut(&name) else {
            return false;
        };
        let before = entry.routes.len();
        entry
            .routes
            .retain(|route| route.face != face || route.origin != origin);
        if entry.routes.len() == before {
            return false;
        }
        self.routes -= 1;
        self.refresh_below(prefix, updates);
        true
    }

    /// Removes all routes over a face; O(routes).
    pub fn remove_face(&mut self, face: FaceId, updates: &mut Vec<FibUpdate>) {
        let gone: Vec<(Name, u64)> = self
            .entries
            .iter()
            .flat_map(|(name, entry)| {
                let of_face = entry.routes.iter().filter(|route| route.face == face);
                of_face.map(|route| (name.clone(), route.origin))
            })
            .collect();
        for (name, origin) in gone {
            self.unregister(name.as_ref(), face, origin, updates);
        }
    }

    /// Returns when the next route ends.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.expiry.first().map(|first| first.0)
    }

    /// Removes routes whose time has come.
    pub fn handle_timeout(&mut self, now: Instant, updates: &mut Vec<FibUpdate>) {
        while let Some((when, name, face, origin)) = self.expiry.first().cloned() {
            if when > now {
                return;
            }
            self.unregister(name.as_ref(), face, origin, updates);
        }
    }

    /// Walks all prefixes with their routes, in canonical order.
    pub fn iter(&self) -> impl Iterator<Item = (&Name, &[Route])> {
        self.entries
            .iter()
            .map(|(name, entry)| (name, entry.routes.as_slice()))
    }

    /// Returns the longest prefix of a name that has routes.
    pub fn longest_match(&self, name: NameRef<'_>) -> Option<(&Name, &[Route])> {
        (0..=name.len()).rev().find_map(|depth| {
            let (name, entry) = self.entries.get_key_value(name.prefix(depth).value())?;
            Some((name, entry.routes.as_slice()))
        })
    }

    fn forget_expiry(&mut self, name: &Name, face: FaceId, origin: u64) {
        let known = self.entries.get(name).and_then(|entry| {
            let mut routes = entry.routes.iter();
            routes.find(|route| route.face == face && route.origin == origin)
        });
        if let Some(when) = known.and_then(|route| route.expires) {
            self.expiry.remove(&(when, name.clone(), face, origin));
        }
    }

    /// Returns the next hops that a prefix with routes has in the FIB: its own, and those of shorter prefixes
    /// that are inherited.
    fn effective(&self, name: NameRef<'_>) -> BTreeMap<FaceId, u64> {
        let mut hops: BTreeMap<FaceId, u64> = BTreeMap::new();
        for depth in (0..=name.len()).rev() {
            let Some(entry) = self.entries.get(name.prefix(depth).value()) else {
                continue;
            };
            let is_own = depth == name.len();
            let mut here: BTreeMap<FaceId, u64> = BTreeMap::new();
            for route in &entry.routes {
                if is_own || route.flags & CHILD_INHERIT != 0 {
                    let cost = here.entry(route.face).or_insert(route.cost);
                    *cost = (*cost).min(route.cost);
                }
            }
            for (face, cost) in here {
                // The longer prefix decides about a face.
                hops.entry(face).or_insert(cost);
            }
            if entry.routes.iter().any(|route| route.flags & CAPTURE != 0) {
                break;
            }
        }
        hops
    }

    /// Compares what the FIB has with what it should have, at and below a prefix.
    fn refresh_below(&mut self, prefix: NameRef<'_>, updates: &mut Vec<FibUpdate>) {
        let from = (Bound::Included(prefix.value()), Bound::Unbounded);
        let below: Vec<Name> = self
            .entries
            .range::<[u8], _>(from)
            .map(|(name, _)| name)
            .take_while(|name| prefix.is_prefix_of(&name.as_ref()))
            .cloned()
            .collect();
        for name in below {
            let wanted = match self.entries.get(&name) {
                Some(entry) if !entry.routes.is_empty() => self.effective(name.as_ref()),
                _ => BTreeMap::new(),
            };
            let Some(entry) = self.entries.get_mut(&name) else {
                continue;
            };
            for &face in entry.installed.keys() {
                if !wanted.contains_key(&face) {
                    updates.push(FibUpdate::Remove(name.clone(), face));
                }
            }
            for (&face, &cost) in &wanted {
                if entry.installed.get(&face) != Some(&cost) {
                    updates.push(FibUpdate::Add(name.clone(), face, cost));
                }
            }
            entry.installed = wanted;
            if entry.routes.is_empty() {
                self.entries.remove(&name);
            }
        }
    }
}

/// Milliseconds from now as an instant.
pub(crate) fn after_ms(now: Instant, ms: u64) -> Instant {
    now + Duration::from_millis(ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(uri: &str) -> Name {
        uri.parse().unwrap()
    }

    fn route(face: u32, cost: u64, flags: u64) -> Route {
        Route {
            face: FaceId(face),
            origin: origin::APP,
            cost,
            flags,
            expires: None,
        }
    }

    #[test]
    fn children_inherit_until_one_captures() {
        let mut rib = Rib::new(10);
        let mut updates = Vec::new();
        rib.register(
            name("/").as_ref(),
            route(1, 10, CHILD_INHERIT),
            &mut updates,
        )
        .unwrap();
        rib.register(name("/a").as_ref(), route(2, 20, 0), &mut updates)
            .unwrap();
        rib.register(
            name("/a/b").as_ref(),
            route(3, 30, CAPTURE | CHILD_INHERIT),
            &mut updates,
        )
        .unwrap();
        rib.register(name("/a/b/c").as_ref(), route(4, 40, 0), &mut updates)
            .unwrap();
        let hops = |uri: &str| {
            rib.effective(name(uri).as_ref())
                .into_iter()
                .map(|(f, c)| (f.0, c))
                .collect::<Vec<_>>()
        };
        assert_eq!(hops("/a"), [(1, 10), (2, 20)]);
        assert_eq!(hops("/a/b"), [(3, 30)]);
        assert_eq!(hops("/a/b/c"), [(3, 30), (4, 40)]);
        updates.clear();
        assert!(rib.unregister(name("/a/b").as_ref(), FaceId(3), origin::APP, &mut updates));
        assert_eq!(
            updates,
            [
                FibUpdate::Remove(name("/a/b"), FaceId(3)),
                FibUpdate::Remove(name("/a/b/c"), FaceId(3)),
                FibUpdate::Add(name("/a/b/c"), FaceId(1), 10),
            ]
        );
    }

    #[test]
    fn routes_expire_and_the_table_is_bounded() {
        let at = |secs| Instant::ZERO + Duration::from_secs(secs);
        let mut rib = Rib::new(1);
        let mut updates = Vec::new();
        let timed = Route {
            expires: Some(at(5)),
            ..route(1, 1, 0)
        };
        rib.register(name("/a").as_ref(), timed, &mut updates)
            .unwrap();
        assert_eq!(
            rib.register(name("/b").as_ref(), timed, &mut updates),
            Err(RibError::Full)
        );
        // Renewed: the old time means nothing.
        let renewed = Route {
            expires: Some(at(9)),
            ..timed
        };
        rib.register(name("/a").as_ref(), renewed, &mut updates)
            .unwrap();
        assert_eq!(rib.poll_timeout(), Some(at(9)));
        rib.handle_timeout(at(8), &mut updates);
        assert_eq!(rib.len(), 1);
        updates.clear();
        rib.handle_timeout(at(9), &mut updates);
        assert_eq!(updates, [FibUpdate::Remove(name("/a"), FaceId(1))]);
        assert!(rib.is_empty() && rib.poll_timeout().is_none());
    }

    proptest! {
        /// The FIB that updates build is the one that a full computation gives.
        #[test]
        fn updates_keep_the_fib_right(
            ops in proptest::collection::vec((0..4_u8, "(/[ab]){0,3}", 1..4_u32, 0..2_u64, 0..4_u64, 1..4_u64), 1..60),
        ) {
            let mut rib = Rib::new(1000);
            let mut fib: BTreeMap<(Name, FaceId), u64> = BTreeMap::new();
            for (op, uri, face, origin, flags, cost) in ops {
                let mut updates = Vec::new();
                let prefix = name(&uri);
                match op {
                    0 => { rib.unregister(prefix.as_ref(), FaceId(face), origin, &mut updates); }
                    1 => rib.remove_face(FaceId(face), &mut updates),
                    _ => {
                        let route = Route { origin, ..route(face, cost, flags) };
                        rib.register(prefix.as_ref(), route, &mut updates).unwrap();
                    }
                }
                for update in updates {
                    match update {
                        FibUpdate::Add(name, face, cost) => {
                            prop_assert_ne!(fib.insert((name, face), cost), Some(cost));
                        }
                        FibUpdate::Remove(name, face) => prop_assert!(fib.remove(&(name, face)).is_some()),
                    }
                }
                let mut expected = BTreeMap::new();
                for (name, _) in rib.iter() {
                    for (face, cost) in rib.effective(name.as_ref()) {
                        expected.insert((name.clone(), face), cost);
                    }
                }
                prop_assert_eq!(&fib, &expected);
            }
        }
    }
}
