//! Builds what a start would build, from the file and the store, without starting. The store is only read.

use std::sync::Arc;

use crate::{
    app::App,
    config::{Config, LoadedConfig, ObjectSet, Problem, Problems},
    control::{
        desired_config::{applies, file_alone},
        file_source,
        generation::{ConfigBasis, RuntimeBuilder},
    },
    registry::{ApplyDryRun, Registry, RegistryError},
    store::{StoreError, Tables},
    telemetry::Telemetry,
};

/// What a start would find in the store.
pub enum StoreReport {
    /// The file names no store.
    None,
    /// The store can't be reached, for this reason.
    Unreachable(String),
    /// The store can be read.
    Read {
        /// The current revision.
        revision: u64,
        /// The state of the store's tables.
        tables: Tables,
        /// How many objects the API owns.
        of_api: usize,
        /// How many objects a start would write because the file differs.
        to_write: usize,
    },
}

/// What the dry run of a start knows without asking a plugin.
pub struct StartDryRun {
    /// A built gateway that is dropped without serving.
    pub app: App,
    /// The configuration that it was built from.
    pub loaded: LoadedConfig,
    /// The file's configuration without the store's objects.
    pub of_file: Config,
    pub stored: StoreReport,
}

impl App {
    /// Like [`App::dry_run`], and with the store's objects if there is a store.
    ///
    /// # Errors
    /// Every mistake that would prevent a start, with lines for those in the file. An unreachable store is
    /// not an error.
    pub async fn dry_run_with_store(loaded: LoadedConfig) -> Result<StartDryRun, Problems> {
        let Some(settings) = &loaded.config.store else {
            let app = App::dry_run(loaded.clone())?;
            let of_file = loaded.config.clone();
            return Ok(StartDryRun { app, loaded, of_file, stored: StoreReport::None });
        };
        let telemetry = file_source::observed(&loaded, Telemetry::dry_run)?;
        let at = |pointer: &str, why: String| loaded.render(&[Problem::new(pointer, why)]);
        let registry = Registry::open(settings).map_err(|fault| at("/store/url", fault))?;
        let found = registry.dry_run_apply(&loaded, applies(&loaded)).await;
        registry.close().await;
        let (whole, basis, stored) = match found {
            Ok(ApplyDryRun { contents, revision, tables, of_api, to_write }) => {
                if applies(&loaded) {
                    file_alone(&loaded)?;
                }
                let whole = loaded.with(contents.objects());
                let stored = StoreReport::Read { revision, tables, of_api, to_write };
                (whole, ConfigBasis::Registry(Arc::new(contents)), stored)
            }
            Err(RegistryError::Store(StoreError::Unavailable(why))) => {
                let whole = if applies(&loaded) { loaded.clone() } else { loaded.with(ObjectSet::default()) };
                (whole, ConfigBasis::Nothing, StoreReport::Unreachable(why))
            }
            Err(RegistryError::Invalid(problems)) => return Err(problems),
            Err(error) => return Err(at("/store", error.to_string())),
        };
        let workshop = Arc::new(RuntimeBuilder::new(&loaded.config, telemetry));
        let app = App::put_together(workshop, whole.clone(), basis, None)?;
        Ok(StartDryRun { app, loaded: whole, of_file: loaded.config, stored })
    }
}
