//! How operations are made, in both databases: one alone, or several in a transaction.

use super::{
    DataChange, DataOperation, DataScope, RejectedReason, RejectedWrite,
    sql::{ChangeRequest, ChangeRow},
};
use crate::store::StoreError;

/// Attempts at an operation whose entry others change between its statement and the question why it was rejected.
const MAX_ATTEMPTS: usize = 5;

/// A connection that runs the statements of operations.
pub(super) trait ChangeSession: Send {
    /// Runs the operation's statement. Returns `None` if it changed nothing.
    fn change(
        &mut self,
        request: ChangeRequest<'_>,
    ) -> impl Future<Output = Result<Option<ChangeRow>, StoreError>> + Send;

    /// The entry that the operation is about, unless it doesn't exist or has expired.
    fn state(
        &mut self,
        request: ChangeRequest<'_>,
    ) -> impl Future<Output = Result<Option<ChangeRow>, StoreError>> + Send;
}

/// Makes one operation.
pub(super) async fn make(
    session: &mut impl ChangeSession,
    request: ChangeRequest<'_>,
) -> Result<Result<DataChange, RejectedReason>, StoreError> {
    for _ in 0..MAX_ATTEMPTS {
        if let Some(row) = session.change(request).await? {
            return request.change(row).map(Ok);
        }
        if matches!(request.operation, DataOperation::Delete { expected: None, .. }) {
            return Ok(Ok(DataChange::Deleted { existed: false }));
        }
        let state = session.state(request).await?;
        if let Some(reason) = request.rejection(state)? {
            return Ok(Err(reason));
        }
    }
    Err(StoreError::Unavailable("other writers change an entry of plugins' data all the time".to_owned()))
}

/// Makes operations on different keys, until one is rejected. The caller commits them or rolls them back.
///
/// All writers take the keys in the same order, so that PostgreSQL finds no deadlock between them.
pub(super) async fn make_all(
    session: &mut impl ChangeSession,
    scope: &DataScope,
    operations: &[DataOperation],
    now_ms: i64,
) -> Result<Result<Vec<DataChange>, RejectedWrite>, StoreError> {
    let mut sorted: Vec<_> = operations.iter().enumerate().collect();
    sorted.sort_by_key(|(_, operation)| operation.key());
    let mut changes = Vec::with_capacity(operations.len());
    for (index, operation) in sorted {
        match make(session, ChangeRequest { scope, operation, now_ms }).await? {
            Ok(change) => changes.push((index, change)),
            Err(reason) => return Ok(Err(RejectedWrite { index, reason })),
        }
    }
    changes.sort_by_key(|(index, _)| *index);
    Ok(Ok(changes.into_iter().map(|(_, change)| change).collect()))
}
