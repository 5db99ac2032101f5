//! Sets and maps: exact keys by hash, intervals by search, concatenated intervals by the classifier.

use alloc::string::String;
use alloc::vec::Vec;

use hashbrown::HashMap;

use super::classify::Classes;
use super::dynamic::DynamicSet;
use super::key::{KEY_PARTS_MAX, PackedKey};
use super::program::{Action, ElementOp, Object};

/// What a map gives for a key.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Data {
    /// Nothing: it is a set.
    #[default]
    None,
    /// Numbers, each a range (equal ends for one number).
    Values(Vec<(u128, u128)>),
    /// Where control goes.
    Action(Action),
    /// An object.
    Object(Object),
}

/// One element of a set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Element {
    /// A range for each part of the key, ends included. Empty for the element that matches what no other does.
    pub key: Vec<(u128, u128)>,
    /// The data.
    pub data: Data,
    /// Time to live from loading on, nanoseconds.
    pub timeout_ns: Option<u64>,
    /// A counter of its own.
    pub counter: Option<u32>,
    /// Limits and quotas of its own.
    pub objects: Vec<Object>,
    /// Its text and comment, for explanations.
    pub text: String,
}

impl Element {
    fn is_exact(&self) -> bool {
        self.key.iter().all(|(low, high)| low == high)
    }
}

/// How keys are found.
#[derive(Debug)]
enum Index {
    /// Numbers.
    Numbers(HashMap<u128, u32, foldhash::fast::FixedState>),
    /// Concatenations.
    Keys(HashMap<PackedKey, u32, foldhash::fast::FixedState>),
    /// Ranges of numbers, sorted and apart.
    Ranges(Ranges),
    /// Concatenations of ranges.
    Boxes(Classes),
    /// Filled by packets.
    Dynamic(DynamicSet),
}

/// A set or map.
#[derive(Debug)]
pub struct Set {
    /// Its name, with its table; empty for anonymous ones.
    pub name: String,
    /// Widths of the key's parts, bits.
    pub widths: Vec<u16>,
    /// Elements.
    pub elements: Vec<Element>,
    /// What no other element matches.
    any: Option<u32>,
    /// Elements have times, counters or objects.
    has_state: bool,
    /// Each element that packets add gets these.
    pub element_ops: Vec<ElementOp>,
    index: Index,
}

/// Sorted ranges that do not overlap, with a first level by the high bits.
#[derive(Debug)]
struct Ranges {
    starts: Vec<u128>,
    ends: Vec<u128>,
    elements: Vec<u32>,
    /// For each value of the highest 16 of `bits` bits, the first range that ends at or after it.
    first: Vec<u32>,
    shift: u16,
}

/// Ranges from which on a first level pays.
const FIRST_LEVEL_FROM: usize = 256;

impl Ranges {
    fn new(mut list: Vec<(u128, u128, u32)>, bits: u16) -> Self {
        list.sort_unstable();
        let mut ranges = Self {
            starts: list.iter().map(|range| range.0).collect(),
            ends: list.iter().map(|range| range.1).collect(),
            elements: list.iter().map(|range| range.2).collect(),
            first: Vec::new(),
            shift: bits.saturating_sub(16),
        };
        if list.len() >= FIRST_LEVEL_FROM && bits >= 16 {
            ranges.first = (0..=65_536_u128)
                .map(|high| {
                    ranges
                        .ends
                        .partition_point(|end| *end < high << ranges.shift)
                        as u32
                })
                .collect();
        }
        ranges
    }

    #[inline]
    fn find(&self, value: u128) -> Option<u32> {
        let high = (value >> self.shift) as usize;
        let (from, to) = match (self.first.get(high), self.first.get(high + 1)) {
            (Some(from), Some(to)) => (*from as usize, (*to as usize + 1).min(self.ends.len())),
            _ => (0, self.ends.len()),
        };
        let at = from + self.ends.get(from..to)?.partition_point(|end| *end < value);
        (*self.starts.get(at)? <= value && value <= *self.ends.get(at)?)
            .then(|| self.elements.get(at).copied())?
    }
}

impl Set {
    /// Makes a set that does not change. Ranges of one-part sets must not overlap.
    pub fn fixed(name: String, widths: Vec<u16>, elements: Vec<Element>) -> Self {
        let any = elements
            .iter()
            .position(|element| element.key.is_empty())
            .map(|at| at as u32);
        let keyed = || {
            elements
                .iter()
                .enumerate()
                .filter(|(_, element)| !element.key.is_empty())
        };
        let exact = elements.iter().all(Element::is_exact);
        let index = match (widths.as_slice(), exact) {
            ([_], true) => Index::Numbers(
                keyed()
                    .filter_map(|(at, e)| e.key.first().map(|range| (range.0, at as u32)))
                    .collect(),
            ),
            ([bits], false) => Index::Ranges(Ranges::new(
                keyed()
                    .filter_map(|(at, e)| e.key.first().map(|(low, high)| (*low, *high, at as u32)))
                    .collect(),
                *bits,
            )),
            (_, true) => Index::Keys(
                keyed()
                    .map(|(at, element)| (pack_low(&element.key, &widths), at as u32))
                    .collect(),
            ),
            (_, false) => Index::Boxes(Classes::of_boxes(&widths, &elements)),
        };
        let has_state = elements
            .iter()
            .any(|e| e.timeout_ns.is_some() || e.counter.is_some() || !e.objects.is_empty());
        Self {
            name,
            widths,
            elements,
            any,
            has_state,
            element_ops: Vec::new(),
            index,
        }
    }

    /// Makes a set that packets fill.
    pub fn dynamic(
        name: String,
        widths: Vec<u16>,
        element_ops: Vec<ElementOp>,
        set: DynamicSet,
    ) -> Self {
        Self {
            name,
            widths,
            elements: Vec::new(),
            any: None,
            has_state: false,
            element_ops,
            index: Index::Dynamic(set),
        }
    }

    /// Returns the part that packets fill, if this is such a set.
    pub fn as_dynamic(&self) -> Option<&DynamicSet> {
        match &self.index {
            Index::Dynamic(set) => Some(set),
            _ => None,
        }
    }

    /// True if elements have times, counters or objects of their own.
    pub(super) fn has_state(&self) -> bool {
        self.has_state
    }

    /// True if the set has an element for whatever no other matches.
    pub(super) fn matches_all(&self) -> bool {
        self.any.is_some()
    }

    /// Finds the element of a key among those that do not change. O(1) for exact keys, O(log n) for ranges.
    #[inline]
    pub fn find(&self, parts: &[u128]) -> Option<u32> {
        let found = match &self.index {
            Index::Numbers(map) => parts.first().and_then(|value| map.get(value).copied()),
            Index::Keys(map) => {
                let mut key = PackedKey::default();
                for (value, bits) in parts.iter().zip(&self.widths) {
                    key.push(*value, *bits);
                }
                map.get(&key).copied()
            }
            Index::Ranges(ranges) => parts.first().and_then(|value| ranges.find(*value)),
            Index::Boxes(classes) => {
                let mut values = [None; KEY_PARTS_MAX];
                for (to, from) in values.iter_mut().zip(parts) {
                    *to = Some(*from);
                }
                classes.first(&values)
            }
            Index::Dynamic(_) => None,
        };
        found.or(self.any)
    }

    /// Returns an element.
    pub fn element(&self, at: u32) -> Option<&Element> {
        self.elements.get(at as usize)
    }
}

fn pack_low(key: &[(u128, u128)], widths: &[u16]) -> PackedKey {
    let mut packed = PackedKey::default();
    for ((low, _), bits) in key.iter().zip(widths) {
        packed.push(*low, *bits);
    }
    packed
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn element(key: &[(u128, u128)]) -> Element {
        Element {
            key: key.to_vec(),
            ..Element::default()
        }
    }

    #[test]
    fn exact_and_default() {
        let set = Set::fixed(
            String::new(),
            Vec::from([16]),
            Vec::from([element(&[(22, 22)]), element(&[(80, 80)])]),
        );
        assert_eq!((set.find(&[80]), set.find(&[81])), (Some(1), None));
        let map = Set::fixed(
            String::new(),
            Vec::from([16]),
            Vec::from([element(&[(22, 22)]), element(&[])]),
        );
        assert_eq!((map.find(&[22]), map.find(&[81])), (Some(0), Some(1)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        /// Ranges and concatenated ranges find what a linear search finds.
        #[test]
        fn finds_as_a_search_does(
            starts in prop::collection::btree_set(0_u128..200_000, 1..400),
            boxes in prop::collection::vec(((0_u128..64, 0_u128..16), (0_u128..64, 0_u128..16)), 1..200),
            probes in prop::collection::vec((0_u128..220_000, 0_u128..80, 0_u128..80), 50),
        ) {
            let starts: Vec<u128> = starts.into_iter().collect();
            let ranges: Vec<Element> = starts
                .iter()
                .enumerate()
                .map(|(at, low)| element(&[(*low, starts.get(at + 1).map_or(*low, |next| low + (next - low) / 2))]))
                .collect();
            let ranges = Set::fixed(String::new(), Vec::from([32]), ranges);
            let boxes: Vec<Element> =
                boxes.iter().map(|((a, b), (c, d))| element(&[(*a, a + b), (*c, c + d)])).collect();
            let boxes = Set::fixed(String::new(), Vec::from([32, 16]), boxes);
            for (number, x, y) in probes {
                let inside = |e: &Element, v: u128, part: usize| e.key[part].0 <= v && v <= e.key[part].1;
                let wanted = ranges.elements.iter().position(|e| inside(e, number, 0)).map(|at| at as u32);
                prop_assert_eq!(ranges.find(&[number]), wanted);
                let wanted = boxes.elements.iter().position(|e| inside(e, x, 0) && inside(e, y, 1));
                prop_assert_eq!(boxes.find(&[x, y]), wanted.map(|at| at as u32));
            }
        }
    }
}
