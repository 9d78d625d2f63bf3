//! A property test with a thousand random registries and writes:
//! - A dry run predicts the write.
//! - A dry run and a rejected write change nothing.
//! - The effects are those of tables built from scratch, and these are what a simple model derives from the
//!   stored objects.
//! - A rollback restores the earlier contents.
//! - Explanations agree with real chains.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use proptest::{
    prelude::*,
    test_runner::{Config as Cases, TestRunner},
};
use serde_json::json;
use tempfile::TempDir;
use time::OffsetDateTime;
use uuid::Uuid;

use super::{
    Contents, Registry, Writer,
    edit::{Edit, EditAction, EditError},
    effect::{Effect, Effects, FailingBinding, PlanEffect, StepFailures, TenantAdmission},
    operations::{self, DryRunState, DryRunner, OperationError, Operations, WriteOutcome},
};
use crate::{
    config::{self, Config, LoadedConfig, Problems, UnknownTenant, from_text},
    core::{
        failure::Failure,
        manifest::Manifest,
        object::{ObjectKind, Owner},
        point::Point,
        step::Reason,
    },
    invoke::explain::{
        ExplainQuery,
        tests::{Case, compare},
    },
    routing::{BindingDetails, RouteTable, Step, StepTemplate, TenantRoute},
    store::{Change, ObjectContent, RevisionDraft, Snapshot},
};

#[path = "dry_run_model.rs"]
mod model;
#[path = "dry_run_cases.rs"]
mod random;

use random::{Version, WriteCase, objects, registries};

/// A tenant that is in no registry.
const STRANGER: &str = "stranger";

/// Records all effects.
type Seen = BTreeSet<&'static str>;

/// A process with its file, its accepted manifests and its active table.
struct Process {
    file: LoadedConfig,
    manifests: BTreeMap<String, Arc<Manifest>>,
    /// `None` if the current contents are invalid.
    snapshot: Mutex<Option<Arc<Built>>>,
}

/// What is built from contents.
struct Built {
    config: Config,
    table: RouteTable,
}

impl Process {
    fn new(file: &LoadedConfig, case: &Case) -> Self {
        let manifests = case.manifests().into_iter().enumerate().filter_map(|(at, manifest)| {
            let manifest = manifest?;
            let config_schema = (at == 0).then(|| manifest.tenant_config_schema.clone()).flatten();
            Some((format!("p{at}"), Arc::new(Manifest { config_schema, ..Manifest::clone(&manifest) })))
        });
        Process { file: file.clone(), manifests: manifests.collect(), snapshot: Mutex::default() }
    }

    fn in_order(&self, config: &Config) -> Vec<Option<Arc<Manifest>>> {
        config.plugins.iter().map(|plugin| self.manifests.get(&plugin.name).cloned()).collect()
    }

    /// Builds from scratch; returns `None` if `contents` are invalid.
    fn built(&self, contents: &Contents) -> Option<Arc<Built>> {
        let config = self.file.with(contents.objects()).config;
        let table = RouteTable::build(&config, &self.in_order(&config), contents.revision()).ok()?;
        Some(Arc::new(Built { config, table }))
    }

    fn snapshot(&self) -> Option<Arc<Built>> {
        self.snapshot.lock().expect("no panic").clone()
    }
}

impl DryRunner for Process {
    /// Builds on the active table, as a gateway does.
    fn dry_run(&self, contents: &Contents) -> Result<DryRunState, Problems> {
        let whole = self.file.with(contents.objects());
        let manifests = self.in_order(&whole.config);
        let table = match self.snapshot() {
            Some(built) => built.table.after(&whole.config, &manifests, contents.revision()),
            None => RouteTable::build(&whole.config, &manifests, contents.revision()),
        };
        let table = table.map_err(|problems| whole.render(&problems))?;
        let refused = match table.config_problems() {
            [] => Vec::new(),
            problems => operations::invalid(&whole.render(problems)),
        };
        let (manifests, troubles) = (self.manifests.clone(), troubles(&whole.config));
        Ok(DryRunState { config: Arc::new(whole.config), table, manifests, troubles, refused })
    }
}

/// Plugins with consent to `before_response` can't be reached.
fn troubles(config: &Config) -> StepFailures {
    let away = config.plugins.iter().filter(|plugin| is_away(plugin));
    away.map(|plugin| (plugin.name.clone(), Failure::new(Reason::Unreachable, "it is away"))).collect()
}

fn is_away(plugin: &config::Plugin) -> bool {
    plugin.accepted.as_ref().is_some_and(|accepted| accepted.points.before_response.is_some())
}

/// A registry with its operations.
struct World {
    registry: Arc<Registry>,
    process: Arc<Process>,
    operations: Operations,
    /// The contents at each revision.
    past: Mutex<BTreeMap<u64, Snapshot>>,
    _folder: TempDir,
}

impl World {
    /// A registry with the objects of `case`. The bits of `owners` select those that the file owns.
    async fn make(file: &LoadedConfig, case: &Case, owners: u64) -> Self {
        // In memory where there is such a folder: thousands of databases sync here, and none has to survive.
        let folder =
            tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("there is room");
        let url = config::StoreUrl(format!("sqlite:{}", folder.path().join("hookgate.db").display()));
        let settings = config::Store { url, ..config::Store::default() };
        let registry = Registry::open(&settings).expect("a store");
        registry.store.prepare().await.expect("there is room");
        let changes = objects(case).into_iter().enumerate().map(|(at, (kind, name, spec))| {
            let owner = if owners >> (at % 64) & 1 == 1 { Owner::File } else { Owner::Api };
            let after = Some(ObjectContent { owner, spec: spec.into() });
            Change { kind, name: name.into(), before: None, after }
        });
        let draft = RevisionDraft {
            id: Uuid::now_v7(),
            base: 0,
            at: OffsetDateTime::UNIX_EPOCH,
            author: "somebody".into(),
            reason: String::new(),
            changes: changes.collect(),
        };
        registry.store.commit(&draft).await.expect("nothing is there yet");
        let process = Arc::new(Process::new(file, case));
        let operations = Operations::new(Arc::clone(&registry), Arc::clone(&process) as Arc<dyn DryRunner>);
        let contents = registry.catch_up().await.expect("this version wrote it");
        *process.snapshot.lock().expect("no panic") = process.built(&contents);
        let first = contents.snapshot();
        let past = Mutex::new([(0, Snapshot::default()), (1, first)].into());
        World { registry, process, operations, past, _folder: folder }
    }

    async fn stored(&self) -> Snapshot {
        self.registry.store.snapshot().await.expect("there is room")
    }

    async fn perform(
        &self,
        write: &WriteCase,
        now: &Snapshot,
        dry_run: bool,
    ) -> Result<WriteOutcome, OperationError> {
        let writer = Writer { author: "olga".into(), reason: "because".into(), upon: None };
        let edit = |(kind, name, version, wish): &(ObjectKind, String, Version, EditAction)| {
            let is_it = |object: &&crate::store::Object| object.kind == *kind && *object.name == **name;
            let current = now.objects.iter().find(is_it).map_or(0, |object| object.version);
            let expected = match version {
                Version::Any => None,
                Version::Right => Some(current),
                Version::None => Some(0),
                Version::Other => Some(current + 7),
            };
            Edit { kind: *kind, name: name.clone(), expected, wish: wish.clone() }
        };
        match write {
            WriteCase::Edits(edits) => {
                let edits: Vec<_> = edits.iter().map(edit).collect();
                self.operations.write(&writer, &edits, None, dry_run).await
            }
            WriteCase::Back(far) => {
                let number = now.revision.checked_sub(*far).unwrap_or(now.revision + far);
                self.operations.roll_back(&writer, number, dry_run).await
            }
        }
    }

    /// Runs `write` as a dry run, then in earnest.
    async fn check(&self, write: &WriteCase, seen: &mut Seen) -> Result<(), TestCaseError> {
        let before = self.stored().await;
        let tried = self.perform(write, &before, true).await;
        prop_assert_eq!(&self.stored().await, &before, "a dry run wrote");
        let done = self.perform(write, &before, false).await;
        let after = self.stored().await;
        let (tried, done) = match (tried, done) {
            (Ok(tried), Ok(done)) => (tried, done),
            (Err(tried), Err(done)) => {
                prop_assert_eq!(format!("{tried:?}"), format!("{done:?}"));
                prop_assert_eq!(after, before, "a refused write wrote");
                seen.insert(why(&done));
                return Ok(());
            }
            (tried, done) => return Err(TestCaseError::fail(format!("{tried:?}, and then {done:?}"))),
        };
        prop_assert_eq!(tried.revision, None);
        prop_assert_eq!(&tried.changes, &done.changes);
        prop_assert_eq!(&tried.effects, &done.effects);
        prop_assert_eq!(&tried.unvalidated, &done.unvalidated);
        if done.changes.is_empty() {
            prop_assert_eq!(done.revision, None);
            prop_assert_eq!(after, before);
            seen.insert("nothing to change");
            return Ok(());
        }
        prop_assert_eq!(done.revision, Some(before.revision + 1));
        let revision = self.registry.store.revision(after.revision).await.expect("there is room");
        prop_assert_eq!(&revision.expect("it was written").changes, &done.changes);
        prop_assert_eq!(&self.registry.contents().snapshot(), &after);
        self.check_past(write, &before, &after).await?;
        self.check_effects(&done, &after, seen)
    }

    /// Checks that revisions show the contents that there were.
    async fn check_past(
        &self,
        write: &WriteCase,
        before: &Snapshot,
        after: &Snapshot,
    ) -> Result<(), TestCaseError> {
        let past = {
            let mut past = self.past.lock().expect("no panic");
            past.insert(after.revision, after.clone());
            past.clone()
        };
        if let WriteCase::Back(far) = write {
            let then = before.revision.checked_sub(*far).and_then(|number| past.get(&number));
            model::check_back(then.expect("it was gone back to"), before, after)?;
        }
        for then in past.values() {
            let said = self.operations.difference(then.revision, None).await;
            model::check_difference(then, after, &said.expect("there is room").1)?;
            let said = self.operations.difference(after.revision, Some(then.revision)).await;
            model::check_difference(after, then, &said.expect("there is room").1)?;
        }
        Ok(())
    }

    /// Checks the outcome `done`, which then becomes active.
    fn check_effects(
        &self,
        done: &WriteOutcome,
        stored: &Snapshot,
        seen: &mut Seen,
    ) -> Result<(), TestCaseError> {
        let told = |change: &&Change| change.kind == ObjectKind::Plugin && change.after.is_some();
        let unknown = |change: &&Change| !self.process.manifests.contains_key(&*change.name);
        let unvalidated: Vec<_> = done.changes.iter().filter(told).filter(unknown).collect();
        let unvalidated: Vec<_> = unvalidated.iter().map(|change| change.name.to_string()).collect();
        prop_assert_eq!(&done.unvalidated, &unvalidated);
        let after = self.process.built(&self.registry.contents()).expect("what was written is right");
        model::check_plans(self, &after, stored)?;
        let before = self.process.snapshot.lock().expect("no panic").replace(Arc::clone(&after));
        let expected = before.map(|before| compared(&before, &after));
        prop_assert_eq!(&done.effects, &expected);
        seen.insert(match &expected {
            None => "nothing compares",
            Some(effects) if effects.tenants == 0 => "changes nothing for anybody",
            Some(effects) if effects.sample.iter().any(|effect| effect.tenant == "*") => "changes for all",
            Some(_) => "changes for some",
        });
        Ok(())
    }

    /// Checks that explanations of the current contents agree with real chains.
    fn check_explained(&self, question: &ExplainQuery, seen: &mut Seen) -> Result<(), TestCaseError> {
        let Some(built) = self.process.snapshot() else { return Ok(()) };
        for fates in compare(&built.config, &built.table, question)? {
            seen.extend(fates.map(|fate| fate.as_str()));
        }
        Ok(())
    }
}

/// Why nothing was written, in one word.
fn why(undone: &OperationError) -> &'static str {
    match undone {
        OperationError::Refused(EditError::Missing { .. }) => "missing",
        OperationError::Refused(EditError::Version { .. } | EditError::Revision { .. }) => "version",
        OperationError::Refused(EditError::OfFile { .. }) => "of the file",
        OperationError::Refused(EditError::InUse { .. }) => "in use",
        OperationError::Refused(EditError::Wrong { .. }) => "wrong by itself",
        OperationError::Invalid(_) => "wrong as a whole",
        OperationError::NoRevision(_) => "no revision",
        OperationError::NoRegistry | OperationError::Registry(_) => "a fault",
    }
}

/// The effects, computed from the tables alone.
fn compared(before: &Built, after: &Built) -> Effects {
    let ids = |of: &Built| -> BTreeSet<String> {
        of.config.tenants.list.iter().map(|tenant| tenant.id.clone()).collect()
    };
    let listed = ids(before).into_iter().chain(ids(after)).collect::<BTreeSet<_>>();
    let all = [("*".to_owned(), STRANGER.to_owned())];
    let all = all.into_iter().chain(listed.into_iter().map(|id| (id.clone(), id)));
    let one = |(tenant, id): (String, String)| {
        let points = Point::ALL.into_iter().filter_map(|point| {
            let (was, _) = facts(before, &id, point);
            let (is, plan_digest) = facts(after, &id, point);
            let (then_failing, failing) = (failing(before, &id, point), failing(after, &id, point));
            let who = |of: &[FailingBinding]| of.iter().map(|one| one.binding.clone()).collect::<Vec<_>>();
            let lacks = |of: &Built| match of.table.tenant(&id) {
                TenantRoute::Known(plans) => plans.lacks_steps(&point.into()),
                _ => false,
            };
            if was == is && who(&then_failing) == who(&failing) && lacks(before) == lacks(after) {
                return None;
            }
            let names = |of: &[(String, String)], keep: &dyn Fn(&(String, String)) -> bool| -> Vec<String> {
                of.iter().filter(|one| keep(one)).map(|(name, _)| name.clone()).collect()
            };
            let (then, now): (BTreeMap<_, _>, BTreeMap<_, _>) =
                (was.iter().cloned().collect(), is.iter().cloned().collect());
            let effect = PlanEffect {
                plan_digest,
                added: names(&is, &|(name, _)| !then.contains_key(name)),
                removed: names(&was, &|(name, _)| !now.contains_key(name)),
                changed: names(&is, &|(name, fact)| then.get(name).is_some_and(|was| was != fact)),
                order: names(&is, &|_| true),
                failing,
                lacks_steps: lacks(after),
                lacked_steps: lacks(before),
            };
            Some((point, effect))
        });
        let points: BTreeMap<_, _> = points.collect();
        let (was, is) = (standing(&before.config, &id), standing(&after.config, &id));
        let both = was == TenantAdmission::Served && is == TenantAdmission::Served;
        let settings = both && settings(&before.table, &id) != settings(&after.table, &id);
        let changes = was != is || settings || !points.is_empty();
        changes.then_some(Effect { tenant, before: was, after: is, settings, points, hooks: BTreeMap::new() })
    };
    let named: Vec<_> = all.filter_map(one).collect();
    Effects { tenants: named.len(), sample: named }
}

fn standing(config: &Config, id: &str) -> TenantAdmission {
    let tenants = &config.tenants;
    match tenants.list.iter().find(|tenant| tenant.id == id) {
        Some(tenant) if tenant.enabled => TenantAdmission::Served,
        Some(_) => TenantAdmission::Disabled,
        None if tenants.unknown == UnknownTenant::Accept => TenantAdmission::Served,
        None => TenantAdmission::Unknown,
    }
}

fn settings(table: &RouteTable, id: &str) -> String {
    match table.tenant(id) {
        TenantRoute::Known(plans) => {
            format!("{:?} {} {:?} {:?}", plans.detail, plans.in_flight, plans.rate, plans.models)
        }
        _ => String::new(),
    }
}

/// The plan's digest, and its steps by name, without what depends on other steps or on the plugin's place
/// in the configuration.
fn facts(Built { table, .. }: &Built, id: &str, point: Point) -> (Vec<(String, String)>, Option<String>) {
    let TenantRoute::Known(plans) = table.tenant(id) else { return (Vec::new(), None) };
    let plan = plans.plan(point);
    let fact = |step: &Step| {
        let BindingDetails { priority, version, config_digest, is_floor: _, is_at_hooks: _, denied_tools: _ } =
            &*step.written;
        let conditions = step.conditions.source();
        let written = format!("{priority} {conditions} {version:?} {config_digest}");
        let fixed =
            StepTemplate { plugin: 0, written: Arc::default(), ..StepTemplate::clone(&step.template) };
        (step.binding.to_string(), format!("{fixed:?} {written} {:?} {}", step.offer, step.not_offered))
    };
    (plan.steps.iter().map(fact).collect(), Some(plan.digest.to_string()))
}

/// The failing steps and why they fail.
fn failing(Built { config, table }: &Built, id: &str, point: Point) -> Vec<FailingBinding> {
    let TenantRoute::Known(plans) = table.tenant(id) else { return Vec::new() };
    let one = |step: &Step| {
        let away = config.plugins.iter().any(|plugin| *plugin.name == *step.plugin_name && is_away(plugin));
        let (reason, detail) = match (step.not_offered, &step.config_refused) {
            (true, _) => (
                "point_not_offered",
                "its binding names this point, but the plugin does not offer it".to_owned(),
            ),
            (false, Some(refused)) => ("not_ready", refused.to_string()),
            (false, None) if away => ("unreachable", "it is away".to_owned()),
            (false, None) => return None,
        };
        Some(FailingBinding { binding: step.binding.to_string(), reason, detail })
    };
    plans.plan(point).steps.iter().filter_map(one).collect()
}

/// A file without the objects.
fn file(unknown: &str) -> LoadedConfig {
    let text = json!({
        "auth": { "issuers": [{ "issuer": "i", "audience": "a", "jwks_url": "https://id/keys", "tenants": "*" }] },
        "egress": { "cidrs": ["127.0.0.1/32"] },
        "tenants": { "unknown": unknown, "list": [{ "id": "of-the-file-alone" }] },
    });
    from_text("f.yaml".into(), &text.to_string(), []).expect("it is one")
}

#[test]
fn what_a_dry_run_says_is_what_the_write_does_and_what_is_explained_then_is_what_chains_do() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let files = ["accept", "refuse"].map(file);
    let seen = Mutex::new(Seen::new());
    let settings = Cases { failure_persistence: None, max_shrink_iters: 2_000, ..Cases::with_cases(1_000) };
    let told = TestRunner::new(settings).run(&registries(), |(case, owners, writes)| {
        let mut seen = seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let accepts = case.members["tenants"]["unknown"] == "accept";
        let world = runtime.block_on(World::make(&files[usize::from(!accepts)], &case, owners));
        for write in &writes {
            runtime.block_on(world.check(write, &mut seen))?;
        }
        world.check_explained(&case.question, &mut seen)?;
        Ok(())
    });
    told.unwrap_or_else(|wrong| panic!("{wrong}"));
    let all = [
        "nothing to change",
        "changes nothing for anybody",
        "changes for some",
        "changes for all",
        "missing",
        "version",
        "of the file",
        "in use",
        "wrong by itself",
        "wrong as a whole",
        "no revision",
        "called",
        "observed",
        "skipped_condition",
        "skipped_budget",
        "failed",
        "failed_open",
        "not_reached",
    ];
    assert_eq!(*seen.lock().expect("no panic"), Seen::from(all), "the cases reach everything");
}
