//! The templates of a plugin as a shell script, which the runner serves.

pub(super) const TEMPLATES: [(&str, &str); 5] = [
    ("README.md", include_str!("shell/README.md")),
    ("hookgate.yaml", super::HOOKGATE_YAML),
    ("plugin.sh", include_str!("shell/plugin.sh")),
    ("runner.yaml", include_str!("shell/runner.yaml")),
    ("test.sh", include_str!("shell/test.sh")),
];
