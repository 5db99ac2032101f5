//! The classifier: finds the rules that may match a packet, in order, at a cost that their number hardly shows.
//!
//! Each field that rules test is a dimension. A packet's value falls into a class of values that no rule tells
//! apart; each class has a bitmap of the rules that accept it (Lakshman and Stiliadis 1998). The bitmaps have a
//! summary, one bit for 64 rules (aggregated bit vectors, Baboescu and Varghese 2001), and words that are zero
//! are not stored. The AND of the summaries, then of the words, leaves the candidates.
//!
//! Summaries are of use where rules that test the same fields stand together: a value that none of them accepts leaves
//! their words zero. So the bits of a block, but for its first word, are those of the rules sorted by the fields that
//! they test (aggregation by rearranging rules, as Baboescu and Varghese have it), and no word has rules of two such
//! groups if it can be avoided; candidates are put in order again.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use arrayvec::ArrayVec;
use hashbrown::HashMap;

use super::field::Field;
use super::key::KEY_PARTS_MAX;
use super::set::Element;

/// Most dimensions; rules' tests of further fields are left to the rules.
pub(super) const DIMENSIONS_MAX: usize = 16;

/// Rules of one block: a summary word of 64 bits, each for a word of 64 rules.
const BLOCK: usize = 64 * 64;

/// Words of a block that may be wasted on letting groups of rules begin a word of their own.
const PADDING: usize = 16;

/// Rules that are worth a word of their own.
const GROUP_MIN: usize = 16;

/// Stands for no rule in an order.
const NONE: u32 = u32::MAX;

/// What no rule accepts.
static NOTHING: Option<Ranges> = Some(Vec::new());

/// Ranges of values, ends included, sorted and apart.
pub(super) type Ranges = Vec<(u128, u128)>;

/// A bitmap without its zero words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Row {
    /// Which words are stored.
    summary: u64,
    /// Where they start.
    start: u32,
}

impl Row {
    /// Returns word `at`, which the summary says is there.
    #[inline(always)]
    fn word(self, words: &[u64], at: u32) -> u64 {
        let before = (self.summary & ((1 << at) - 1)).count_ones();
        words
            .get((self.start + before) as usize)
            .copied()
            .unwrap_or(0)
    }
}

/// From a value to its class.
#[derive(Debug)]
enum Lookup {
    /// Up to 8 bits.
    Byte(Box<[u32; 256]>),
    /// Up to 16 bits: by high byte, then, where its values differ, by low byte.
    Short {
        high: Box<[u32; 256]>,
        low: Vec<[u32; 256]>,
    },
    /// Up to 64 bits.
    Long(Search<u64>),
    /// More.
    Wide(Search<u128>),
}

/// Single values by hash, the rest by search.
#[derive(Debug)]
struct Search<V> {
    single: HashMap<V, u32, foldhash::fast::FixedState>,
    /// Where each class starts; the first one at zero.
    starts: Vec<V>,
    classes: Vec<u32>,
}

/// In `Lookup::Short`: the entry is a table of low bytes, not a class.
const IS_TABLE: u32 = 1 << 31;

#[derive(Debug)]
struct Dimension {
    lookup: Lookup,
    /// Rows of class `c`: `blocks` of them from `c * blocks` on. Class 0 is for packets without the field.
    rows: Vec<Row>,
    words: Vec<u64>,
}

/// Classes of all dimensions over a list of rules (or boxes).
#[derive(Debug, Default)]
pub(super) struct Classes {
    dimensions: Vec<Dimension>,
    blocks: usize,
    /// Bits in use.
    count: usize,
    /// Which rule a bit stands for, or [`NONE`]; empty if each stands for the rule of its number.
    order: Vec<u32>,
    /// Rules of a block.
    per_block: usize,
}

/// A classifier of a chain: the fields to read, and their classes.
#[derive(Debug, Default)]
pub(super) struct Classifier {
    /// Some field differs from packet to packet of a flow.
    pub(super) per_packet: bool,
    pub(super) fields: Vec<Field>,
    pub(super) classes: Classes,
}

impl Classes {
    /// Makes classes. `dimensions` has, for each field, its width and the ranges that each rule accepts
    /// (`None`: whatever it is, absent too).
    pub(super) fn new(dimensions: &[(u16, Vec<Option<Ranges>>)], count: usize) -> Self {
        let (order, per_block) = arrange(dimensions, count);
        let count = if order.is_empty() { count } else { order.len() };
        let blocks = count.div_ceil(BLOCK).max(1);
        let dimensions = dimensions
            .iter()
            .map(|(bits, rules)| {
                let rules: Vec<&Option<Ranges>> = if order.is_empty() {
                    rules.iter().collect()
                } else {
                    let of = |rule: &u32| rules.get(*rule as usize).unwrap_or(&NOTHING);
                    order.iter().map(of).collect()
                };
                Dimension::new(*bits, &rules, blocks)
            })
            .collect();
        Self {
            dimensions,
            blocks,
            count,
            order,
            per_block,
        }
    }

    /// Makes classes of the elements of a set of concatenated ranges.
    pub(super) fn of_boxes(widths: &[u16], elements: &[Element]) -> Self {
        let dimensions: Vec<(u16, Vec<Option<Ranges>>)> = widths
            .iter()
            .enumerate()
            .take(KEY_PARTS_MAX)
            .map(|(part, bits)| {
                let ranges = |element: &Element| {
                    element
                        .key
                        .get(part)
                        .map_or(Some(Vec::new()), |range| Some(vec![*range]))
                };
                (*bits, elements.iter().map(ranges).collect())
            })
            .collect();
        Self::new(&dimensions, elements.len())
    }

    /// Returns the first rule that accepts all values.
    pub(super) fn first(&self, values: &[Option<u128>]) -> Option<u32> {
        let mut found = None;
        self.candidates(values, |rule| {
            found = Some(rule);
            false
        });
        found
    }

    /// Calls `visit` with each rule that accepts all values, in order, until it returns false.
    #[inline]
    pub(super) fn candidates(&self, values: &[Option<u128>], mut visit: impl FnMut(u32) -> bool) {
        let mut classes = [0_u32; DIMENSIONS_MAX];
        for ((class, dimension), value) in classes.iter_mut().zip(&self.dimensions).zip(values) {
            *class = value.map_or(0, |value| dimension.class(value));
        }
        for block in 0..self.blocks {
            let mut rows = [Row::default(); DIMENSIONS_MAX];
            let mut summary = self.summary_of_all(block);
            for ((row, dimension), class) in rows.iter_mut().zip(&self.dimensions).zip(&classes) {
                *row = dimension
                    .rows
                    .get(*class as usize * self.blocks + block)
                    .copied()
                    .unwrap_or_default();
                summary &= row.summary;
            }
            let (first, first_rule) = ((block * BLOCK) as u32, (block * self.per_block) as u32);
            let mut found = Found::default();
            while summary != 0 {
                let at = summary.trailing_zeros();
                summary &= summary - 1;
                let mut word = self.word_of_all(block, at);
                for (row, dimension) in rows.iter().zip(&self.dimensions) {
                    word &= row.word(&dimension.words, at);
                    if word == 0 {
                        break;
                    }
                }
                while word != 0 {
                    let bit = first + at * 64 + word.trailing_zeros();
                    word &= word - 1;
                    let rule = self.order.get(bit as usize).copied().unwrap_or(bit);
                    if at > 0 && !self.order.is_empty() {
                        found.add(rule.saturating_sub(first_rule));
                    } else if !visit(rule) {
                        return;
                    }
                }
            }
            if !found.each(|rule| visit(first_rule + rule)) {
                return;
            }
        }
    }

    fn summary_of_all(&self, block: usize) -> u64 {
        let words = self.count.saturating_sub(block * BLOCK).div_ceil(64);
        if words >= 64 {
            u64::MAX
        } else {
            (1 << words) - 1
        }
    }

    fn word_of_all(&self, block: usize, at: u32) -> u64 {
        let rules = self.count.saturating_sub(block * BLOCK + at as usize * 64);
        if rules >= 64 {
            u64::MAX
        } else {
            (1 << rules) - 1
        }
    }
}

/// Groups the rules of each block, but for the first 64, by the fields that they test, large groups at words of their
/// own; returns which rule each bit stands for (nothing if each stands for the rule of its number) and the rules of a
/// block.
fn arrange(dimensions: &[(u16, Vec<Option<Ranges>>)], count: usize) -> (Vec<u32>, usize) {
    let fields = |rule: &u32| {
        dimensions.iter().fold(0_u32, |fields, (_, rules)| {
            let tests = rules.get(*rule as usize).is_some_and(Option::is_some);
            fields << 1 | u32::from(tests)
        })
    };
    let mut rules: Vec<u32> = (0..count as u32).collect();
    let is_one_group = rules.is_sorted_by(|one, next| fields(one) == fields(next));
    if count <= 64 || is_one_group {
        return (Vec::new(), BLOCK);
    }
    let per_block = BLOCK - 64 * PADDING;
    let mut order: Vec<u32> = Vec::new();
    for block in rules.chunks_mut(per_block) {
        order.resize(order.len().next_multiple_of(BLOCK), NONE);
        // The first rules may end a packet's way at once: before the others are looked at.
        let (first, rest) = block.split_at_mut(64.min(block.len()));
        order.extend_from_slice(first);
        rest.sort_by_key(fields);
        let groups = || rest.chunk_by(|one, next| fields(one) == fields(next));
        let mut padding = PADDING;
        for group in groups().filter(|group| group.len() >= GROUP_MIN) {
            if padding > 0 && !order.len().is_multiple_of(64) {
                padding -= 1;
                order.resize(order.len().next_multiple_of(64), NONE);
            }
            order.extend_from_slice(group);
        }
        if padding > 0 {
            order.resize(order.len().next_multiple_of(64), NONE);
        }
        for group in groups().filter(|group| group.len() < GROUP_MIN) {
            order.extend_from_slice(group);
        }
    }
    (order, per_block)
}

/// Candidates of a block that were found in another order than that of the rules: nearly always few.
#[derive(Default)]
struct Found {
    few: ArrayVec<u32, 16>,
    many: Option<[u64; BLOCK / 64]>,
}

impl Found {
    #[inline]
    fn add(&mut self, rule: u32) {
        if let Some(rules) = &mut self.many {
            flip(rules, rule);
        } else if self.few.try_push(rule).is_err() {
            let mut rules = [0; BLOCK / 64];
            for rule in self.few.drain(..).chain([rule]) {
                flip(&mut rules, rule);
            }
            self.many = Some(rules);
        }
    }

    /// Calls `visit` with each, in order, until it returns false; tells whether it never did.
    #[inline]
    fn each(&mut self, mut visit: impl FnMut(u32) -> bool) -> bool {
        let Some(rules) = &self.many else {
            self.few.sort_unstable();
            return self.few.iter().all(|rule| visit(*rule));
        };
        (0..).zip(rules).all(|(at, word)| {
            let mut word = *word;
            while word != 0 {
                let rule = at * 64 + word.trailing_zeros();
                word &= word - 1;
                if !visit(rule) {
                    return false;
                }
            }
            true
        })
    }
}

impl Dimension {
    fn new(bits: u16, rules: &[&Option<Ranges>], blocks: usize) -> Self {
        let mut builder = Builder {
            blocks,
            rows: Vec::new(),
            words: Vec::new(),
            known: HashMap::default(),
        };
        let words = rules.len().div_ceil(64);
        let mut free = vec![0_u64; words];
        for (rule, ranges) in rules.iter().enumerate() {
            if ranges.is_none() {
                flip(&mut free, rule as u32);
            }
        }
        builder.class(&free);
        let classes = sweep(rules, &free, &mut builder);
        let lookup = Lookup::new(bits, classes);
        Self {
            lookup,
            rows: builder.rows,
            words: builder.words,
        }
    }

    #[inline]
    fn class(&self, value: u128) -> u32 {
        match &self.lookup {
            Lookup::Byte(table) => table.get(value as usize).copied().unwrap_or(0),
            Lookup::Short { high, low } => {
                let entry = high.get((value >> 8) as usize).copied().unwrap_or(0);
                if entry & IS_TABLE == 0 {
                    return entry;
                }
                let table = low.get((entry & !IS_TABLE) as usize);
                table
                    .and_then(|table| table.get(value as usize & 0xff))
                    .copied()
                    .unwrap_or(0)
            }
            Lookup::Long(search) => search.class(value as u64),
            Lookup::Wide(search) => search.class(value),
        }
    }
}

impl<V: Copy + Ord + core::hash::Hash> Search<V> {
    #[inline]
    fn class(&self, value: V) -> u32 {
        if !self.single.is_empty()
            && let Some(class) = self.single.get(&value)
        {
            return *class;
        }
        // The last start that is not above the value, without a branch that depends on it.
        let (mut base, mut size) = (0, self.starts.len());
        while size > 1 {
            let half = size / 2;
            let is_below = self
                .starts
                .get(base + half)
                .is_some_and(|start| *start <= value);
            base += if is_below { half } else { 0 };
            size -= half;
        }
        self.classes.get(base).copied().unwrap_or(0)
    }
}

fn flip(bitmap: &mut [u64], rule: u32) {
    if let Some(word) = bitmap.get_mut(rule as usize / 64) {
        *word ^= 1 << (rule % 64);
    }
}

/// Walks over the ends of all ranges and returns where each class of values starts.
fn sweep(rules: &[&Option<Ranges>], free: &[u64], builder: &mut Builder) -> Vec<(u128, u32)> {
    let mut edges: Vec<(u128, u32)> = Vec::new();
    for (rule, ranges) in rules.iter().enumerate() {
        for (low, high) in merged(ranges.as_deref().unwrap_or_default()) {
            edges.push((low, rule as u32));
            if let Some(after) = high.checked_add(1) {
                edges.push((after, rule as u32));
            }
        }
    }
    edges.sort_unstable();
    let mut bitmap = free.to_vec();
    let mut classes: Vec<(u128, u32)> = Vec::new();
    let mut start = 0;
    let mut edges = edges.into_iter().peekable();
    loop {
        while let Some((_, rule)) = edges.next_if(|(at, _)| *at == start) {
            flip(&mut bitmap, rule);
        }
        let class = builder.class(&bitmap);
        if classes.last().is_none_or(|(_, last)| *last != class) {
            classes.push((start, class));
        }
        match edges.peek() {
            Some((next, _)) => start = *next,
            None => return classes,
        }
    }
}

/// Sorts ranges and joins those that overlap or touch.
pub(super) fn merged(ranges: &[(u128, u128)]) -> Ranges {
    let mut sorted = ranges.to_vec();
    sorted.sort_unstable();
    let mut joined: Ranges = Vec::with_capacity(sorted.len());
    for (low, high) in sorted {
        match joined.last_mut() {
            Some(last) if low <= last.1.saturating_add(1) => last.1 = last.1.max(high),
            _ => joined.push((low, high)),
        }
    }
    joined
}

impl Lookup {
    fn new(bits: u16, classes: Vec<(u128, u32)>) -> Self {
        let class_of = |value: u128| {
            let at = classes.partition_point(|(start, _)| *start <= value);
            at.checked_sub(1)
                .and_then(|at| classes.get(at))
                .map_or(0, |class| class.1)
        };
        if bits <= 8 {
            return Self::Byte(Box::new(core::array::from_fn(|value| {
                class_of(value as u128)
            })));
        }
        if bits <= 16 {
            let mut low = Vec::new();
            let high = core::array::from_fn(|high| {
                let table: [u32; 256] =
                    core::array::from_fn(|low| class_of((high << 8 | low) as u128));
                if table.iter().all(|class| *class == table[0]) {
                    return table[0];
                }
                low.push(table);
                IS_TABLE | (low.len() - 1) as u32
            });
            return Self::Short {
                high: Box::new(high),
                low,
            };
        }
        if bits <= 64 {
            // What lies beyond, the end of a range up to the last value, no value reaches.
            let narrow = |(start, class): &(u128, u32)| Some((u64::try_from(*start).ok()?, *class));
            let classes: Vec<(u64, u32)> = classes.iter().filter_map(narrow).collect();
            return Self::Long(Search::new(&classes, |start| start.checked_add(1)));
        }
        Self::Wide(Search::new(&classes, |start| start.checked_add(1)))
    }
}

impl<V: Copy + Ord + core::hash::Hash> Search<V> {
    /// A class of one value between two ranges of one class is found by hash, and its neighbours joined.
    fn new(classes: &[(V, u32)], after: impl Fn(V) -> Option<V>) -> Self {
        let mut single = HashMap::default();
        let (mut starts, mut list): (Vec<V>, Vec<u32>) = (Vec::new(), Vec::new());
        for (at, (start, class)) in classes.iter().enumerate() {
            let next = classes.get(at + 1);
            let is_single = next
                .is_some_and(|next| Some(next.0) == after(*start) && list.last() == Some(&next.1));
            if is_single {
                single.insert(*start, *class);
            } else if list.last() != Some(class) {
                starts.push(*start);
                list.push(*class);
            }
        }
        Self {
            single,
            starts,
            classes: list,
        }
    }
}

/// Gives each bitmap its class, equal ones the same.
struct Builder {
    blocks: usize,
    rows: Vec<Row>,
    words: Vec<u64>,
    known: HashMap<Vec<u64>, u32, foldhash::fast::FixedState>,
}

impl Builder {
    fn class(&mut self, bitmap: &[u64]) -> u32 {
        if let Some(class) = self.known.get(bitmap) {
            return *class;
        }
        let class = (self.rows.len() / self.blocks) as u32;
        for block in 0..self.blocks {
            let mut row = Row {
                summary: 0,
                start: self.words.len() as u32,
            };
            for at in 0..64 {
                let word = bitmap.get(block * 64 + at).copied().unwrap_or(0);
                if word != 0 {
                    row.summary |= 1 << at;
                    self.words.push(word);
                }
            }
            self.rows.push(row);
        }
        self.known.insert(bitmap.to_vec(), class);
        class
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ranges(max: u128) -> impl Strategy<Value = Option<Ranges>> {
        let range =
            (0..max, 0_u128..40).prop_map(move |(low, length)| (low, (low + length).min(max)));
        prop::option::of(prop::collection::vec(range, 0..4))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// The candidates are those that a test of every rule finds, in order.
        #[test]
        fn candidates_as_one_by_one(
            rules in prop::collection::vec((ranges(255), ranges(65_535), ranges(u128::from(u32::MAX))), 1..200),
            values in prop::collection::vec(
                (prop::option::of(0_u128..256), prop::option::of(0_u128..65_536), prop::option::of(0_u128..1 << 32)), 20),
        ) {
            let dimensions = [
                (8, rules.iter().map(|rule| rule.0.clone()).collect::<Vec<_>>()),
                (16, rules.iter().map(|rule| rule.1.clone()).collect()),
                (32, rules.iter().map(|rule| rule.2.clone()).collect()),
            ];
            let classes = Classes::new(&dimensions, rules.len());
            // Values at the edges of ranges too: there is where mistakes are.
            let edges = rules.iter().map(|rule| {
                let edge = |ranges: &Option<Ranges>| ranges.as_ref().and_then(|r| r.first()).map(|r| r.1);
                (edge(&rule.0), edge(&rule.1), edge(&rule.2))
            });
            for (a, b, c) in values.into_iter().chain(edges) {
                let accepts = |ranges: &Option<Ranges>, value: Option<u128>| match (ranges, value) {
                    (None, _) => true,
                    (Some(_), None) => false,
                    (Some(ranges), Some(value)) => ranges.iter().any(|(low, high)| *low <= value && value <= *high),
                };
                let wanted: Vec<u32> = (0..rules.len() as u32)
                    .filter(|at| {
                        let rule = &rules[*at as usize];
                        accepts(&rule.0, a) && accepts(&rule.1, b) && accepts(&rule.2, c)
                    })
                    .collect();
                let mut found = Vec::new();
                classes.candidates(&[a, b, c], |rule| { found.push(rule); true });
                prop_assert_eq!(found, wanted);
            }
        }
    }

    #[test]
    fn the_last_values_of_a_wide_field_are_found() {
        for (bits, max) in [(64, u128::from(u64::MAX)), (128, u128::MAX)] {
            let rules = vec![Some(vec![(max - 9, max)]), Some(vec![(max, max)]), None];
            let classes = Classes::new(&[(bits, rules)], 3);
            assert_eq!(classes.first(&[Some(max)]), Some(0));
            assert_eq!(classes.first(&[Some(max - 10)]), Some(2));
            assert_eq!(classes.first(&[Some(0)]), Some(2));
        }
    }

    #[test]
    fn more_candidates_than_are_kept_singly_come_in_order() {
        // Two shapes in turn: all of one accept everything, all of the other a range.
        let rules = |of: u32| {
            let wide = vec![(0, u128::from(u32::MAX))];
            (0..500_u32)
                .map(|at| (at % 2 == of).then(|| wide.clone()))
                .collect::<Vec<_>>()
        };
        let classes = Classes::new(&[(32, rules(0)), (16, rules(1))], 500);
        let mut found = Vec::new();
        classes.candidates(&[Some(7), Some(9)], |rule| {
            found.push(rule);
            true
        });
        assert_eq!(found, (0..500).collect::<Vec<_>>());
        let mut asked = 0;
        classes.candidates(&[Some(7), None], |rule| {
            asked += 1;
            rule < 100
        });
        assert_eq!(asked, 51, "the even ones, up to the first that says stop");
    }

    #[test]
    fn groups_of_rules_stand_in_words_of_their_own() {
        // Of five fields, each rule tests one; three blocks of them.
        let count = 7000;
        let dimensions: Vec<(u16, Vec<Option<Ranges>>)> = (0..5)
            .map(|field| {
                let rule = |at: u128| (at % 5 == field).then(|| vec![(at, at)]);
                (32, (0..count).map(rule).collect())
            })
            .collect();
        let classes = Classes::new(&dimensions, count as usize);
        let mut seen: Vec<u32> = classes
            .order
            .iter()
            .copied()
            .filter(|rule| *rule != NONE)
            .collect();
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..count as u32), "each rule has a bit");
        for (at, word) in classes.order.chunks(64).enumerate() {
            let mut rules = word
                .iter()
                .filter(|rule| **rule != NONE)
                .map(|rule| rule % 5);
            let first = rules.next();
            assert!(
                at % 64 == 0 || rules.all(|field| Some(field) == first),
                "word {at}"
            );
        }
        for rule in [0, 63, 64, 3071, 3072, 4096, 6999_u128] {
            let values: [Option<u128>; 5] =
                core::array::from_fn(|field| (rule % 5 == field as u128).then_some(rule));
            assert_eq!(classes.first(&values), Some(rule as u32));
        }
        assert_eq!(classes.first(&[Some(count); 5]), None);
    }

    #[test]
    fn more_rules_than_a_block() {
        let rules: Vec<Option<Ranges>> = (0..10_000_u128)
            .map(|at| Some(vec![(at * 7, at * 7)]))
            .collect();
        let classes = Classes::new(&[(32, rules)], 10_000);
        assert_eq!(classes.first(&[Some(9_999 * 7)]), Some(9_999));
        assert_eq!(classes.first(&[Some(4_096 * 7)]), Some(4_096));
        assert_eq!(classes.first(&[Some(3)]), None);
    }
}
