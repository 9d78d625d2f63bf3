//! The gateway binary under test, built once for all tests of this process.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

/// Path of the built `hookgate`.
///
/// Cargo tells a package's tests only about its own binaries, so it is built here. Building the whole
/// workspace gives every dependency the same features as in the build of the tests, so nothing is built
/// twice.
pub fn path() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(build)
}

fn build() -> PathBuf {
    // PROFILE/deps/it-0123456789abcdef
    let this = std::env::current_exe().expect("a process knows its own binary");
    let profile = this.ancestors().nth(2).expect("a test binary is in target/PROFILE/deps");
    let target = profile.parent().expect("a profile's folder is in the target folder");

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
