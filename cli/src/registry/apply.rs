//! `hookgate apply` and `hookgate diff`: write the objects of a file atomically in one revision,
//! with the versions that were shown as preconditions.

use std::{
    collections::BTreeMap,
    io::Write as _,
    path::{Path, PathBuf},
};

use clap::Args;
use serde_json::{Value, json};

use crate::{
    Exit,
    client::Answer,
    output::{self, Output, printable, text},
    registry::{
        ReadArgs, WriteArgs,
        client::{Registry, Write, version},
        confirm, ended, render_write, selector,
        set::read,
    },
};
use hookgate::{
    config::{self, ObjectLocation, ObjectsFile},
    core::object::ObjectKind,
    json::pointer,
    registry::{document::plural, edit},
};

/// Most intervening revisions that a conflict message lists.
const MAX_NAMED_REVISIONS: usize = 5;

/// The file, and what to prune.
#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    /// File with `plugins`, `tenants`, `bindings`, or `llm` with `upstreams` or `models`, written as in the configuration;
    /// other keys are ignored with a note. - reads standard input.
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// Removes objects that the API owns and the file doesn't list; needs --selector or --all.
    #[arg(long, requires = "pruned")]
    prune: bool,
    /// Limits --prune to objects with all of these labels, separated by commas or repeated. Every object in the file
    /// must have them.
    #[arg(short = 'l', long, value_name = "KEY=VALUE", value_delimiter = ',', value_parser = selector::label)]
    #[arg(group = "pruned", requires = "prune")]
    selector: Vec<(String, String)>,
    /// Extends --prune to all objects of the kinds that the file lists, regardless of their author.
    #[arg(long, group = "pruned", requires = "prune")]
    all: bool,
    /// When --prune removes a plugin, also removes the bindings that use it, regardless of their author, except those
    /// of the configuration file.
    #[arg(long, requires = "prune")]
    force: bool,
    #[command(flatten)]
    asked: ReadArgs,
}

/// The file, what to prune, and how to write it.
#[derive(Debug, Args)]
pub(crate) struct Apply {
    #[command(flatten)]
    wanted: ApplyArgs,
    /// Skips the confirmation prompt.
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    meant: WriteArgs,
}

/// Which unlisted objects to remove.
enum PruneScope {
    Nothing,
    /// Those that the API owns, of the kinds that the file lists.
    All,
    /// Those that the API owns and that have these labels.
    Labelled(BTreeMap<String, String>),
}

/// The write that a file leads to.
struct Proposal {
    listed: ObjectsFile,
    write: Write,
    /// The revision that it was computed from.
    base: Option<u64>,
}

pub(crate) async fn apply(apply: Apply) -> Exit {
    ended(write(apply).await)
}

/// Exit codes as of diff(1): 0 no difference, 1 differences, 2 failure.
pub(crate) async fn diff(wanted: ApplyArgs) -> Exit {
    let unknown = |exit: Exit| Exit { code: 2, ..exit };
    match differ(wanted).await {
        Ok(exit) => exit,
        Err(exit) => unknown(exit),
    }
}

async fn differ(wanted: ApplyArgs) -> Result<Exit, Exit> {
    let (registry, proposal) = proposed(wanted).await?;
    let tried = proposal.send(&registry, "", true).await?;
    let is_same = render_write::is_empty(&tried.body);
    let table =
        || if is_same { render_write::end(&tried.body) } else { render_write::difference(&tried.body) };
    Ok(tried.print(registry.output, table, if is_same { Exit::ok() } else { Exit::already_reported(1) }))
}

async fn write(apply: Apply) -> Result<Exit, Exit> {
    let Apply { wanted, yes, meant } = apply;
    let (registry, proposal) = proposed(wanted).await?;
    let tried = proposal.send(&registry, &meant.reason, true).await?;
    if meant.dry_run || render_write::is_empty(&tried.body) {
        return Ok(tried.print(
            registry.output,
            || render_write::table(&tried.body),
            render_write::exit(&tried.body),
        ));
    }
    if registry.output == Output::Table {
        output::show(&render_write::difference(&tried.body), Exit::ok());
    }
    confirm("Write this?", yes, registry.output)?;
    let done = proposal.send(&registry, &meant.reason, false).await?;
    Ok(done.print(registry.output, || render_write::end(&done.body), render_write::exit(&done.body)))
}

async fn proposed(wanted: ApplyArgs) -> Result<(Registry, Proposal), Exit> {
    let ApplyArgs { file, selector, all, force, asked, .. } = wanted;
    let pruned = match selector::labels(selector)? {
        labels if !labels.is_empty() => PruneScope::Labelled(labels),
        _ if all => PruneScope::All,
        _ => PruneScope::Nothing,
    };
    let listed = listed(&file)?;
    let registry = Registry::connect(asked).await?;
    let mut proposal = Proposal::new(&registry, listed, &pruned).await?;
    proposal.write = proposal.write.with_bindings(force);
    Ok((registry, proposal))
}

/// The objects that the file lists. Notes ignored keys on standard error.
fn listed(file: &Path) -> Result<ObjectsFile, Exit> {
    let (name, text) = read(file, config::MAX_FILE)?;
    let env: BTreeMap<_, _> = config::environment_variables().collect();
    let listed = ObjectsFile::read(name, &text, &env).map_err(|problems| Exit::problems(&problems))?;
    if !listed.others.is_empty() {
        let others: Vec<_> = listed.others.iter().map(|key| format!("`{}`", printable(key))).collect();
        let (others, are) = (others.join(", "), if listed.others.len() == 1 { "is" } else { "are" });
        // The reader may be gone.
        let _ = writeln!(
            std::io::stderr().lock(),
            "hookgate: {others} {are} ignored: the registry holds only plugins, tenants, bindings, upstreams and models"
        );
    }
    Ok(listed)
}

impl Proposal {
    async fn new(registry: &Registry, listed: ObjectsFile, pruned: &PruneScope) -> Result<Self, Exit> {
        let mut body = json!({ "remove": [], "versions": {} });
        let (mut base, mut owned, mut remove) = (None, Vec::new(), Vec::new());
        for kind in ObjectKind::LISTED {
            let Some(specs) = listed.values(kind) else { continue };
            let mut now = registry.all(kind, &[]).await?;
            base = base.or(now["revision"].as_u64());
            let mut held: BTreeMap<String, Value> = BTreeMap::new();
            for object in now[plural(kind)].as_array_mut().into_iter().flatten() {
                let name = if kind == ObjectKind::Tenant { &object["id"] } else { &object["name"] };
                held.insert(name.as_str().unwrap_or_default().to_owned(), object.take());
            }
            let mut versions = serde_json::Map::new();
            for (at, spec) in specs.iter().enumerate() {
                let Some(name) = edit::name(kind, spec) else { continue };
                let object = held.remove(&name);
                let is_of_file = |object: &Value| object["owner"] == "file" && object["version"].is_u64();
                if object.as_ref().is_some_and(is_of_file) {
                    let message = format!(
                        "the gateway's configuration file owns {kind} `{name}`: remove it from that file, or from \
                         this one"
                    );
                    owned.push((ObjectLocation::Object(kind, at, String::new()), message));
                }
                versions.insert(name, object.as_ref().map_or(0, version).into());
            }
            let is_gone = |object: &Value| matches!(pruned, PruneScope::All) && object["owner"] == "api";
            for (name, object) in held.into_iter().filter(|(_, object)| is_gone(object)) {
                remove.push(json!({ "kind": kind, "name": name }));
                versions.insert(name, version(&object).into());
            }
            body[plural(kind)] = specs.into();
            body["versions"][plural(kind)] = versions.into();
        }
        if !owned.is_empty() {
            return Err(Exit::problems(&listed.render(owned)));
        }
        body["remove"] = remove.into();
        if let PruneScope::Labelled(labels) = pruned {
            body["prune"] = json!({ "labels": labels });
        }
        let mut write = Write::post("/admin/v1/apply".to_owned(), Some(body));
        // The gateway chooses what to prune, so there are no versions to use as preconditions.
        if let (PruneScope::Labelled(_), Some(base)) = (pruned, base) {
            write = write.with_expected_revision(base);
        }
        Ok(Proposal { listed, write, base })
    }

    /// Writes it, or previews it with `dry_run`.
    async fn send(&self, registry: &Registry, reason: &str, dry_run: bool) -> Result<Answer, Exit> {
        let answer = registry.send(&self.write, reason, dry_run).await?;
        match answer.status {
            ..300 => Ok(answer),
            400 | 422 if registry.output == Output::Table && !answer.is_about_flag() => {
                Err(Exit::problems(&self.listed.render(self.wrong(&answer))))
            }
            409 => Err(self.overtaken(registry, &answer).await),
            _ => Err(registry.refusal_exit(&answer, None)),
        }
    }

    /// The mistakes, each with its place in the file if it has one.
    fn wrong(&self, answer: &Answer) -> Vec<(ObjectLocation, String)> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let errors = answer.body["errors"].as_array().map(Vec::as_slice).unwrap_or_default();
        if errors.is_empty() {
            return vec![(ObjectLocation::Nowhere, text(&answer.body["detail"]))];
        }
        errors.iter().map(|wrong| (self.place(&text(&wrong["pointer"])), text(&wrong["message"]))).collect()
    }

    /// The place in the file of a JSON pointer from the API.
    fn place(&self, pointer: &str) -> ObjectLocation {
        let mut parts = pointer.splitn(4, '/').skip(1);
        let kind =
            parts.next().and_then(|list| ObjectKind::LISTED.into_iter().find(|kind| plural(*kind) == list));
        let (Some(kind), Some(name)) = (kind, parts.next()) else { return ObjectLocation::Nowhere };
        let rest = parts.next().map(|rest| format!("/{rest}")).unwrap_or_default();
        let listed = self.listed.values(kind).unwrap_or_default();
        match name.parse::<usize>() {
            Ok(at) if at < listed.len() => ObjectLocation::Object(kind, at, rest),
            _ => ObjectLocation::Other(kind, pointer::unescape(name).into_owned(), rest),
        }
    }

    /// The conflict, with the revisions that were written since the registry was read.
    async fn overtaken(&self, registry: &Registry, answer: &Answer) -> Exit {
        let mut exit = registry.refusal_exit(answer, None);
        let (Some(base), Some(message)) = (self.base, &mut exit.message) else { return exit };
        let Ok(last) = registry.get(&format!("/admin/v1/revisions?limit={MAX_NAMED_REVISIONS}")).await else {
            return exit;
        };
        let revisions = last.body["revisions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let mut since =
            revisions.iter().filter(|revision| revision["number"].as_u64() > Some(base)).peekable();
        if since.peek().is_none() {
            return exit;
        }
        for revision in since {
            let reason = text(&revision["reason"]);
            let reason = if reason.is_empty() { reason } else { format!(": {reason}") };
            let (author, at) = (text(&revision["author"]), text(&revision["at"]));
            *message += &format!("\n  revision {} by {author} at {at}{reason}", revision["number"]);
        }
        message.push_str("\n  = run it again to compare with the current contents");
        exit
    }
}
