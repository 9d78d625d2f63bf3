//! Checks that a path stays below a directory, both as written and after resolving links and `..`.

use std::{
    io,
    path::{Component, Path, PathBuf},
};

/// Whether `path` is written as a path below `dir`, without `..`.
pub(crate) fn is_written_below(path: &Path, dir: &Path) -> bool {
    let leads_up = path.components().any(|part| part == Component::ParentDir);
    !leads_up && path != dir && path.starts_with(dir)
}

/// The real path of `path`, without links, if it is below one of `dirs`, whose links are resolved too.
/// Otherwise returns `None`. Use the returned path afterwards, so that replacing a link meanwhile has no
/// effect.
///
/// # Errors
/// There is nothing at `path`, or it can't be read.
pub(crate) fn real<'d>(path: &Path, dirs: impl IntoIterator<Item = &'d Path>) -> io::Result<Option<PathBuf>> {
    let real = path.canonicalize()?;
    let is_below = |dir: &Path| dir.canonicalize().is_ok_and(|dir| is_written_below(&real, &dir));
    let found = dirs.into_iter().any(is_below);
    Ok(found.then_some(real))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn a_path_is_below_a_directory_where_it_says_so_and_never_leads_up() {
        let below = |path: &str, dir: &str| is_written_below(Path::new(path), Path::new(dir));
        for (path, dir) in [("/run/a", "/run"), ("/run/a/b", "/run/"), ("//run/./a", "/run"), ("/a", "/")] {
            assert!(below(path, dir), "{path} {dir}");
        }
        for (path, dir) in [
            ("/run", "/run"),
            ("/run/.", "/run"),
            ("/runs/a", "/run"),
            ("/run/../etc/a", "/run"),
            ("/run/a/../b", "/run"),
            ("/etc/../run/a", "/run"),
            ("run/a", "/run"),
        ] {
            assert!(!below(path, dir), "{path} {dir}");
        }
    }

    #[test]
    fn links_are_followed_within_a_directory_and_not_out_of_it() {
        let root = tempfile::tempdir().unwrap();
        let (inside, outside) = (root.path().join("inside"), root.path().join("outside"));
        for dir in [&inside, &outside] {
            fs::create_dir(dir).unwrap();
            fs::write(dir.join("file"), "").unwrap();
        }
        symlink("file", inside.join("own")).unwrap();
        symlink(outside.join("file"), inside.join("stray")).unwrap();
        symlink(&outside, inside.join("folder")).unwrap();
        let linked = root.path().join("linked");
        symlink(&inside, &linked).unwrap();
        let real = |path: PathBuf, dir: &Path| real(&path, [dir]);
        let file = inside.canonicalize().unwrap().join("file");
        assert_eq!(real(inside.join("own"), &inside).unwrap(), Some(file.clone()));
        assert_eq!(real(linked.join("file"), &linked).unwrap(), Some(file));
        assert_eq!(real(inside.join("stray"), &inside).unwrap(), None);
        assert_eq!(real(inside.join("folder/file"), &inside).unwrap(), None);
        assert_eq!(real(inside.join("../outside/file"), &inside).unwrap(), None);
        assert_eq!(real(inside.join("nothing"), &inside).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(real(inside.join("file"), &root.path().join("nothing")).unwrap(), None);
    }
}
