//! Where a new project gets the SDK from: a checkout of Hookgate by path, or the registry of packages. Knows how
//! checkouts look, and nothing of the templates.

use std::{
    fs,
    path::{Component, Path, PathBuf},
};

use crate::{output::printable, starter};

/// The version of the SDK that fits this program.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Where an image is built.
pub(super) const IMAGE_FOLDER: &str = "/src";

/// A checkout, seen from the project. The paths have plain characters only, so files may hold them unquoted.
#[derive(Debug)]
pub(super) struct SdkCheckout {
    /// Its path relative to the project.
    pub(super) relative: String,
    /// Where the build of an image has it, and the project, so that the relative path is the same.
    pub(super) in_image: String,
    pub(super) project_in_image: String,
}

/// The checkout that was given, or else the one around the project. `None`: the SDK comes from the registry.
///
/// # Errors
/// One sentence, if there is no checkout where one was given, or its path can't be written.
pub(super) fn for_project(project: &Path, given: Option<&Path>) -> Result<Option<SdkCheckout>, String> {
    let checkout = match given {
        None => project.ancestors().find(|folder| is_checkout(folder)).map(Path::to_owned),
        Some(given) => Some(given_checkout(given)?),
    };
    let Some(checkout) = checkout else { return Ok(None) };
    let seen = SdkCheckout::new(project, &checkout);
    seen.map(Some).ok_or_else(|| {
        format!(
            "the path from {} to {} can't be written in the project's files: give a --dir and a --sdk-path whose \
             directories have only ASCII letters, digits, `.`, `_`, `-` and `+` in their names",
            printable(&project.display().to_string()),
            printable(&checkout.display().to_string())
        )
    })
}

/// The checkout that `given` is, or is a folder of, such as `sdk/rust`.
fn given_checkout(given: &Path) -> Result<PathBuf, String> {
    let found = starter::resolved(given).ok();
    let found = found.as_deref().and_then(|path| path.ancestors().find(|folder| is_checkout(folder)));
    found.map(Path::to_owned).ok_or_else(|| {
        format!(
            "--sdk-path: {} isn't a checkout of Hookgate: give the directory that contains sdk/rust",
            printable(&given.display().to_string())
        )
    })
}

/// Whether this is a workspace with the SDK.
fn is_checkout(folder: &Path) -> bool {
    let has_line = |file: &str, wanted: &str| {
        fs::read_to_string(folder.join(file)).is_ok_and(|text| text.lines().any(|line| line.trim() == wanted))
    };
    has_line("Cargo.toml", "[workspace]") && has_line("sdk/rust/Cargo.toml", "name = \"hookgate-sdk\"")
}

impl SdkCheckout {
    /// Both paths are absolute, without links. `None` if they have characters that need quotes somewhere.
    fn new(project: &Path, checkout: &Path) -> Option<Self> {
        let shared = project.components().zip(checkout.components()).take_while(|(one, other)| one == other);
        let shared = shared.count();
        let below = |path: &Path| -> Option<Vec<String>> {
            path.components().skip(shared).map(|component| plain(component).map(str::to_owned)).collect()
        };
        let (project, checkout) = (below(project)?, below(checkout)?);
        let up = project.iter().map(|_| "..".to_owned());
        let in_image = |folders: &[String]| [&[IMAGE_FOLDER.to_owned()], folders].concat().join("/");
        Some(SdkCheckout {
            relative: up.chain(checkout.iter().cloned()).collect::<Vec<_>>().join("/"),
            in_image: in_image(&checkout),
            project_in_image: in_image(&project),
        })
    }
}

/// The component's name, if it needs no quotes in TOML, a Dockerfile and a shell.
fn plain(component: Component<'_>) -> Option<&str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-+".contains(c);
    component.as_os_str().to_str().filter(|name| name.chars().all(is_plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checkout_is_found_from_the_project_and_in_the_image_by_the_same_path() {
        for (project, checkout, expected) in [
            ("/w/hookgate/plugins/a", "/w/hookgate", ["../..", "/src", "/src/plugins/a"]),
            ("/w/a", "/w/hookgate", ["../hookgate", "/src/hookgate", "/src/a"]),
            (
                "/home/ada/a",
                "/opt/hookgate",
                ["../../../opt/hookgate", "/src/opt/hookgate", "/src/home/ada/a"],
            ),
            ("/my files/a", "/my files/b", ["../b", "/src/b", "/src/a"]),
        ] {
            let paths = SdkCheckout::new(Path::new(project), Path::new(checkout)).unwrap();
            assert_eq!([paths.relative, paths.in_image, paths.project_in_image], expected, "{project}");
        }
        for project in ["/w/my files/a", "/w/$a", "/w/a\"b", "/w/ä"] {
            assert!(SdkCheckout::new(Path::new(project), Path::new("/w/hookgate")).is_none(), "{project}");
        }
    }
}
