//! A queue shared by several tenants without head-of-line blocking: each tenant has its own lane, in order of
//! arrival. Used for calls that wait for a permit ([`super::bulkhead`]) and for deliveries to observers
//! ([`crate::upstream`]).

use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
};

/// One entry, and the size it counts for.
struct LaneEntry<T> {
    item: T,
    size: usize,
}

/// The entries of one tenant; never empty.
struct Lane<T> {
    entries: VecDeque<LaneEntry<T>>,
    size: usize,
    /// The lane's position in the order of turns. The lane with the lowest number has waited longest.
    turn: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueueEnd {
    Oldest,
    Newest,
}

/// How a lane's length is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LaneMeasure {
    Entries,
    Size,
}

/// Lanes by `K`, which identifies a tenant.
pub(crate) struct FairQueue<K, T> {
    lanes: HashMap<K, Lane<T>>,
    entries: usize,
    size: usize,
    turns: u64,
}

impl<K, T> Default for FairQueue<K, T> {
    fn default() -> Self {
        FairQueue { lanes: HashMap::new(), entries: 0, size: 0, turns: 0 }
    }
}

impl<K: Clone + Eq + Hash, T> FairQueue<K, T> {
    pub(crate) fn len(&self) -> usize {
        self.entries
    }

    /// The sum of the entries' sizes.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// How many entries `key` has.
    pub(crate) fn len_of(&self, key: &K) -> usize {
        self.lanes.get(key).map_or(0, |lane| lane.entries.len())
    }

    pub(crate) fn push(&mut self, key: K, item: T, size: usize) {
        self.turns += 1;
        let turn = self.turns;
        let lane = self.lanes.entry(key).or_insert_with(|| Lane { entries: VecDeque::new(), size: 0, turn });
        lane.entries.push_back(LaneEntry { item, size });
        lane.size += size;
        self.entries += 1;
        self.size += size;
    }

    /// Takes the oldest entry of the lane whose turn it is. `rank` returns `None` for lanes to skip. The lane
    /// with the lowest rank wins; among equals, the one that has waited longest for its turn.
    pub(crate) fn pop<R: Ord>(&mut self, rank: impl Fn(&K) -> Option<R>) -> Option<(K, T)> {
        let ranked = self.lanes.iter().filter_map(|(key, lane)| Some((rank(key)?, lane.turn, key)));
        let key = ranked.min_by(|one, other| (&one.0, one.1).cmp(&(&other.0, other.1)))?.2.clone();
        self.turns += 1;
        if let Some(lane) = self.lanes.get_mut(&key) {
            lane.turn = self.turns;
        }
        let item = self.take(&key, QueueEnd::Oldest)?;
        Some((key, item))
    }

    /// The key of the longest lane, and its number of entries.
    pub(crate) fn longest(&self, measure: LaneMeasure, counts: impl Fn(&K) -> bool) -> Option<(K, usize)> {
        let length = |lane: &Lane<T>| match measure {
            LaneMeasure::Entries => lane.entries.len(),
            LaneMeasure::Size => lane.size,
        };
        let lanes = self.lanes.iter().filter(|(key, _)| counts(key));
        // Among equals, the lane that had its turn last.
        let (key, lane) = lanes.max_by_key(|(_, lane)| (length(lane), lane.turn))?;
        Some((key.clone(), lane.entries.len()))
    }

    /// Takes an entry at one end of the lane of `key`.
    pub(crate) fn take(&mut self, key: &K, end: QueueEnd) -> Option<T> {
        let lane = self.lanes.get_mut(key)?;
        let entry = match end {
            QueueEnd::Oldest => lane.entries.pop_front(),
            QueueEnd::Newest => lane.entries.pop_back(),
        };
        self.note_taken(key, entry)
    }

    /// Takes the first entry of `key` for which `is` returns true.
    pub(crate) fn remove(&mut self, key: &K, is: impl Fn(&T) -> bool) -> Option<T> {
        let lane = self.lanes.get_mut(key)?;
        let index = lane.entries.iter().position(|entry| is(&entry.item))?;
        let entry = lane.entries.remove(index);
        self.note_taken(key, entry)
    }

    pub(crate) fn drain(&mut self) -> Vec<T> {
        let lanes = std::mem::take(self).lanes;
        lanes.into_values().flat_map(|lane| lane.entries).map(|entry| entry.item).collect()
    }

    fn note_taken(&mut self, key: &K, entry: Option<LaneEntry<T>>) -> Option<T> {
        let entry = entry?;
        self.entries -= 1;
        self.size -= entry.size;
        let lane = self.lanes.get_mut(key)?;
        lane.size -= entry.size;
        if lane.entries.is_empty() {
            self.lanes.remove(key);
        }
        Some(entry.item)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn every<K>(_: &K) -> Option<()> {
        Some(())
    }

    #[test]
    fn tenants_have_turns_and_each_keeps_its_order() {
        let mut queue = FairQueue::default();
        for item in 0..4 {
            queue.push("noisy", item, 1);
        }
        queue.push("quiet", 10, 1);
        queue.push("quiet", 11, 1);
        let order: Vec<_> = std::iter::from_fn(|| queue.pop(every)).map(|(_, item)| item).collect();
        assert_eq!(order, [0, 10, 1, 11, 2, 3]);
        assert_eq!((queue.len(), queue.size()), (0, 0));
    }

    #[test]
    fn the_lowest_rank_comes_first_and_one_without_a_rank_waits() {
        let mut queue = FairQueue::default();
        for (key, item) in [("out", 0), ("second", 1), ("first", 2)] {
            queue.push(key, item, 1);
        }
        let rank = |key: &&str| match *key {
            "first" => Some(1),
            "second" => Some(2),
            _ => None,
        };
        assert_eq!(queue.pop(rank), Some(("first", 2)));
        assert_eq!(queue.pop(rank), Some(("second", 1)));
        assert_eq!(queue.pop(rank), None);
        assert_eq!(queue.len_of(&"out"), 1);
    }

    #[derive(Debug, Clone)]
    enum Act {
        Push(u8, usize),
        Pop,
        Shorten(bool),
        Remove(u8),
    }

    fn acts() -> impl Strategy<Value = Vec<Act>> {
        let act = prop_oneof![
            3 => (0_u8..4, 0_usize..100).prop_map(|(key, size)| Act::Push(key, size)),
            1 => Just(Act::Pop),
            1 => any::<bool>().prop_map(Act::Shorten),
            1 => (0_u8..4).prop_map(Act::Remove),
        ];
        prop::collection::vec(act, 0..60)
    }

    proptest! {
        #[test]
        fn sums_are_those_of_what_is_in_it_and_lanes_keep_their_order(acts in acts()) {
            let mut queue = FairQueue::default();
            // (key, item, size) in order of arrival.
            let mut model: Vec<(u8, usize, usize)> = Vec::new();
            for (number, act) in acts.into_iter().enumerate() {
                match act {
                    Act::Push(key, size) => {
                        queue.push(key, number, size);
                        model.push((key, number, size));
                    }
                    Act::Pop => {
                        let popped = queue.pop(every);
                        prop_assert_eq!(popped.is_none(), model.is_empty());
                        if let Some((key, item)) = popped {
                            let first = model.iter().position(|entry| entry.0 == key).expect("it has a lane");
                            prop_assert_eq!(model.remove(first).1, item);
                        }
                    }
                    Act::Shorten(oldest) => {
                        let Some((key, len)) = queue.longest(LaneMeasure::Entries, |_| true) else { continue };
                        let of_key: Vec<_> = model.iter().filter(|entry| entry.0 == key).cloned().collect();
                        prop_assert_eq!(of_key.len(), len);
                        prop_assert!((0..4).all(|other| queue.len_of(&other) <= len));
                        let end = if oldest { QueueEnd::Oldest } else { QueueEnd::Newest };
                        let gone = if oldest { of_key.first() } else { of_key.last() }.map(|entry| entry.1);
                        prop_assert_eq!(queue.take(&key, end), gone);
                        model.retain(|entry| Some(entry.1) != gone);
                    }
                    Act::Remove(key) => {
                        let last = model.iter().rposition(|entry| entry.0 == key);
                        let gone = last.map(|index| model.remove(index).1);
                        prop_assert_eq!(queue.remove(&key, |item| Some(*item) == gone), gone);
                    }
                }
                prop_assert_eq!(queue.len(), model.len());
                prop_assert_eq!(queue.size(), model.iter().map(|entry| entry.2).sum::<usize>());
            }
            let mut left = queue.drain();
            left.sort_unstable();
            prop_assert_eq!(left, model.into_iter().map(|entry| entry.1).collect::<Vec<_>>());
        }
    }
}
