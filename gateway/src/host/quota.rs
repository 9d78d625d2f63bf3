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

    /// Whether `operations` have room.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if they have not, UNAVAILABLE if the database doesn't answer.
    pub(super) async fn check(
        &self,
        data: &dyn PluginData,
        scope: &DataScope,
        operations: &[DataOperation],
    ) -> Result<(), Status> {
        let growth = growth(operations);
        if growth.entries == 0 {
            return Ok(());
        }
        let reading = match self.reading(scope) {
            Some(reading) if reading.at.elapsed() < MAX_AGE && self.has_room(reading.usage, growth) => {
                return Ok(());
            }
            Some(reading) if reading.at.elapsed() < MAX_FULL_AGE => reading.usage,
            _ => self.read(data, scope).await?,
        };
        if self.has_room(reading, growth) {
            return Ok(());
        }
        // Counters that exist don't grow, and a value may be replaced by one of its own size.
        let growth = exact_growth(data, scope, operations).await?;
        if growth == DataUsage::default() || self.has_room(reading, growth) {
            return Ok(());
        }
        let DataUsage { entries, bytes } = **self.max.load();
        Err(error::quota_full(&if reading.entries + growth.entries > entries {
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

    /// Counts what was written.
    pub(super) fn note(&self, scope: &DataScope, operations: &[DataOperation], changes: &[DataChange]) {
        let mut readings = self.readings();
        let Some(UsageReading { usage, .. }) = readings.get_mut(scope) else { return };
        for (operation, change) in operations.iter().zip(changes) {
            let grows = match (operation, change) {
                // Most likely a new counter. An existing one doesn't grow.
                (DataOperation::Add { delta, .. }, DataChange::Added { counter, .. }) => delta == counter,
                _ => true,
            };
            if grows {
                let growth = growth(std::slice::from_ref(operation));
                usage.entries = usage.entries.saturating_add(growth.entries);
                usage.bytes = usage.bytes.saturating_add(growth.bytes);
            }
        }
    }

    async fn read(&self, data: &dyn PluginData, scope: &DataScope) -> Result<DataUsage, Status> {
        let usage = data.usage(scope, now_ms()).await.map_err(|error| error::unavailable(&error))?;
        let mut readings = self.readings();
        if readings.len() >= MAX_SCOPES {
            readings.clear();
        }
        readings.insert(scope.clone(), UsageReading { at: Instant::now(), usage });
        Ok(usage)
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

/// What `operations` add at most.
fn growth(operations: &[DataOperation]) -> DataUsage {
    operations.iter().map(size).fold(DataUsage::default(), |sum, size| DataUsage {
        entries: sum.entries + size.entries,
        bytes: sum.bytes + size.bytes,
    })
}

fn size(operation: &DataOperation) -> DataUsage {
    let content = match operation {
        DataOperation::Put { value, .. } => value.len() as u64,
        DataOperation::Add { .. } => COUNTER_BYTES,
        DataOperation::Delete { .. } => return DataUsage::default(),
    };
    DataUsage { entries: 1, bytes: operation.key().len() as u64 + content }
}

/// By how much `operations` grow the existing entries, and how many they create.
async fn exact_growth(
    data: &dyn PluginData,
    scope: &DataScope,
    operations: &[DataOperation],
) -> Result<DataUsage, Status> {
    let keys: Vec<_> = operations.iter().map(|operation| operation.key().to_owned()).collect();
    let entries = data.read(scope, &keys, now_ms()).await.map_err(|error| error::unavailable(&error))?;
    let mut sum = DataUsage::default();
    for operation in operations {
        let size = size(operation);
        let existing = entries.iter().find(|entry| entry.key == operation.key());
        let before = existing.map_or(0, entry_bytes);
        sum.entries += size.entries.saturating_sub(u64::from(existing.is_some()));
        sum.bytes += size.bytes.saturating_sub(before);
    }
    Ok(sum)
}
