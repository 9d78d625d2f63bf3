//! The private folders: one for each plugin and tenant.

use std::{
    fs::DirBuilder,
    io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sha2::{Digest as _, Sha256};

/// Longest name of a folder, in bytes. Linux allows 255.
const MAX_NAME_BYTES: usize = 200;
/// What stands for itself in the name of a folder. A dot doesn't, so no name is `..`.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_');

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

/// A name that no other tenant has.
fn folder_name(tenant: &str) -> String {
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
