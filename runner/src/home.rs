//! The private folders: one for each plugin and tenant.

use std::{
    fs::DirBuilder,
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::{Path, PathBuf},
};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rustix::{
    fs::{Access, access},
    process::geteuid,
};
use sha2::{Digest as _, Sha256};

/// Longest name of a folder, in bytes. Linux allows 255.
const MAX_NAME_BYTES: usize = 200;
/// What stands for itself in the name of a folder. A dot doesn't, so no name is `..`.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_');

/// Creates `data_dir` if it is missing.
///
/// # Errors
/// If it can't be created, or if others may write in it.
pub(crate) fn prepare(data_dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(data_dir)?;
    let folder = data_dir.metadata()?;
    let user = geteuid().as_raw();
    if folder.uid() != user {
        return Err(io::Error::other(format!(
            "it belongs to the user {}, and the runner is {user}: choose a folder of the runner's user",
            folder.uid()
        )));
    }
    if folder.mode() & 0o022 != 0 {
        return Err(io::Error::other("others may write in it: use `chmod go-w`, or choose another folder"));
    }
    access(data_dir, Access::WRITE_OK | Access::EXEC_OK)?;
    Ok(())
}

/// The folder of `tenant` below `data_dir`, and the one for its temporary files. Both are created, for the owner only.
///
/// # Errors
/// If they can't be created.
pub(crate) fn create(data_dir: &Path, plugin: &str, tenant: &str) -> io::Result<PathBuf> {
    let home = data_dir.join(plugin).join(folder_name(tenant));
    DirBuilder::new().recursive(true).mode(0o700).create(home.join("tmp"))?;
    Ok(home)
}

/// The temporary folder of a private folder.
pub(crate) fn temporary(home: &Path) -> PathBuf {
    home.join("tmp")
}

/// A name that no other tenant has. It doesn't begin with a dot.
pub(crate) fn folder_name(tenant: &str) -> String {
    let encoded = utf8_percent_encode(tenant, ENCODED).to_string();
    if encoded.len() <= MAX_NAME_BYTES {
        return encoded;
    }
    // `%.` can't begin an encoded name.
    format!("%.{}", hex::encode(Sha256::digest(tenant)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_tenant_has_a_readable_folder_that_is_for_its_owner_only() {
        use std::os::unix::fs::PermissionsExt as _;
        let root = tempfile::tempdir().expect("a temporary directory can be made");
        let home = create(root.path(), "guard", "acme-1").expect("it can be created");
        assert_eq!(home, root.path().join("guard/acme-1"));
        assert_eq!(home.metadata().expect("it exists").permissions().mode() & 0o777, 0o700);
    }

    proptest! {
        #[test]
        fn no_tenant_leaves_its_plugins_folder_or_shares_one(
            one in r#"([a./%\\A]|\PC){1,256}"#,
            other in r#"([a./%\\A]|\PC){1,256}"#,
        ) {
            let name = folder_name(&one);
            prop_assert!(name.len() <= 255 && !name.contains('/') && name != "." && name != "..", "{}", name);
            prop_assert_eq!(one == other, name == folder_name(&other));
        }
    }
}
