//! Tests with sockets that other processes use, have left behind, or take at the same moment.

use std::{os::unix::net::UnixListener as Std, thread};

use super::*;

/// Asserts that a folder contains `names` and nothing else.
fn holds(folder: &Path, names: &[&str]) {
    let mut there: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    there.sort();
    assert_eq!(there, names);
}

#[tokio::test]
async fn the_file_is_the_owners_from_its_first_moment_and_goes_with_who_listens() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("admin.sock");
    let (listener, file) = listen(&path, OWNER_ONLY).await.unwrap();
    let mode = fs::metadata(&path).unwrap().mode();
    assert_eq!(mode & 0o7777, 0o600, "{mode:o}");
    let (connected, accepted) = tokio::join!(UnixStream::connect(&path), listener.accept());
    drop((connected.unwrap(), accepted.unwrap()));
    holds(folder.path(), &["admin.sock"]);
    drop(file);
    holds(folder.path(), &[]);
}

#[tokio::test]
async fn what_a_process_left_behind_gives_way() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("admin.sock");
    drop(Std::bind(&path).unwrap());
    let (_listener, file) = listen(&path, OWNER_ONLY).await.unwrap();
    UnixStream::connect(&path).await.unwrap();
    holds(folder.path(), &["admin.sock"]);
    drop(file);
}

#[tokio::test]
async fn what_is_listened_on_and_what_is_no_socket_stay() {
    let folder = tempfile::tempdir().unwrap();
    let (path, other) = (folder.path().join("admin.sock"), folder.path().join("file"));
    let (_listener, _file) = listen(&path, OWNER_ONLY).await.unwrap();
    let taken = listen(&path, OWNER_ONLY).await.unwrap_err();
    assert_eq!(taken, "another process listens there: stop it, or choose another path");
    fs::write(&other, "of somebody").unwrap();
    let taken = listen(&other, OWNER_ONLY).await.unwrap_err();
    assert_eq!(taken, "there is a file that is not a socket: remove it, or choose another path");
    assert_eq!(fs::read_to_string(&other).unwrap(), "of somebody");
    UnixStream::connect(&path).await.unwrap();
    holds(folder.path(), &["admin.sock", "file"]);
}

#[tokio::test]
async fn a_listener_with_a_full_queue_counts_as_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("admin.sock");
    let socket = UnixSocket::new_stream().unwrap();
    socket.bind(&path).unwrap();
    let _stuck = socket.listen(1).unwrap();
    let mut waiting = Vec::new();
    while let Ok(stream) = UnixStream::connect(&path).await {
        waiting.push(stream);
    }
    assert!(
        listen(&path, OWNER_ONLY).await.is_err_and(|why| why.starts_with("another process listens there"))
    );
}

/// All find the same stale file. One takes its place, and no other takes that one's.
#[test]
fn of_several_that_start_at_once_one_listens() {
    for _ in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("admin.sock");
        drop(Std::bind(&path).unwrap());
        let start = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(listen(&path, OWNER_ONLY)).ok().map(|listening| (runtime, listening))
        };
        let listening: Vec<_> = thread::scope(|scope| {
            let started: Vec<_> = (0..4).map(|_| scope.spawn(start)).collect();
            started.into_iter().filter_map(|started| started.join().unwrap()).collect()
        });
        assert_eq!(listening.len(), 1);
        holds(folder.path(), &["admin.sock"]);
    }
}

/// Another process has taken the name in the meantime; its file must stay.
#[tokio::test]
async fn a_file_that_now_belongs_to_another_process_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("admin.sock");
    let (_listener, file) = listen(&path, OWNER_ONLY).await.unwrap();
    fs::remove_file(&path).unwrap();
    let (_other, _others) = listen(&path, OWNER_ONLY).await.unwrap();
    drop(file);
    UnixStream::connect(&path).await.unwrap();
}

#[tokio::test]
async fn a_folder_that_is_not_there_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let missing = folder.path().join("missing/admin.sock");
    let why = listen(&missing, OWNER_ONLY).await.unwrap_err();
    assert_eq!(
        why,
        format!("there is no folder {}/missing: create it, or choose another path", folder.path().display())
    );
    let why = listen(&file.join("admin.sock"), OWNER_ONLY).await.unwrap_err();
    assert_eq!(why, format!("{} is not a folder: choose another path", file.display()));
}
