//! The templates of a plugin in TypeScript, and what their placeholders stand for.

use super::{
    package,
    sdk::{SdkCheckout, VERSION},
};

pub(super) const TEMPLATES: [(&str, &str); 9] = [
    (".dockerignore", include_str!("typescript/dockerignore")),
    (".gitignore", include_str!("typescript/gitignore")),
    ("Dockerfile", include_str!("typescript/Dockerfile")),
    ("README.md", include_str!("typescript/README.md")),
    ("hookgate.yaml", super::HOOKGATE_YAML),
    ("package.json", include_str!("typescript/package.json")),
    ("plugin.test.ts", include_str!("typescript/plugin.test.ts")),
    ("plugin.ts", include_str!("typescript/plugin.ts")),
    ("tsconfig.json", include_str!("typescript/tsconfig.json")),
];

/// Names that npm refuses, and the direct dependencies of the template.
const RESERVED: &str = "node-modules tsx typescript zod";

pub(super) fn values(name: &str, sdk: Option<&SdkCheckout>) -> Vec<(&'static str, Option<String>)> {
    let package = package::name(name, RESERVED);
    let (dependency, origin) = match sdk {
        None => (
            VERSION.to_owned(),
            format!(
                "`@hookgate/sdk` {VERSION} comes from npm. If it isn't published there yet, create the project again with\n\
                 `hookgate new plugin {name} --lang typescript --sdk-path PATH`, where PATH is a checkout of Hookgate."
            ),
        ),
        Some(checkout) => (
            format!("file:hookgate-sdk-{VERSION}.tgz"),
            format!(
                "`@hookgate/sdk` is packed from the checkout of Hookgate at `{}`. Commit `hookgate-sdk-{VERSION}.tgz` too. When the\n\
                 SDK has changed, pack it and install it again.",
                checkout.relative
            ),
        ),
    };
    let [prepare, pack] = match sdk.map(packing) {
        None => [None, None],
        Some(lines) => lines.map(Some),
    };
    vec![
        ("IMAGE_COMMAND", Some(format!("docker build -t {package}:0.1.0 ."))),
        ("NAME", Some(name.to_owned())),
        ("PACK", pack),
        ("PACKAGE", Some(package)),
        ("PREPARE", prepare),
        ("SDK", Some(dependency)),
        ("SDK_ORIGIN", Some(origin)),
    ]
}

/// The commands that install the packages, test and start the plugin.
pub(super) fn commands(sdk: Option<&SdkCheckout>) -> Vec<String> {
    let packing = sdk.map(packing).into_iter().flatten();
    packing.chain(["npm install", "npm test", "npm start"].map(str::to_owned)).collect()
}

/// The commands that build the SDK and pack it for the project.
fn packing(checkout: &SdkCheckout) -> [String; 2] {
    let sdk = format!("{}/sdk/typescript", checkout.relative);
    [format!("{sdk}/prepare.sh"), format!("npm pack --silent --ignore-scripts {sdk}")]
}
