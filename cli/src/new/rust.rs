//! The templates of a plugin in Rust, and what their placeholders stand for.

use super::{
    package,
    sdk::{IMAGE_FOLDER, SdkCheckout, VERSION},
};

pub(super) const TEMPLATES: [(&str, &str); 8] = [
    (".dockerignore", include_str!("rust/dockerignore")),
    (".gitignore", include_str!("rust/gitignore")),
    ("Cargo.toml", include_str!("rust/manifest.toml")),
    ("Dockerfile", include_str!("rust/Dockerfile")),
    ("README.md", include_str!("rust/README.md")),
    ("hookgate.yaml", super::HOOKGATE_YAML),
    ("src/main.rs", include_str!("rust/main.rs")),
    ("src/plugin.rs", include_str!("rust/plugin.rs")),
];

/// Rust's keywords, names that cargo reserves or that std has, and the direct dependencies of the template.
const RESERVED: &str = "abstract as async await become box break const continue crate do dyn else enum extern false final \
    fn for gen if impl in let loop macro match mod move mut override priv pub ref return self static struct super trait \
    true try type typeof unsafe unsized use virtual where while yield \
    build deps examples incremental test alloc core proc-macro std \
    hookgate-sdk schemars serde serde-json tokio";

pub(super) fn values(name: &str, sdk: Option<&SdkCheckout>) -> Vec<(&'static str, Option<String>)> {
    let package = package::name(name, RESERVED);
    let (dependency, origin, context) = match sdk {
        None => (
            format!("\"{VERSION}\""),
            format!(
                "`hookgate-sdk` {VERSION} comes from crates.io. If it isn't published there yet, create the project again with\n\
                 `hookgate new plugin {name} --lang rust --sdk-path PATH`, where PATH is a checkout of Hookgate."
            ),
            String::new(),
        ),
        Some(checkout) => (
            format!("{{ path = \"{}/sdk/rust\" }}", checkout.relative),
            format!("`hookgate-sdk` comes from the checkout of Hookgate at `{}`.", checkout.relative),
            format!("--build-context hookgate={} ", checkout.relative),
        ),
    };
    let project_folder = sdk.map_or(IMAGE_FOLDER, |checkout| &checkout.project_in_image);
    vec![
        ("IMAGE_COMMAND", Some(format!("docker build {context}-t {package}:0.1.0 ."))),
        ("NAME", Some(name.to_owned())),
        ("PROJECT_FOLDER", Some(project_folder.to_owned())),
        ("PACKAGE", Some(package)),
        ("RUST", Some(env!("CARGO_PKG_RUST_VERSION").to_owned())),
        ("SDK", Some(dependency)),
        ("SDK_FOLDER", sdk.map(|checkout| checkout.in_image.clone())),
        ("SDK_ORIGIN", Some(origin)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_has_the_plugin_s_name_unless_cargo_or_an_image_refuses_it() {
        for (plugin, package) in [
            ("no-shell", "no-shell"),
            ("No_Shell2", "no-shell2"),
            ("a", "a"),
            ("a__-b_", "a-b"),
            ("Match", "match-plugin"),
            ("test", "test-plugin"),
            ("deps", "deps-plugin"),
            ("serde_json", "serde-json-plugin"),
            ("matches", "matches"),
        ] {
            assert_eq!(package::name(plugin, RESERVED), package, "{plugin}");
        }
    }
}
