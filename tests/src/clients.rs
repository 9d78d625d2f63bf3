//! Clients of models in Node, with the packages they need.

use std::{path::PathBuf, sync::OnceLock};

use crate::repository;

/// The folder of the clients, whose `node_modules` has their packages. Blocks while that is made for the first time.
pub fn folder() -> &'static PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| repository::prepared("tests/clients"))
}
