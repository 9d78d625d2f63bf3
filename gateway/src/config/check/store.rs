//! Checks of the database's location.

use super::ConfigChecker;
use crate::config::problem::Problem;

impl ConfigChecker<'_> {
    pub(super) fn store(&mut self) {
        let Some(store) = &self.draft.store else { return };
        if let Some(fault) = crate::store::url_error(&store.url.0) {
            self.problems.push(Problem::new("/store/url", format!("`url`: {fault}")));
        }
        if store.last_good.as_os_str().is_empty() {
            self.report("/store/last_good", "`last_good` is empty", "write the path of a file");
        }
    }
}
