//! Tests `hookgate proto export`: it writes the contract as it is in git.

use std::{fs, path::Path, process::Command};

use hookgate_tests::repository;

use crate::cli::support::Folder;

const FILES: [&str; 6] = [
    "buf.yaml",
    "hookgate/admin/v1/admin.proto",
    "hookgate/gateway/v1/gateway.proto",
    "hookgate/host/v1/host.proto",
    "hookgate/plugin/v1/plugin.proto",
    "hookgate/types/v1/types.proto",
];

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[tokio::test]
async fn the_exported_tree_is_the_one_in_git_and_passes_the_linter() {
    let folder = Folder::new();
    for run in ["the first", "one over files that say the same"] {
        let ran = folder.run(&["proto", "export", "new/proto"]).await;
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{run}");
        assert_eq!(ran.stdout.lines().collect::<Vec<_>>(), FILES.map(|file| format!("new/proto/{file}")));
    }
    let exported = folder.0.path().join("new/proto");
    for file in FILES {
        assert_eq!(text(&exported.join(file)), text(&repository::root().join("proto").join(file)), "{file}");
    }
    // Installed by ./test; with a bare `cargo test`, only the comparison runs.
    let buf = repository::root().join("target/tools/node/node_modules/.bin/buf");
    if buf.exists() {
        let lint = Command::new(buf).arg("lint").current_dir(&exported).output().unwrap();
        assert!(lint.status.success(), "{lint:?}");
    }
}

#[tokio::test]
async fn a_file_that_differs_is_named_and_nothing_is_written() {
    let folder = Folder::new();
    assert_eq!(folder.run(&["proto", "export", "proto"]).await.code, Some(0));
    let exported = folder.0.path().join("proto");
    fs::write(exported.join(FILES[1]), "mine\n").unwrap();
    fs::remove_file(exported.join(FILES[2])).unwrap();
    let ran = folder.run(&["proto", "export", "proto"]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""));
    assert!(ran.stderr.contains("nothing was written") && ran.stderr.contains(FILES[1]), "{}", ran.stderr);
    assert!(!ran.stderr.contains(FILES[0]), "only what differs is named: {}", ran.stderr);
    assert_eq!(text(&exported.join(FILES[1])), "mine\n");
    assert!(!exported.join(FILES[2]).exists(), "nothing is written beside it");
}

#[tokio::test]
async fn a_folder_that_is_none_is_said() {
    let folder = Folder::new();
    folder.write("file", "");
    let ran = folder.run(&["proto", "export", "file/proto"]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""));
    assert!(
        ran.stderr.contains("file/proto/buf.yaml") && ran.stderr.contains("you may write to"),
        "{}",
        ran.stderr
    );
}
