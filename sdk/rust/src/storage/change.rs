//! A write on its way: options, then `.await`.

use std::{fmt, time::Duration};

use futures::{FutureExt as _, future::BoxFuture};

use super::{Add, AddResult, Delete, DeleteResult, Put, PutResult, Storage};
use crate::HostError;

/// A write that is made by `.await`, after its options.
#[must_use = "a change is made by `.await`"]
pub struct Change<'s, O> {
    storage: &'s Storage,
    operation: O,
}

impl<O: fmt::Debug> fmt::Debug for Change<'_, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Change").field(&self.operation).finish()
    }
}

impl<'s, O> Change<'s, O> {
    pub(super) fn new(storage: &'s Storage, operation: O) -> Self {
        Change { storage, operation }
    }

    fn with(self, option: impl FnOnce(O) -> O) -> Self {
        Change { storage: self.storage, operation: option(self.operation) }
    }
}

impl Change<'_, Put> {
    /// See [`Put::expected_version`].
    pub fn expected_version(self, version: u64) -> Self {
        self.with(|put| put.expected_version(version))
    }

    /// See [`Put::ttl`].
    pub fn ttl(self, ttl: Duration) -> Self {
        self.with(|put| put.ttl(ttl))
    }
}

impl Change<'_, Delete> {
    /// See [`Delete::expected_version`].
    pub fn expected_version(self, version: u64) -> Self {
        self.with(|delete| delete.expected_version(version))
    }
}

impl Change<'_, Add> {
    /// See [`Add::limit`].
    pub fn limit(self, limit: i64) -> Self {
        self.with(|add| add.limit(limit))
    }

    /// See [`Add::window`].
    pub fn window(self, window: Duration) -> Self {
        self.with(|add| add.window(window))
    }
}

impl<'s> IntoFuture for Change<'s, Put> {
    type Output = Result<PutResult, HostError>;
    type IntoFuture = BoxFuture<'s, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.storage.make_put(self.operation).boxed()
    }
}

impl<'s> IntoFuture for Change<'s, Delete> {
    type Output = Result<DeleteResult, HostError>;
    type IntoFuture = BoxFuture<'s, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.storage.make_delete(self.operation).boxed()
    }
}

impl<'s> IntoFuture for Change<'s, Add> {
    type Output = Result<AddResult, HostError>;
    type IntoFuture = BoxFuture<'s, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.storage.make_add(self.operation).boxed()
    }
}
