//! What the reply of a `bootstrap` script changes for later calls of the same tenant and agent.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    fs::{self, DirBuilder, File},
    io::{self, Write as _},
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use hookgate::{fs::read_limited, json};
use serde::{Deserialize, Serialize};

use crate::{
    environment::{is_name, is_reserved},
    home,
};

/// Most bytes of overrides. A process can't take much more in its environment.
const MAX_BYTES: u64 = 64 << 10;

/// Most agents of a tenant with overrides.
const MAX_AGENTS: usize = 1000;

/// The overrides.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Overrides {
    /// Variables that neither the manifest nor the runner's file sets.
    pub(super) env: BTreeMap<String, String>,
    /// In place of the manifest's.
    pub(super) ingest_filter: Option<String>,
}

impl Overrides {
    pub(super) fn from_reply(reply: &BTreeMap<Cow<'_, str>, &str>) -> Self {
        let text = |value: &str| value.starts_with('"').then(|| json::unescape(value).into_owned());
        let env = reply.get("env_overrides").copied().into_iter().flat_map(json::members);
        let env = env.filter_map(|(name, value)| Some((name.into_owned(), text(value)?)));
        Overrides {
            env: env.filter(|(name, value)| is_allowed(name, value)).collect(),
            ingest_filter: reply.get("ingest_filter").and_then(|value| text(value)),
        }
    }
}

fn is_allowed(name: &str, value: &str) -> bool {
    is_name(name) && !is_reserved(name) && name != "PATH" && !value.contains('\0')
}

/// The overrides of all tenants and agents of a plugin, as files that its programs can't use.
#[derive(Debug, Clone)]
pub(crate) struct OverrideStore(PathBuf);

impl OverrideStore {
    /// Those of the plugin whose private folders are in `folder`.
    pub(crate) fn new(folder: &Path) -> Self {
        // No tenant's folder begins with a dot.
        OverrideStore(folder.join(".bootstrap"))
    }

    fn file(&self, tenant: &str, agent: &str) -> PathBuf {
        self.0.join(home::folder_name(tenant)).join(format!("{}.json", home::folder_name(agent)))
    }

    /// The overrides for an agent.
    ///
    /// # Errors
    /// If there are some that can't be read.
    pub(crate) fn get(&self, tenant: &str, agent: &str) -> io::Result<Overrides> {
        let file = match File::open(self.file(tenant, agent)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Overrides::default()),
            file => file?,
        };
        let text = read_limited::read(file, MAX_BYTES)?.unwrap_or_default();
        serde_json::from_slice(&text).map_err(io::Error::other)
    }

    /// # Errors
    /// `InvalidData` if they are too large or the tenant has too many; another kind if they can't be written.
    pub(crate) fn put(&self, tenant: &str, agent: &str, overrides: &Overrides) -> io::Result<()> {
        let file = self.file(tenant, agent);
        if *overrides == Overrides::default() {
            return match fs::remove_file(&file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        }
        let text = serde_json::to_vec(overrides).map_err(io::Error::other)?;
        let refused = |reason: &str| Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        if text.len() as u64 > MAX_BYTES {
            return refused("they are larger than 64 KiB");
        }
        let others =
            || file.parent().and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten().count();
        if !file.exists() && others() >= MAX_AGENTS {
            return refused("the tenant has overrides for 1000 agents already");
        }
        write_private(&file, &text)
    }
}

/// Writes a file for the runner's user only, at once.
pub(crate) fn write_private(path: &Path, text: &[u8]) -> io::Result<()> {
    let folder = path.parent().ok_or_else(|| io::Error::other("the path has no folder"))?;
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let (temporary, mut file) = tempfile_in(folder)?;
    let written = file.write_all(text).and_then(|()| fs::rename(&temporary, path));
    written.inspect_err(|_| _ = fs::remove_file(&temporary))
}

fn tempfile_in(folder: &Path) -> io::Result<(PathBuf, File)> {
    use std::{
        os::unix::fs::OpenOptionsExt as _,
        sync::atomic::{AtomicU64, Ordering},
    };
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    // The name of a file that another runner left is taken.
    let name = format!(".{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let path = folder.join(name);
    let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&path)?;
    Ok((path, file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overrides_of_one_agent_are_not_another_ones_and_nothing_reserved_is_set() {
        let reply = r#"{"env_overrides":{"A":"1","HOME":"/x","PATH":"/x","LD_PRELOAD":"/x","LIBREFANG_X":"1","B":2},"ingest_filter":"f"}"#;
        let overrides = Overrides::from_reply(&json::members(reply).collect());
        assert_eq!(overrides.env, BTreeMap::from([("A".to_owned(), "1".to_owned())]));
        let root = tempfile::tempdir().expect("a temporary directory can be made");
        let store = OverrideStore::new(root.path());
        store.put("acme", "../../escape", &overrides).expect("it can be written");
        let get = |tenant: &str, agent: &str| store.get(tenant, agent).expect("it can be read");
        assert_eq!(get("acme", "../../escape"), overrides);
        assert_eq!(get("acme", "a"), Overrides::default());
        assert_eq!(get("globex", "../../escape"), Overrides::default());
        assert_eq!(fs::read_dir(root.path()).expect("it is a folder").count(), 1);
    }
}
