//! What was found where, as a notice's details show it. Never has a value.

use std::borrow::Cow;

use hookgate_redaction::{Redactor, Text, TextKind};
use serde::Serialize;

/// More findings are only counted.
const MAX_FINDINGS: usize = 16;
/// The maximum length of a name in a pointer, and of a pointer. Longer ones are cut, so that no request makes its
/// own answer large.
const MAX_NAME_BYTES: usize = 64;
const MAX_POINTER_BYTES: usize = 256;

/// A secret that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    detector: String,
    /// JSON pointer to the text, or to the object if the secret is in a member's name. Secrets in names on the way
    /// are masked.
    pointer: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    in_member_name: bool,
}

/// The secrets of a payload.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    listed: Vec<Finding>,
    count: usize,
    /// One of them is in a name, which no patch replaces.
    pub(crate) any_unmaskable: bool,
}

/// The details of the notice.
#[derive(Serialize)]
pub(crate) struct Details<'f> {
    findings: &'f [Finding],
    #[serde(skip_serializing_if = "is_zero")]
    not_listed: usize,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl Findings {
    pub(crate) fn add(&mut self, detector: &str, text: &Text<'_>, redactor: &Redactor) {
        self.count += 1;
        self.any_unmaskable |= text.kind == TextKind::Name || text.is_fixed();
        if self.listed.len() < MAX_FINDINGS {
            let shown = |name: &str| cut(&redactor.redact(name, None).text, MAX_NAME_BYTES).into_owned();
            self.listed.push(Finding {
                detector: detector.to_owned(),
                pointer: cut(&text.pointer(shown), MAX_POINTER_BYTES).into_owned(),
                in_member_name: text.kind == TextKind::Name,
            });
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// What was found, for people: the first of them, and how many more.
    pub(crate) fn summary(&self) -> String {
        let first = self.listed.first().map(|finding| {
            let place = if finding.in_member_name { "in a name in" } else { "at" };
            format!("{} {place} {}", finding.detector, finding.pointer)
        });
        match (first, self.count) {
            (Some(first), 0 | 1) => first,
            (Some(first), count) => format!("{first}, and {} more", count - 1),
            (None, count) => count.to_string(),
        }
    }

    /// As many findings as fit into `max_bytes` of JSON.
    pub(crate) fn details(&self, max_bytes: usize) -> Result<Details<'_>, serde_json::Error> {
        let mut shown = self.listed.len();
        loop {
            let details = Details { findings: &self.listed[..shown], not_listed: self.count - shown };
            if shown == 0 || serde_json::to_vec(&details)?.len() <= max_bytes {
                return Ok(details);
            }
            shown -= 1;
        }
    }
}

fn cut(text: &str, max_bytes: usize) -> Cow<'_, str> {
    match text.floor_char_boundary(max_bytes) {
        end if end < text.len() => Cow::Owned(format!("{}…", &text[..end])),
        _ => Cow::Borrowed(text),
    }
}
