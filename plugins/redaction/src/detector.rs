//! The detectors that plugins offer by name: what each finds, and its mask.

use std::{borrow::Cow, ops::Range};

use hookgate_sdk::{
    InitError,
    window::{AnswerText, SafeCut},
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

use super::{card, email, entropy, formats, iban, label, long_run, private_key, url_password};

/// What is looked for. Settings and notices use the name in snake case.
///
/// The order matters: if two detectors find something at the same place, it counts for the first. So the specific
/// ones come before the general ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Detector {
    /// An e-mail address.
    Email,
    /// A card number with a correct check digit.
    Card,
    /// An IBAN with correct check digits.
    Iban,
    /// A private key in PEM or OpenPGP armor, from its first line to its last.
    PrivateKey,
    /// A JSON Web Token.
    Jwt,
    /// A key of Anthropic.
    AnthropicKey,
    /// The id of an access key of AWS. The secret half has no form of its own.
    AwsAccessKey,
    /// A storage key in a connection string of Azure.
    AzureStorageKey,
    /// The signature of a shared access signature of Azure, in a URL.
    AzureSas,
    /// A token of DigitalOcean.
    DigitaloceanToken,
    /// A token of Docker Hub.
    DockerToken,
    /// A token of GitHub.
    GithubToken,
    /// A token of GitLab.
    GitlabToken,
    /// An API key, an access token or a client secret of Google.
    GoogleKey,
    /// A token of Hugging Face.
    HuggingfaceToken,
    /// A token of npm.
    NpmToken,
    /// A key of OpenAI, or of a service with the same form of keys.
    OpenaiKey,
    /// A token of PyPI.
    PypiToken,
    /// A key of SendGrid.
    SendgridKey,
    /// A token or a webhook of Slack.
    SlackToken,
    /// A secret or restricted key, or a webhook secret of Stripe.
    StripeKey,
    /// A token of a Telegram bot.
    TelegramToken,
    /// A key of Twilio.
    TwilioKey,
    /// A token of HashiCorp Vault.
    VaultToken,
    /// The password in a URL such as `postgres://user:password@host`.
    UrlPassword,
    /// A value that its label or its member's name calls a key, such as `api_key=...` and `Bearer ...`.
    LabelledKey,
    /// A long token of random letters and digits.
    HighEntropy,
    /// What `content-policy` redacts as API keys: runs of at least 32 letters, digits, `_` and `-`, also UUIDs and
    /// hashes, and labelled keys.
    ApiKey,
}

/// Written by hand: the derived schema describes each variant on its own, and a gateway's error for an unknown name
/// would list none.
impl JsonSchema for Detector {
    fn schema_name() -> Cow<'static, str> {
        "Detector".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "enum": Detector::ALL.map(Detector::name) })
    }
}

impl Detector {
    /// All detectors, in order.
    pub const ALL: [Detector; 28] = [
        Detector::Email,
        Detector::Card,
        Detector::Iban,
        Detector::PrivateKey,
        Detector::Jwt,
        Detector::AnthropicKey,
        Detector::AwsAccessKey,
        Detector::AzureStorageKey,
        Detector::AzureSas,
        Detector::DigitaloceanToken,
        Detector::DockerToken,
        Detector::GithubToken,
        Detector::GitlabToken,
        Detector::GoogleKey,
        Detector::HuggingfaceToken,
        Detector::NpmToken,
        Detector::OpenaiKey,
        Detector::PypiToken,
        Detector::SendgridKey,
        Detector::SlackToken,
        Detector::StripeKey,
        Detector::TelegramToken,
        Detector::TwilioKey,
        Detector::VaultToken,
        Detector::UrlPassword,
        Detector::LabelledKey,
        Detector::HighEntropy,
        Detector::ApiKey,
    ];

    /// Those that `redact` leaves out by default: they also find ids that tools need.
    pub const BROAD: [Detector; 2] = [Detector::HighEntropy, Detector::ApiKey];

    /// The name in settings and notices.
    pub const fn name(self) -> &'static str {
        match self {
            Detector::Email => "email",
            Detector::Card => "card",
            Detector::Iban => "iban",
            Detector::PrivateKey => "private_key",
            Detector::Jwt => "jwt",
            Detector::AnthropicKey => "anthropic_key",
            Detector::AwsAccessKey => "aws_access_key",
            Detector::AzureStorageKey => "azure_storage_key",
            Detector::AzureSas => "azure_sas",
            Detector::DigitaloceanToken => "digitalocean_token",
            Detector::DockerToken => "docker_token",
            Detector::GithubToken => "github_token",
            Detector::GitlabToken => "gitlab_token",
            Detector::GoogleKey => "google_key",
            Detector::HuggingfaceToken => "huggingface_token",
            Detector::NpmToken => "npm_token",
            Detector::OpenaiKey => "openai_key",
            Detector::PypiToken => "pypi_token",
            Detector::SendgridKey => "sendgrid_key",
            Detector::SlackToken => "slack_token",
            Detector::StripeKey => "stripe_key",
            Detector::TelegramToken => "telegram_token",
            Detector::TwilioKey => "twilio_key",
            Detector::VaultToken => "vault_token",
            Detector::UrlPassword => "url_password",
            Detector::LabelledKey => "labelled_key",
            Detector::HighEntropy => "high_entropy",
            Detector::ApiKey => "api_key",
        }
    }

    /// The detectors that the settings `detectors` and `except` select. Without `detectors`, all but `left_out`.
    ///
    /// # Errors
    /// If `except` names a detector that isn't selected.
    pub fn select(
        detectors: Option<&[Detector]>,
        except: &[Detector],
        left_out: &[Detector],
    ) -> Result<Vec<Detector>, InitError> {
        let is_listed = |detector: &Detector| match detectors {
            Some(detectors) => detectors.contains(detector),
            None => !left_out.contains(detector),
        };
        if let Some(index) = except.iter().position(|detector| !is_listed(detector)) {
            let expected =
                format!("`{}` isn't among the detectors anyway: leave it out", except[index].name());
            return Err(InitError::config(&format!("except[{index}]"), expected));
        }
        let is_selected = |detector: &Detector| is_listed(detector) && !except.contains(detector);
        Ok(Detector::ALL.into_iter().filter(is_selected).collect())
    }

    /// The error if the settings leave nothing to look for. It names the one of `detectors` and `except` that does so. `alternative` is
    /// what a plugin looks for besides detectors, such as `a pattern`.
    pub fn none_selected(except: &[Detector], alternative: Option<&str>) -> InitError {
        let or = alternative.map_or_else(String::new, |alternative| format!(" or {alternative}"));
        match except.is_empty() {
            true => InitError::config(
                "detectors",
                format!("expected at least one detector{or}; leave it out for the default"),
            ),
            false => InitError::config(
                "except",
                format!("it leaves out every detector: expected at least one that stays{or}"),
            ),
        }
    }

    /// What it finds in a text, or in a window of an answer: more text doesn't change what is before the cut. `member` is the name of
    /// the JSON member whose value the text is.
    pub(crate) fn find_all(
        self,
        text: &AnswerText<'_>,
        member: Option<&str>,
        cut: &mut SafeCut,
    ) -> Vec<Range<usize>> {
        match self {
            Detector::Email => email::find_all(text, cut),
            Detector::Card => card::find_all(text, cut),
            Detector::Iban => iban::find_all(text, cut),
            Detector::PrivateKey => private_key::find_all(text, cut),
            Detector::UrlPassword => url_password::find_all(text, cut),
            Detector::LabelledKey => label::find_all(text, member, cut),
            Detector::HighEntropy => entropy::find_all(text, cut),
            Detector::ApiKey => {
                let mut found = long_run::find_all(text, cut);
                found.extend(label::find_all(text, member, cut));
                found
            }
            _ => formats::find_all(self, text, cut),
        }
    }

    /// What it finds in a whole text.
    pub(crate) fn find(self, text: &str, member: Option<&str>) -> Vec<Range<usize>> {
        let text = AnswerText::whole(text);
        self.find_all(&text, member, &mut SafeCut::new(&text))
    }

    /// What replaces a match; never longer than the match, in bytes nor in characters.
    pub(crate) fn mask(self, found: &str) -> &'static str {
        let length = found.chars().count();
        match self {
            Detector::Email if length < "[EMAIL]".len() => "[MAIL]",
            Detector::Email => "[EMAIL]",
            Detector::Card => "[CARD]",
            Detector::Iban => "[IBAN]",
            _ if length < "***".len() => "**",
            _ if length < "[REDACTED]".len() => "***",
            _ => "[REDACTED]",
        }
    }
}

#[cfg(test)]
#[path = "detector_tests.rs"]
mod tests;
