//! The binary under test, built once for every test of this process.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

/// Path of the built `hookgate`.
///
/// It is built here because a package's tests are told about its own binaries alone. The whole workspace is named so
/// that every dependency has the features it had when the tests were built, and nothing is built twice.
pub fn path() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(build)
}

fn build() -> PathBuf {
    // PROFILE/deps/it-0123456789abcdef
    let this = std::env::current_exe().expect("a process knows its own binary");
    let profile = this.ancestors().nth(2).expect("a test binary stands in target/PROFILE/deps");
    let target = profile.parent().expect("a profile's folder stands in the target folder");

    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .args(["build", "--workspace", "--bin", "hookgate", "--locked", "--quiet", "--target-dir"])
        .arg(target);
    if profile.ends_with("release") {
        command.arg("--release");
    }
    command.current_dir(crate::repository::root());
    let status = command.status().expect("cargo can be run");
    assert!(status.success(), "the gateway does not build");
    profile.join("hookgate")
}
