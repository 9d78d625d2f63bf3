//! Tests with files that change completely and partially.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration as Time, Instant},
};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

use super::*;
use crate::{config, tls::Server};

/// A CA, and what it has signed.
struct Ca {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Ca {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Ca { issuer: Issuer::new(params, key), pem }
    }

    /// Certificate and key for `name`. It expires this year, or expired long ago.
    fn pair(&self, name: &str, ended: bool) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(if ended { 2000 } else { 2100 }, 1, 1);
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

/// A folder with a pair and a CA in it.
struct Folder(TempDir);

impl Folder {
    fn new(pair: &(String, String)) -> Self {
        let folder = Folder(tempfile::tempdir().unwrap());
        folder.write(pair);
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, (chain, key): &(String, String)) {
        fs::write(self.path("tls.crt"), chain).unwrap();
        fs::write(self.path("tls.key"), key).unwrap();
    }

    fn files(&self) -> TlsFiles {
        files(self.0.path(), false)
    }
}

fn files(folder: &Path, ca: bool) -> TlsFiles {
    let file = |key, name| super::super::files::TlsFile { key, path: folder.join(name), within: None };
    TlsFiles {
        pair: Some((file("cert_file", "tls.crt"), file("key_file", "tls.key"))),
        ca: ca.then(|| file("client_ca_file", "ca.crt")),
    }
}

/// A stand-in for a configuration: the names in the certificate.
fn names(material: TlsMaterial) -> Result<String, String> {
    Ok(material.pair.map(|pair| pair.facts.names).unwrap_or_default())
}

fn load(files: TlsFiles) -> Result<ReloadingConfig<String>, String> {
    ReloadingConfig::load(None, files, names)
}

#[test]
fn what_is_no_whole_pair_is_refused_with_the_key_and_the_file() {
    let ca = Ca::new();
    let (chain, key) = ca.pair("a", false);
    let (_, other_key) = ca.pair("a", false);
    let half = |text: &str| text[..text.len() / 2].to_owned();
    for (pair, said) in [
        ((chain.clone(), other_key), "is not the key of the certificate in `cert_file` ("),
        ((half(&chain), key.clone()), "`cert_file` (FOLDER/tls.crt) is an incomplete PEM file"),
        ((String::new(), key.clone()), "`cert_file` (FOLDER/tls.crt) holds no PEM certificate"),
        (("nonsense".into(), key.clone()), "`cert_file` (FOLDER/tls.crt) holds no PEM certificate"),
        ((chain.clone(), half(&key)), "`key_file` (FOLDER/tls.key) is an incomplete PEM file"),
        ((chain.clone(), String::new()), "`key_file` (FOLDER/tls.key) holds no private key in PEM"),
        ((chain.clone(), chain.clone()), "`key_file` (FOLDER/tls.key) holds no private key in PEM"),
        (
            ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".into(), key.clone()),
            "`cert_file` (FOLDER/tls.crt) contains an invalid certificate (X.509)",
        ),
    ] {
        let folder = Folder::new(&pair);
        let error = load(folder.files()).map(drop).unwrap_err();
        let error = error.replace(&folder.0.path().display().to_string(), "FOLDER");
        assert!(error.contains(said), "{error}");
        assert!(!key.lines().any(|line| line.len() > 20 && error.contains(line)), "{error}");
    }
    let folder = Folder::new(&(chain, key));
    fs::remove_file(folder.path("tls.key")).unwrap();
    let error = load(folder.files()).map(drop).unwrap_err();
    assert!(error.contains("`key_file` (") && error.contains("can't be read: No such file"), "{error}");
    fs::write(folder.path("tls.key"), vec![b'x'; (1 << 20) + 1]).unwrap();
    let error = load(folder.files()).map(drop).unwrap_err();
    assert!(error.contains("`key_file` (") && error.contains("larger than 1 MiB"), "{error}");
}

#[test]
fn a_ca_file_holds_certificates() {
    let ca = Ca::new();
    let folder = Folder::new(&ca.pair("a", false));
    for (content, said) in
        [("", "holds no PEM certificate"), ("-----BEGIN CERTIFICATE-----\nAA", "incomplete PEM")]
    {
        fs::write(folder.path("ca.crt"), content).unwrap();
        let error = load(files(folder.0.path(), true)).map(drop).unwrap_err();
        assert!(error.contains("`client_ca_file` (") && error.contains(said), "{error}");
    }
    fs::write(folder.path("ca.crt"), &ca.pem).unwrap();
    assert_eq!(*load(files(folder.0.path(), true)).unwrap().current(), "a");
}

#[test]
fn a_changed_pair_is_taken_when_it_is_whole_and_the_old_one_holds_until_then() {
    let ca = Ca::new();
    let folder = Folder::new(&ca.pair("old", false));
    let reloaded = load(folder.files()).unwrap();
    let before = reloaded.current();
    reloaded.look();
    assert!(Arc::ptr_eq(&before, &reloaded.current()), "nothing changed");

    let (chain, key) = ca.pair("new", false);
    fs::write(folder.path("tls.crt"), &chain).unwrap();
    reloaded.look();
    assert!(Arc::ptr_eq(&before, &reloaded.current()), "the key of the old one is still there");
    fs::remove_file(folder.path("tls.key")).unwrap();
    reloaded.look();
    assert!(Arc::ptr_eq(&before, &reloaded.current()));
    folder.write(&ca.pair("ended", true));
    reloaded.look();
    assert!(Arc::ptr_eq(&before, &reloaded.current()), "one that has ended replaces none");
    folder.write(&(chain, key));
    reloaded.look();
    assert_eq!(*reloaded.current(), "new");
}

#[test]
fn a_folder_that_is_swapped_by_a_link_is_noticed() {
    let ca = Ca::new();
    let (one, two) = (Folder::new(&ca.pair("one", false)), Folder::new(&ca.pair("two", false)));
    let mount = tempfile::tempdir().unwrap();
    let (data, fresh) = (mount.path().join("..data"), mount.path().join("..data_tmp"));
    std::os::unix::fs::symlink(one.0.path(), &data).unwrap();
    for name in ["tls.crt", "tls.key"] {
        std::os::unix::fs::symlink(Path::new("..data").join(name), mount.path().join(name)).unwrap();
    }
    let reloaded = load(files(mount.path(), false)).unwrap();
    assert_eq!(*reloaded.current(), "one");
    std::os::unix::fs::symlink(two.0.path(), &fresh).unwrap();
    fs::rename(&fresh, &data).unwrap();
    reloaded.look();
    assert_eq!(*reloaded.current(), "two");
}

#[test]
fn a_pair_that_has_ended_is_taken_at_the_start_and_shows_as_such() {
    let folder = Folder::new(&Ca::new().pair("a", true));
    let reloaded = Arc::new(load(folder.files()).unwrap());
    let watch = CertificateWatch::default();
    watch.add(&reloaded);
    let expiries = watch.expiries();
    assert!(
        matches!(expiries[..], [CertificateExpiry { plugin: None, of_ca: false, seconds_left: ..0 }]),
        "{expiries:?}"
    );
    drop(reloaded);
    assert!(watch.expiries().is_empty(), "what nobody holds any longer is no concern");
}

/// Uses the real clock, because files are read on blocking threads.
#[tokio::test]
async fn files_are_looked_at_every_two_seconds_and_one_that_hangs_holds_up_no_other() {
    let ca = Ca::new();
    let (folder, hanging) = (Folder::new(&ca.pair("old", false)), Folder::new(&ca.pair("a", false)));
    let config = |folder: &Folder| config::ServerTls {
        cert_file: folder.path("tls.crt"),
        key_file: folder.path("tls.key"),
        client_ca_file: None,
    };
    let watch = CertificateWatch::default();
    let _hangs = Server::new(&config(&hanging), &watch).unwrap();
    let reloaded = Arc::new(load(folder.files()).unwrap());
    watch.add(&reloaded);
    // Nobody writes to the pipe yet, so opening it blocks.
    fs::remove_file(hanging.path("tls.key")).unwrap();
    let made = std::process::Command::new("mkfifo").arg(hanging.path("tls.key")).status().unwrap();
    assert!(made.success());
    let stop = CancellationToken::new();
    let following = tokio::spawn({
        let (watch, stop) = (watch.clone(), stop.clone());
        async move { watch.follow(stop).await }
    });
    let begun = Instant::now();
    for name in ["new", "newer"] {
        folder.write(&ca.pair(name, false));
        while *reloaded.current() != name {
            assert!(begun.elapsed() < Time::from_secs(20), "{name} is not noticed");
            tokio::time::sleep(Time::from_millis(20)).await;
        }
    }
    assert!(begun.elapsed() < Time::from_secs(10), "{:?}", begun.elapsed());
    stop.cancel();
    following.await.unwrap();
    // Unblocks the waiting thread, which the end of the runtime would wait for.
    fs::write(hanging.path("tls.key"), "").unwrap();
}
