//! What a start would put together, put together without one: of the file, and of what its store holds, which is read and
//! left as it is.

use std::sync::Arc;

use crate::{
    app::App,
    config::{Config, LoadedConfig, ObjectSet, Problem, Problems},
    control::{
        desired_config::{applies, file_alone},
        file_source,
        generation::{ConfigBasis, RuntimeBuilder},
    },
    registry::{ApplyPreview, Registry, RegistryError},
    store::{StoreError, Tables},
    telemetry::Telemetry,
};

/// What a start would find in the store.
pub enum StoreReport {
    /// The file names none.
    None,
    /// It can't be reached, and why.
    Unreachable(String),
    /// It can be read.
    Read {
        /// Its last revision.
        revision: u64,
        /// How its tables are.
        tables: Tables,
        /// How many plugins, tenants and bindings the API owns.
        of_api: usize,
        /// How many objects a start would write there, because the file says something else.
        to_write: usize,
    },
}

/// Everything that is known without asking a plugin.
pub struct DryRun {
    /// It ends without serving.
    pub app: App,
    /// What it was put together of.
    pub loaded: LoadedConfig,
    /// What the file says by itself.
    pub of_file: Config,
    /// See there.
    pub stored: StoreReport,
}

impl App {
    /// As [`App::rehearse`], with what the store holds where there is one.
    ///
    /// # Errors
    /// Every mistake that would keep it from starting, with the lines of those that stand in the file. A store that can't be
    /// reached is none.
    pub async fn rehearse_with_store(loaded: LoadedConfig) -> Result<DryRun, Problems> {
        let Some(settings) = &loaded.config.store else {
            let app = App::rehearse(loaded.clone())?;
            let of_file = loaded.config.clone();
            return Ok(DryRun { app, loaded, of_file, stored: StoreReport::None });
        };
        let telemetry = file_source::observed(&loaded, Telemetry::rehearse)?;
        let at = |pointer: &str, why: String| loaded.render(&[Problem::new(pointer, why)]);
        let registry = Registry::open(settings).map_err(|fault| at("/store/url", fault))?;
        let found = registry.foretell(&loaded, applies(&loaded)).await;
        registry.close().await;
        let (whole, basis, stored) = match found {
            Ok(ApplyPreview { contents, revision, tables, of_api, to_write }) => {
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
        Ok(DryRun { app, loaded: whole, of_file: loaded.config, stored })
    }
}
