//! Tests plugins' data in both databases.

mod contract;
mod deletion;
mod model;
mod together;

use hookgate::store::{DataChange, DataEntry, DataOperation, DataScope, EntryContent, RejectedReason, Store};

/// Greater than every time in these tests.
const LATER: i64 = 1 << 50;

fn scope(plugin: &str, tenant: Option<&str>) -> DataScope {
    DataScope { plugin: plugin.into(), tenant: tenant.map(Into::into) }
}

fn put(key: &str, value: &str) -> DataOperation {
    DataOperation::Put { key: key.into(), value: value.to_owned().into(), expected: None, expires_ms: None }
}

fn put_over(key: &str, value: &str, expected: u64) -> DataOperation {
    DataOperation::Put {
        key: key.into(),
        value: value.to_owned().into(),
        expected: Some(expected),
        expires_ms: None,
    }
}

fn put_until(key: &str, value: &str, expires_ms: i64) -> DataOperation {
    DataOperation::Put {
        key: key.into(),
        value: value.to_owned().into(),
        expected: None,
        expires_ms: Some(expires_ms),
    }
}

fn delete(key: &str, expected: Option<u64>) -> DataOperation {
    DataOperation::Delete { key: key.into(), expected }
}

fn add(key: &str, delta: i64, limit: i64, expires_ms: Option<i64>) -> DataOperation {
    DataOperation::Add { key: key.into(), delta, limit, expires_ms }
}

/// Makes one operation.
async fn make(
    store: &dyn Store,
    scope: &DataScope,
    operation: DataOperation,
    now_ms: i64,
) -> Result<DataChange, RejectedReason> {
    let mut made = store.write(scope, &[operation], now_ms).await.unwrap().map_err(|rejected| {
        assert_eq!(rejected.index, 0);
        rejected.reason
    })?;
    assert_eq!(made.len(), 1);
    Ok(made.remove(0))
}

/// The version of a put that has to succeed.
async fn written(store: &dyn Store, scope: &DataScope, operation: DataOperation, now_ms: i64) -> u64 {
    match make(store, scope, operation, now_ms).await {
        Ok(DataChange::Written { version }) => version,
        other => panic!("{other:?}"),
    }
}

/// The counter and expiry of an addition that has to succeed.
async fn added(
    store: &dyn Store,
    scope: &DataScope,
    operation: DataOperation,
    now_ms: i64,
) -> (i64, Option<i64>) {
    match make(store, scope, operation, now_ms).await {
        Ok(DataChange::Added { counter, expires_ms, .. }) => (counter, expires_ms),
        other => panic!("{other:?}"),
    }
}

async fn read(store: &dyn Store, scope: &DataScope, key: &str, now_ms: i64) -> Option<DataEntry> {
    let mut found = store.read(scope, &[key.to_owned()], now_ms).await.unwrap();
    assert!(found.len() < 2, "{found:?}");
    found.pop()
}

fn value(value: &str) -> EntryContent {
    EntryContent::Value(value.to_owned().into())
}
