//! A Unix socket that is protected by its file mode from its first moment on. Owns the file: creates it, replaces stale ones, and removes it. Doesn't interpret requests.

use std::{
    fs::{self, Permissions},
    io,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use axum::body::Body;
use http::{Request, Response};
use tempfile::NamedTempFile;
use tokio::net::{UnixListener, UnixSocket, UnixStream};

use super::server::RequestHandler;

/// Only the owner and root may connect.
pub const OWNER_ONLY: u32 = 0o600;
/// Every user may connect who can reach the path.
pub const EVERY_USER: u32 = 0o666;
/// The most connections that wait to be accepted.
const BACKLOG: u32 = 128;
/// How often a path is checked that keeps changing because other processes start and end there.
const MAX_CLEAR_ATTEMPTS: usize = 8;

/// The peer's user as the system reports it. On a request, it shows that the request came over the Unix
/// socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalUser {
    /// The user id.
    pub uid: u32,
}

/// Answers as `edge` does, and adds the [`LocalUser`] to the request's extensions.
#[derive(Clone)]
pub(crate) struct WithPeerCred<E> {
    pub(crate) edge: E,
    pub(crate) user: LocalUser,
}

impl<E: RequestHandler + Sync> RequestHandler for WithPeerCred<E> {
    async fn answer(&self, mut request: Request<Body>) -> Response<Body> {
        request.extensions_mut().insert(self.user);
        self.edge.answer(request).await
    }
}

/// The file of a socket that this process listens on. Dropping it removes the file, if it is still the same
/// one.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    id: FileId,
}

/// Device and inode.
type FileId = (u64, u64);

/// Listens at `path`. The file is created beside its final path, and gets its name when it has its mode and
/// is listening. So a process that finds it by that name finds it complete, and a file that nobody listens on
/// is stale.
///
/// # Errors
/// A sentence with the reason and the remedy.
pub async fn listen(path: &Path, mode: u32) -> Result<(UnixListener, SocketFile), String> {
    let folder = path.parent().unwrap_or(path);
    let mut made = make(folder, mode).map_err(|error| unmade(folder, &error))?;
    let id = id(made.path()).map_err(|error| error.to_string())?;
    for _ in 0..MAX_CLEAR_ATTEMPTS {
        let taken = match made.persist_noclobber(path) {
            Ok(listener) => return Ok((listener, SocketFile { path: path.to_owned(), id })),
            Err(taken) => taken,
        };
        made = taken.file;
        if taken.error.kind() != io::ErrorKind::AlreadyExists {
            return Err(taken.error.to_string());
        }
        clear(folder, path).await?;
    }
    Err("other processes keep replacing it: choose another path".into())
}

fn make(folder: &Path, mode: u32) -> io::Result<NamedTempFile<UnixListener>> {
    temporary().make_in(folder, |path| {
        let socket = UnixSocket::new_stream()?;
        socket.bind(path)?;
        // No process can connect before it listens.
        fs::set_permissions(path, Permissions::from_mode(mode))?;
        socket.listen(BACKLOG)
    })
}

fn unmade(folder: &Path, error: &io::Error) -> String {
    let shown = folder.display();
    match error.kind() {
        io::ErrorKind::NotFound if !folder.exists() => {
            format!("there is no folder {shown}: create it, or choose another path")
        }
        io::ErrorKind::NotADirectory => format!("{shown} is not a folder: choose another path"),
        io::ErrorKind::PermissionDenied => {
            format!(
                "the gateway's user may not write to the folder {shown}: permit it, or choose another path"
            )
        }
        _ => format!("the socket can't be created in the folder {shown}: {error}"),
    }
}

/// Removes a file at `path` that a process left behind when it ended.
async fn clear(folder: &Path, path: &Path) -> Result<(), String> {
    let is_gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    let there = match fs::symlink_metadata(path) {
        Ok(there) => there,
        Err(error) if is_gone(&error) => return Ok(()),
        Err(error) => return Err(error.to_string()),
    };
    if !there.file_type().is_socket() {
        return Err("there is a file that is not a socket: remove it, or choose another path".into());
    }
    match UnixStream::connect(path).await {
        Err(error) if is_gone(&error) => return Ok(()),
        Err(error) if is_left_behind(&error) => {}
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Err(
                "there is a socket that belongs to another user: remove it, or choose another path".into()
            );
        }
        // A socket with a full queue is in use too.
        Ok(_) | Err(_) => {
            return Err("another process listens there: stop it, or choose another path".into());
        }
    }
    let removed = remove(folder, path).await;
    removed.map_err(|error| format!("the stale socket can't be removed: {error}"))
}

/// Removes the stale file at `path`, but not a file that another process has put there since it was checked.
async fn remove(folder: &Path, path: &Path) -> io::Result<()> {
    let renamed = temporary().make_in(folder, |aside| fs::rename(path, aside));
    let aside = match renamed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        renamed => renamed?,
    };
    let connected = UnixStream::connect(aside.path()).await;
    if !connected.is_err_and(|error| is_left_behind(&error)) {
        aside.persist_noclobber(path).map_err(|error| error.error)?;
    }
    Ok(())
}

/// Sockets get their names when they already listen, so only the socket of an ended process refuses
/// connections.
fn is_left_behind(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ConnectionRefused
}

/// A name as short as possible, because the path must fit into an address.
fn temporary() -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".").rand_bytes(6);
    builder
}

impl SocketFile {
    /// The path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn id(path: &Path) -> io::Result<FileId> {
    fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if id(&self.path).is_ok_and(|there| there == self.id)
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "the admin socket can't be removed");
        }
    }
}

#[cfg(test)]
#[path = "unix_listener_tests.rs"]
mod tests;
