//! The quota of a plugin's data for a tenant. The database isn't asked on every write: this process adds up what it
//! wrote since it last asked. Other replicas write too, so together they may exceed the quota by what they write in
//! [`MAX_AGE`]. A write is refused only by what the database says.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use arc_swap::ArcSwap;
use tokio::time::Instant;
use tonic::Status;

use super::{COUNTER_BYTES, entry_bytes, error, now_ms};
use crate::{
    config,
    store::{DataChange, DataOperation, DataScope, DataUsage, PluginData},
};

/// How long a reading is used.
const MAX_AGE: Duration = Duration::from_secs(10);
/// How long a reading of a full scope is used.
const MAX_FULL_AGE: Duration = Duration::from_secs(1);
/// Most scopes that are remembered.
const MAX_SCOPES: usize = 100_000;

/// What the database said, and what was written since.
#[derive(Clone, Copy)]
struct UsageReading {
    at: Instant,
    usage: DataUsage,
    since: Growth,
}

/// What writes change in the usage.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Growth {
    /// At most.
    added: DataUsage,
    /// Whether an entry may have become smaller, or gone.
    may_free: bool,
}

pub(super) struct QuotaCheck {
    max: ArcSwap<DataUsage>,
    /// Held for a look-up, never across an `await`.
    readings: Mutex<HashMap<DataScope, UsageReading>>,
}

impl QuotaCheck {
    pub(super) fn new(limits: &config::Limits) -> Self {
        QuotaCheck { max: ArcSwap::from_pointee(quota(limits)), readings: Mutex::default() }
    }

    /// Takes over the limits of a configuration that became active.
    pub(super) fn update(&self, limits: &config::Limits) {
        self.max.store(quota(limits).into());
    }

    /// Whether `operations` have room. Returns their exact growth, if it was necessary to know it.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if they have not, UNAVAILABLE if the database doesn't answer.
    pub(super) async fn check(
        &self,
        data: &dyn PluginData,
        scope: &DataScope,
        operations: &[DataOperation],
    ) -> Result<Option<Growth>, Status> {
        let most = sum(operations.iter().map(size));
        if most.entries == 0 {
            return Ok(None);
        }
        let reading = match self.reading(scope) {
            Some(reading) if reading.at.elapsed() < MAX_AGE => reading,
            _ => self.read(data, scope).await?,
        };
        let estimate = sum([reading.usage, reading.since.added].into_iter());
        if self.has_room(estimate, most) {
            return Ok(None);
        }
        // Counters that exist don't grow, and a value may take the place of another one.
        let exact = exact_growth(data, scope, operations).await?;
        if exact.added == DataUsage::default() || self.has_room(estimate, exact.added) {
            return Ok(Some(exact));
        }
        // The estimate alone refuses nothing: it is too high where entries were replaced, or deleted.
        let is_full = !reading.since.may_free && !self.has_room(reading.usage, exact.added);
        let usage = match reading.at.elapsed() < MAX_FULL_AGE && is_full {
            true => reading.usage,
            false => self.read(data, scope).await?.usage,
        };
        if self.has_room(usage, exact.added) {
            return Ok(Some(exact));
        }
        let DataUsage { entries, bytes } = **self.max.load();
        Err(error::quota_full(&if usage.entries + exact.added.entries > entries {
            format!("{entries} entries (`limits.storage_entries`)")
        } else {
            format!("{bytes} bytes (`limits.storage_bytes`)")
        }))
    }

    fn has_room(&self, usage: DataUsage, growth: DataUsage) -> bool {
        let entries = usage.entries.saturating_add(growth.entries);
        let bytes = usage.bytes.saturating_add(growth.bytes);
        let max = self.max.load();
        entries <= max.entries && bytes <= max.bytes
    }

    /// Counts what was written. `exact` is what [`Self::check`] returned.
    pub(super) fn note(
        &self,
        scope: &DataScope,
        operations: &[DataOperation],
        changes: &[DataChange],
        exact: Option<Growth>,
    ) {
        let mut readings = self.readings();
        let Some(UsageReading { since, .. }) = readings.get_mut(scope) else { return };
        let Growth { added, may_free } = exact.unwrap_or_else(|| most_growth(operations, changes));
        *since =
            Growth { added: sum([since.added, added].into_iter()), may_free: since.may_free || may_free };
    }

    async fn read(&self, data: &dyn PluginData, scope: &DataScope) -> Result<UsageReading, Status> {
        let at = Instant::now();
        let usage = data.usage(scope, now_ms()).await.map_err(|error| error::unavailable(&error))?;
        let mut readings = self.readings();
        if readings.len() >= MAX_SCOPES {
            readings.clear();
        }
        let reading = UsageReading { at, usage, since: Growth::default() };
        readings.insert(scope.clone(), reading);
        Ok(reading)
    }

    fn reading(&self, scope: &DataScope) -> Option<UsageReading> {
        self.readings().get(scope).copied()
    }

    fn readings(&self) -> MutexGuard<'_, HashMap<DataScope, UsageReading>> {
        self.readings.lock().expect("no holder of this lock panics")
    }
}

fn quota(limits: &config::Limits) -> DataUsage {
    DataUsage { entries: limits.storage_entries as u64, bytes: limits.storage_bytes.0 }
}

fn sum(usages: impl Iterator<Item = DataUsage>) -> DataUsage {
    usages.fold(DataUsage::default(), |sum, usage| DataUsage {
        entries: sum.entries.saturating_add(usage.entries),
        bytes: sum.bytes.saturating_add(usage.bytes),
    })
}

/// How large the entry is that `operation` leaves behind.
fn size(operation: &DataOperation) -> DataUsage {
    let content = match operation {
        DataOperation::Put { value, .. } => value.len() as u64,
        DataOperation::Add { .. } => COUNTER_BYTES,
        DataOperation::Delete { .. } => return DataUsage::default(),
    };
    DataUsage { entries: 1, bytes: operation.key().len() as u64 + content }
}

/// What `operations` changed at most, whatever was there before.
fn most_growth(operations: &[DataOperation], changes: &[DataChange]) -> Growth {
    let grown = operations.iter().zip(changes).filter(|(operation, change)| match (operation, change) {
        // Most likely a new counter. An existing one doesn't grow.
        (DataOperation::Add { delta, .. }, DataChange::Added { counter, .. }) => delta == counter,
        _ => true,
    });
    Growth {
        added: sum(grown.map(|(operation, _)| size(operation))),
        may_free: operations.iter().any(|operation| !matches!(operation, DataOperation::Add { .. })),
    }
}

/// By how much `operations` grow what they replace. What they delete or make smaller gives no room to the others: of several writes at
/// the same time, each would count it.
async fn exact_growth(
    data: &dyn PluginData,
    scope: &DataScope,
    operations: &[DataOperation],
) -> Result<Growth, Status> {
    let keys: Vec<_> = operations.iter().map(|operation| operation.key().to_owned()).collect();
    let entries = data.read(scope, &keys, now_ms()).await.map_err(|error| error::unavailable(&error))?;
    let mut growth = Growth::default();
    for operation in operations {
        let (size, existing) = (size(operation), entries.iter().find(|entry| entry.key == operation.key()));
        let before = existing.map_or(0, entry_bytes);
        let entries = size.entries.saturating_sub(u64::from(existing.is_some()));
        let added = DataUsage { entries, bytes: size.bytes.saturating_sub(before) };
        growth.added = sum([growth.added, added].into_iter());
        growth.may_free |= size.bytes < before;
    }
    Ok(growth)
}
