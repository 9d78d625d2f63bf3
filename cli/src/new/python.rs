//! The templates of a plugin in Python, and what their placeholders stand for.

use super::{
    package,
    sdk::{SdkCheckout, VERSION},
};

pub(super) const TEMPLATES: [(&str, &str); 10] = [
    (".dockerignore", include_str!("python/dockerignore")),
    (".gitignore", include_str!("python/gitignore")),
    ("Dockerfile", include_str!("python/Dockerfile")),
    ("README.md", include_str!("python/README.md")),
    ("hookgate.yaml", super::HOOKGATE_YAML),
    ("plugin.py", include_str!("python/plugin.py")),
    ("pyproject.toml", include_str!("python/pyproject.toml")),
    ("requirements-dev.txt", include_str!("python/requirements-dev.txt")),
    ("requirements.txt", include_str!("python/requirements.txt")),
    ("test_plugin.py", include_str!("python/test_plugin.py")),
];

pub(super) fn values(name: &str, sdk: Option<&SdkCheckout>) -> Vec<(&'static str, Option<String>)> {
    let image = package::name(name, "");
    let (requirement, origin) = match sdk {
        None => (
            format!("hookgate=={VERSION}"),
            format!(
                "`hookgate` {VERSION} comes from PyPI. If it isn't published there yet, create the project again with\n\
                 `hookgate new plugin {name} --lang python --sdk-path PATH`, where PATH is a checkout of Hookgate."
            ),
        ),
        Some(checkout) => (
            format!("./{}", wheel()),
            format!(
                "`hookgate` is built from the checkout of Hookgate at `{}`. Commit `{}` too. When the SDK has changed,\n\
                 build it again, and install it with `--force-reinstall`.",
                checkout.relative,
                wheel()
            ),
        ),
    };
    vec![
        ("IMAGE_COMMAND", Some(format!("docker build -t {image}:0.1.0 ."))),
        ("NAME", Some(name.to_owned())),
        ("IMAGE", Some(image)),
        ("SDK", Some(requirement)),
        ("SDK_ORIGIN", Some(origin)),
        ("WHEEL", sdk.map(build_wheel)),
    ]
}

/// The commands that install the packages, test and start the plugin.
pub(super) fn commands(name: &str, sdk: Option<&SdkCheckout>) -> Vec<String> {
    let environment = "python3 -m venv .venv".to_owned();
    let start = format!(".venv/bin/python -m hookgate run plugin:plugin --listen unix:///tmp/{name}.sock");
    let others = [".venv/bin/pip install -r requirements-dev.txt", ".venv/bin/mypy .", ".venv/bin/pytest"];
    let others = others.map(str::to_owned).into_iter().chain([start]);
    std::iter::once(environment).chain(sdk.map(build_wheel)).chain(others).collect()
}

/// The command that builds the SDK into the project's folder, so that its image has it too.
fn build_wheel(checkout: &SdkCheckout) -> String {
    format!(".venv/bin/pip wheel --no-deps --wheel-dir . {}/sdk/python", checkout.relative)
}

/// The file that the command makes.
fn wheel() -> String {
    format!("hookgate-{VERSION}-py3-none-any.whl")
}
