//! The generated code in git is what the `.proto` files say.

use std::{collections::BTreeMap, fs, path::Path};

use prost::Message;

const FILES: [&str; 5] = [
    "hookgate/types/v1/types.proto",
    "hookgate/plugin/v1/plugin.proto",
    "hookgate/gateway/v1/gateway.proto",
    "hookgate/admin/v1/admin.proto",
    "hookgate/host/v1/host.proto",
];

/// Generates everything into `out` from the `.proto` files under `root`.
fn generate(root: &Path, out: &Path) {
    let descriptors = protox::compile(FILES.map(|file| root.join(file)), [root]).expect("the protos compile");
    fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec()).expect("the folder is writable");
    tonic_prost_build::configure()
        .bytes(".")
        .btree_map(".")
        .out_dir(out)
        .compile_fds(descriptors)
        .expect("the code is generated");
}

fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    fs::read_dir(folder)
        .expect("the folder is readable")
        .map(|entry| entry.expect("the entry is readable"))
        .map(|entry| {
            let name = entry.file_name().into_string().expect("generated names are UTF-8");
            (name, fs::read(entry.path()).expect("the file is readable"))
        })
        .collect()
}

#[test]
fn generated_code_in_git_equals_what_the_protos_generate() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let committed = root.join("src/gen");
    if std::env::var_os("HOOKGATE_REGENERATE").is_some() {
        generate(root, &committed);
    }
    let fresh = tempfile::tempdir().expect("a temporary folder");
    generate(root, fresh.path());
    let (committed, fresh) = (contents(&committed), contents(fresh.path()));
    let differing: Vec<_> = fresh
        .iter()
        .filter(|(name, bytes)| committed.get(*name) != Some(bytes))
        .map(|(name, _)| name)
        .chain(committed.keys().filter(|name| !fresh.contains_key(*name)))
        .collect();
    assert!(
        differing.is_empty(),
        "{differing:?} differ from the .proto files: run \
         `HOOKGATE_REGENERATE=1 cargo test -p hookgate-proto` and commit the result"
    );
}

/// Every `.proto` file below `folder`, by its path below `root`.
fn protos(root: &Path, folder: &Path, found: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).expect("the folder is readable") {
        let path = entry.expect("the entry is readable").path();
        if path.is_dir() {
            protos(root, &path, found);
        } else if path.extension().is_some_and(|extension| extension == "proto") {
            let name = path.strip_prefix(root).expect("it lies below").to_str().expect("names are UTF-8");
            found.insert(name.to_owned(), fs::read_to_string(&path).expect("the file is readable"));
        }
    }
}

#[test]
fn the_sources_that_are_handed_out_are_all_there_are() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = BTreeMap::new();
    protos(root, root, &mut found);
    let settings = fs::read_to_string(root.join("buf.yaml")).expect("the file is readable");
    found.insert("buf.yaml".to_owned(), settings);
    let handed_out = hookgate_proto::SOURCES.map(|(name, text)| (name.to_owned(), text.to_owned()));
    assert_eq!(BTreeMap::from(handed_out), found);
}
