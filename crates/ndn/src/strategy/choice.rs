//! Which prefix has which strategy.

use alloc::vec::Vec;

use hashbrown::HashTable;
use wire::ndn::NameRef;
use wire::ndn::name::Name;

use super::name::{self, StrategyNameError};
use super::{AnyStrategy, BestRoute};
use crate::hash::{DEPTH_MAX, Depths, NameHasher, PrefixHashes};

/// Why a choice was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChoiceError {
    /// The strategy name cannot be used.
    #[error(transparent)]
    Name(#[from] StrategyNameError),
    /// The prefix has more than 32 components.
    #[error("prefix has more than 32 components")]
    TooDeep,
    /// The table is full.
    #[error("strategy choice table is full")]
    Full,
    /// The root has a strategy always.
    #[error("the strategy of / cannot be unset")]
    Root,
}

#[derive(Debug)]
struct Choice {
    hash: u64,
    prefix: Name,
    strategy_name: Name,
    strategy: AnyStrategy,
}

/// The strategy choice table; `/` has best-route at the start.
#[derive(Debug)]
pub struct StrategyChoice {
    table: HashTable<Choice>,
    root: Choice,
    counts: [u32; DEPTH_MAX + 1],
    depths: Depths,
    hasher: NameHasher,
    capacity: usize,
}

impl StrategyChoice {
    /// Makes room for `capacity` choices beside that of the root.
    pub fn new(capacity: usize, hasher: NameHasher) -> Self {
        let best_route = "/localhost/nfd/strategy/best-route/v=5";
        Self {
            table: HashTable::with_capacity(capacity),
            root: Choice {
                hash: hasher.hash(NameRef::EMPTY),
                prefix: Name::new(),
                strategy_name: best_route.parse().unwrap_or_default(),
                strategy: AnyStrategy::BestRoute(BestRoute::default()),
            },
            counts: [0; DEPTH_MAX + 1],
            depths: Depths::default(),
            hasher,
            capacity,
        }
    }

    /// Chooses a strategy for a prefix; returns the strategy's name with its version.
    ///
    /// # Errors
    /// [`ChoiceError`].
    pub fn set(&mut self, prefix: NameRef<'_>, strategy: NameRef<'_>) -> Result<Name, ChoiceError> {
        let (strategy, strategy_name) = name::parse(strategy)?;
        let choice = Choice {
            hash: self.hasher.hash(prefix),
            prefix: Name::from(prefix),
            strategy_name: strategy_name.clone(),
            strategy,
        };
        if prefix.is_empty() {
            self.root = choice;
            return Ok(strategy_name);
        }
        let count = self.counts.get_mut(prefix.len());
        let count = count.ok_or(ChoiceError::TooDeep)?;
        let same = |known: &Choice| known.hash == choice.hash && known.prefix == choice.prefix;
        if let Some(known) = self.table.find_mut(choice.hash, same) {
            *known = choice;
            return Ok(strategy_name);
        }
        if self.table.len() >= self.capacity {
            return Err(ChoiceError::Full);
        }
        *count += 1;
        self.depths = Depths::of_counts(self.counts);
        self.table
            .insert_unique(choice.hash, choice, |choice| choice.hash);
        Ok(strategy_name)
    }

    /// Removes the choice of a prefix; true if there was one.
    ///
    /// # Errors
    /// [`ChoiceError::Root`].
    pub fn unset(&mut self, prefix: NameRef<'_>) -> Result<bool, ChoiceError> {
        if prefix.is_empty() {
            return Err(ChoiceError::Root);
        }
        let hash = self.hasher.hash(prefix);
        let same = |known: &Choice| known.hash == hash && known.prefix.value() == prefix.value();
        let Ok(entry) = self.table.find_entry(hash, same) else {
            return Ok(false);
        };
        entry.remove();
        if let Some(count) = self.counts.get_mut(prefix.len()) {
            *count -= 1;
        }
        self.depths = Depths::of_counts(self.counts);
        Ok(true)
    }

    /// Returns which prefixes of a name [`lookup`](Self::lookup) needs the hashes of.
    #[inline]
    pub const fn depths(&self) -> Depths {
        self.depths
    }

    /// Returns the strategy of the longest prefix, of at most `depth` components, that has one.
    #[inline]
    pub fn lookup(&mut self, name: &[u8], hashes: &PrefixHashes, depth: usize) -> &mut AnyStrategy {
        let found = if self.table.is_empty() {
            None
        } else {
            hashes.longest_first(depth).find_map(|(depth, hash, end)| {
                if !self.depths.has(depth) {
                    return None;
                }
                let prefix = name.get(..end)?;
                let same = |known: &Choice| known.hash == hash && known.prefix.value() == prefix;
                self.table.find(hash, same).map(|_| (hash, end))
            })
        };
        match found {
            Some((hash, end)) => {
                let prefix = name.get(..end).unwrap_or_default();
                let same = |known: &Choice| known.hash == hash && known.prefix.value() == prefix;
                match self.table.find_mut(hash, same) {
                    Some(choice) => &mut choice.strategy,
                    None => &mut self.root.strategy,
                }
            }
            None => &mut self.root.strategy,
        }
    }

    /// Copies all choices, prefix and strategy name, in canonical order.
    pub fn entries(&self) -> Vec<(Name, Name)> {
        let all = core::iter::once(&self.root).chain(&self.table);
        let mut all: Vec<_> = all
            .map(|choice| (choice.prefix.clone(), choice.strategy_name.clone()))
            .collect();
        all.sort();
        all
    }
}
