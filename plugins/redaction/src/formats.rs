//! Keys that their issuer gave a form: a prefix, mostly. A pattern takes all characters that may follow, so that no
//! rest of a key stays visible. No match is shorter than `[REDACTED]`. A group `key` is the key alone, without its label.

use std::{collections::BTreeMap, ops::Range, sync::LazyLock};

use hookgate_sdk::window::{AnswerText, SafeCut};

use super::{Detector, WordPattern};

/// What follows the start of a word.
const PATTERNS: [(Detector, &str); 20] = [
    (Detector::Jwt, r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"),
    (Detector::AnthropicKey, r"sk-ant-[A-Za-z0-9_-]{20,}"),
    (Detector::AwsAccessKey, r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16,}"),
    (Detector::AzureStorageKey, r"(?i-u:AccountKey)=(?<key>[A-Za-z0-9+/]{40,}={0,2})"),
    // The signature is the HMAC-SHA256 in base64, mostly with percent escapes.
    (Detector::AzureSas, r"(?i-u:sig)=(?<key>(?:[A-Za-z0-9+/_-]|%2[BbFf]){43}(?:=|%3[Dd])?)"),
    (Detector::DigitaloceanToken, r"do[opr]_v1_[a-f0-9]{32,}"),
    (Detector::DockerToken, r"dckr_(?:pat|oat)_[A-Za-z0-9_-]{20,}"),
    (Detector::GithubToken, r"(?:gh[pousr]_[A-Za-z0-9_]{36,}|github_pat_[A-Za-z0-9_]{22,})"),
    (
        Detector::GitlabToken,
        r"(?:gl(?:pat|dt|rt|cbt|ptt|ft|imt|agent|oas|soat|ffct)-|GR1348941)[A-Za-z0-9_.-]{20,}",
    ),
    (Detector::GoogleKey, r"(?:AIza[A-Za-z0-9_-]{35,}|ya29\.[A-Za-z0-9._-]{20,}|GOCSPX-[A-Za-z0-9_-]{20,})"),
    (Detector::HuggingfaceToken, r"hf_[A-Za-z0-9]{30,}"),
    (Detector::NpmToken, r"npm_[A-Za-z0-9]{36,}"),
    (Detector::OpenaiKey, r"sk-(?:(?:proj|svcacct|admin|None|or-v1)-[A-Za-z0-9_-]{20,}|[A-Za-z0-9]{32,})"),
    (Detector::PypiToken, r"pypi-[A-Za-z0-9_-]{40,}"),
    (Detector::SendgridKey, r"SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"),
    (
        Detector::SlackToken,
        r"xox[abeoprs](?:\.xox[bp])?-[A-Za-z0-9-]{10,}|xapp-[A-Za-z0-9-]{20,}|(?:https://)?hooks\.slack\.com/(?:services|triggers|workflows)/[A-Za-z0-9/_-]{20,}",
    ),
    (Detector::StripeKey, r"(?:[sr]k_(?:live|test)_[A-Za-z0-9]{10,}|whsec_[A-Za-z0-9+/]{24,}={0,2})"),
    // In a URL, `bot` precedes it. Digits before may be those of an escape.
    (Detector::TelegramToken, r"(?:bot)?[0-9]{0,5}?(?<key>[0-9]{8,10}:AA[A-Za-z0-9_-]{33,})"),
    (Detector::TwilioKey, r"SK[a-f0-9]{32,}"),
    (Detector::VaultToken, r"hv[bsr]\.[A-Za-z0-9_-]{24,}"),
];

static COMPILED: LazyLock<BTreeMap<Detector, WordPattern>> =
    LazyLock::new(|| PATTERNS.into_iter().map(|(detector, key)| (detector, WordPattern::new(key))).collect());

/// The keys of a form that has a pattern, in order.
pub(crate) fn find_all(detector: Detector, text: &AnswerText<'_>, cut: &mut SafeCut) -> Vec<Range<usize>> {
    COMPILED.get(&detector).map_or_else(Vec::new, |pattern| pattern.find_all(text, cut))
}
