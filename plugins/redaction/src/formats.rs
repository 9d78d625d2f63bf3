//! Keys that their issuer gave a form: a prefix, mostly. A pattern takes all characters that may follow, so that no
//! rest of a key stays visible. No match is shorter than `[REDACTED]`.

use std::{collections::BTreeMap, ops::Range, sync::LazyLock};

use hookgate_sdk::window::{AnswerText, SafeCut};

use super::{Detector, Ranges, TextPattern};

/// The patterns begin at ASCII word boundaries: with Unicode boundaries, a key after `é` would not match.
const PATTERNS: [(Detector, &str); 18] = [
    (Detector::Jwt, r"(?-u:\b)eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"),
    (Detector::AnthropicKey, r"(?-u:\b)sk-ant-[A-Za-z0-9_-]{20,}"),
    (Detector::AwsAccessKey, r"(?-u:\b)(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16,}"),
    (Detector::AzureStorageKey, r"(?i-u:\bAccountKey)=[A-Za-z0-9+/]{40,}={0,2}"),
    (Detector::DigitaloceanToken, r"(?-u:\b)do[opr]_v1_[a-f0-9]{32,}"),
    (Detector::DockerToken, r"(?-u:\b)dckr_(?:pat|oat)_[A-Za-z0-9_-]{20,}"),
    (Detector::GithubToken, r"(?-u:\b)(?:gh[pousr]_[A-Za-z0-9_]{36,}|github_pat_[A-Za-z0-9_]{22,})"),
    (
        Detector::GitlabToken,
        r"(?-u:\b)(?:gl(?:pat|dt|rt|cbt|ptt|ft|imt|agent|oas|soat|ffct)-|GR1348941)[A-Za-z0-9_.-]{20,}",
    ),
    (
        Detector::GoogleKey,
        r"(?-u:\b)(?:AIza[A-Za-z0-9_-]{35,}|ya29\.[A-Za-z0-9._-]{20,}|GOCSPX-[A-Za-z0-9_-]{20,})",
    ),
    (Detector::HuggingfaceToken, r"(?-u:\b)hf_[A-Za-z0-9]{30,}"),
    (Detector::NpmToken, r"(?-u:\b)npm_[A-Za-z0-9]{36,}"),
    (
        Detector::OpenaiKey,
        r"(?-u:\b)sk-(?:(?:proj|svcacct|admin|None|or-v1)-[A-Za-z0-9_-]{20,}|[A-Za-z0-9]{32,})",
    ),
    (Detector::PypiToken, r"(?-u:\b)pypi-[A-Za-z0-9_-]{40,}"),
    (Detector::SendgridKey, r"(?-u:\b)SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"),
    (
        Detector::SlackToken,
        r"(?-u:\b)(?:xox[abeoprs](?:\.xox[bp])?-[A-Za-z0-9-]{10,}|xapp-[A-Za-z0-9-]{20,})|https://hooks\.slack\.com/(?:services|triggers|workflows)/[A-Za-z0-9/_-]{20,}",
    ),
    (Detector::StripeKey, r"(?-u:\b)(?:[sr]k_(?:live|test)_[A-Za-z0-9]{10,}|whsec_[A-Za-z0-9+/]{24,}={0,2})"),
    (Detector::TwilioKey, r"(?-u:\b)SK[a-f0-9]{32,}"),
    (Detector::VaultToken, r"(?-u:\b)hv[bsr]\.[A-Za-z0-9_-]{24,}"),
];

static COMPILED: LazyLock<BTreeMap<Detector, TextPattern>> = LazyLock::new(|| {
    PATTERNS.into_iter().map(|(detector, pattern)| (detector, TextPattern::own(pattern))).collect()
});

/// The keys of a form that has a pattern, in order.
pub(crate) fn find(detector: Detector, text: &str) -> Ranges<'_> {
    match COMPILED.get(&detector) {
        Some(pattern) => Box::new(pattern.find_iter(text).map(|found| found.range())),
        None => Box::new(std::iter::empty()),
    }
}

/// The same in a window.
pub(crate) fn find_in_window(
    detector: Detector,
    text: &AnswerText<'_>,
    cut: &mut SafeCut,
) -> Vec<Range<usize>> {
    COMPILED.get(&detector).map_or_else(Vec::new, |pattern| pattern.find_in_window(text, cut))
}
