//! Short lists of records in one pool that is sized at start.

use alloc::vec::Vec;

use crate::face::FaceId;

const END: u32 = u32::MAX;

/// What a list holds: one record a face.
pub(super) trait Record: Copy {
    fn face(&self) -> FaceId;
}

/// A list: the place of its first record.
#[derive(Debug)]
pub(super) struct List {
    first: u32,
}

impl Default for List {
    fn default() -> Self {
        Self { first: END }
    }
}

/// All records of a kind.
#[derive(Debug)]
pub(super) struct Pool<T> {
    nodes: Vec<(T, u32)>,
    free: u32,
    capacity: usize,
}

impl<T: Record> Pool<T> {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            nodes: Vec::with_capacity(capacity),
            free: END,
            capacity,
        }
    }

    pub(super) fn iter(&self, list: Option<&List>) -> impl Iterator<Item = &T> {
        let mut at = list.map_or(END, |list| list.first);
        core::iter::from_fn(move || {
            let (record, next) = self.nodes.get(at as usize)?;
            at = *next;
            Some(record)
        })
    }

    pub(super) fn find_mut(&mut self, list: &List, face: FaceId) -> Option<&mut T> {
        let mut at = list.first;
        loop {
            let (record, next) = self.nodes.get(at as usize)?;
            if record.face() == face {
                return self.nodes.get_mut(at as usize).map(|(record, _)| record);
            }
            at = *next;
        }
    }

    /// Puts a record in the place of the one of the same face, or adds it in front; `None` if the pool is
    /// full.
    pub(super) fn put(&mut self, list: &mut List, record: T) -> Option<()> {
        if let Some(known) = self.find_mut(list, record.face()) {
            *known = record;
            return Some(());
        }
        let node = (record, list.first);
        let at = if let Some(place) = self.nodes.get_mut(self.free as usize) {
            let at = self.free;
            self.free = place.1;
            *place = node;
            at
        } else if self.nodes.len() < self.capacity {
            self.nodes.push(node);
            (self.nodes.len() - 1) as u32
        } else {
            return None;
        };
        list.first = at;
        Some(())
    }

    pub(super) fn take(&mut self, list: &mut List, face: FaceId) -> Option<T> {
        let mut before = END;
        let mut at = list.first;
        loop {
            let &(record, next) = self.nodes.get(at as usize)?;
            if record.face() == face {
                match self.nodes.get_mut(before as usize) {
                    Some(node) => node.1 = next,
                    None => list.first = next,
                }
                self.release(at);
                return Some(record);
            }
            before = at;
            at = next;
        }
    }

    pub(super) fn clear(&mut self, list: &mut List) {
        let mut at = list.first;
        while let Some(&(_, next)) = self.nodes.get(at as usize) {
            self.release(at);
            at = next;
        }
        list.first = END;
    }

    fn release(&mut self, at: u32) {
        if let Some(node) = self.nodes.get_mut(at as usize) {
            node.1 = self.free;
            self.free = at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl Record for (FaceId, u8) {
        fn face(&self) -> FaceId {
            self.0
        }
    }

    proptest! {
        #[test]
        fn lists_share_a_pool(ops in proptest::collection::vec((0..3_u8, 0..3_usize, 0..5_u32, any::<u8>()), 0..80)) {
            let mut pool = Pool::new(6);
            let mut lists = [List::default(), List::default(), List::default()];
            let mut model: [Vec<(FaceId, u8)>; 3] = Default::default();
            for (op, list, face, value) in ops {
                let face = FaceId(face);
                let known = model[list].iter().position(|record| record.0 == face);
                match op {
                    0 => {
                        let fits = known.is_some() || model.iter().map(Vec::len).sum::<usize>() < 6;
                        prop_assert_eq!(pool.put(&mut lists[list], (face, value)).is_some(), fits);
                        match known {
                            Some(at) => model[list][at].1 = value,
                            None if fits => model[list].insert(0, (face, value)),
                            None => {}
                        }
                    }
                    1 => {
                        let expected = known.map(|at| model[list].remove(at));
                        prop_assert_eq!(pool.take(&mut lists[list], face), expected);
                    }
                    _ => {
                        pool.clear(&mut lists[list]);
                        model[list].clear();
                    }
                }
                for (list, expected) in lists.iter().zip(&model) {
                    prop_assert_eq!(&pool.iter(Some(list)).copied().collect::<Vec<_>>(), expected);
                }
            }
        }
    }
}
