//! The name of a plugin's package, for managers of packages and for images.

/// The plugin's name in lower case, with one `-` for each run of `_` and `-`, and none at the end. If it is one of the words
/// of `reserved`, `-plugin` is appended.
pub(super) fn name(plugin: &str, reserved: &str) -> String {
    let lower = plugin.to_ascii_lowercase();
    let words: Vec<_> = lower.split(['_', '-']).filter(|word| !word.is_empty()).collect();
    let package = words.join("-");
    if reserved.split_whitespace().any(|reserved| reserved == package) {
        package + "-plugin"
    } else {
        package
    }
}
