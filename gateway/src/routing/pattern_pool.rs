//! Compiled patterns to reuse: tens of thousands of bindings have the same few conditions, and tenants the same
//! few lists of models, and a compiled pattern takes some KiB. One pool serves a table and all tables rebuilt from
//! it. Calls never use it.

use std::{
    borrow::Borrow,
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use crate::{config::Match, core::model_names::ModelNames, routing::conditions::CompiledConditions};

/// The compiled patterns of a table.
#[derive(Debug, Default)]
pub(super) struct PatternPool {
    pub(super) conditions: WeakMap<Match, CompiledConditions>,
    models: WeakMap<Vec<String>, ModelNames>,
}

impl PatternPool {
    /// The models that a tenant's list has. A list is checked with the configuration; one that can't be used has none.
    pub(super) fn models(&self, list: &Vec<String>) -> Arc<ModelNames> {
        self.models.get(list).unwrap_or_else(|| {
            let names = Arc::new(ModelNames::new("models", list).unwrap_or_default());
            self.models.insert(list.clone(), &names);
            names
        })
    }
}

/// Values by what they were compiled from, kept only while they are used.
#[derive(Debug)]
pub(super) struct WeakMap<K, V>(Mutex<HashMap<K, Weak<V>>>);

impl<K, V> Default for WeakMap<K, V> {
    fn default() -> Self {
        WeakMap(Mutex::default())
    }
}

impl<K: Hash + Eq, V> WeakMap<K, V> {
    pub(super) fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<Arc<V>>
    where
        K: Borrow<Q>,
    {
        self.locked().get(key).and_then(Weak::upgrade)
    }

    pub(super) fn insert(&self, key: K, value: &Arc<V>) {
        let mut known = self.locked();
        // Unused entries are removed when the map is full, before it would grow.
        if known.len() == known.capacity() {
            known.retain(|_, value| value.strong_count() > 0);
            let kept = known.len();
            known.reserve(kept + 1);
        }
        known.insert(key, Arc::downgrade(value));
    }

    fn locked(&self) -> MutexGuard<'_, HashMap<K, Weak<V>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.locked().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_lists_of_models_are_shared() {
        let pool = PatternPool::default();
        let list = |entry: &str| vec![entry.to_owned()];
        let (one, same, other) =
            (pool.models(&list("gpt-*")), pool.models(&list("gpt-*")), pool.models(&list("fast")));
        assert!(Arc::ptr_eq(&one, &same) && !Arc::ptr_eq(&one, &other));
        assert!(one.contains("gpt-5") && !other.contains("gpt-5"));
        assert!(!pool.models(&list("[")).contains("["), "a broken list has no model");
    }
}
