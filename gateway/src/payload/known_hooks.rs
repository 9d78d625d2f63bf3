//! The hooks whose bodies and contributions have a form (docs/protocol.md, section 9). Names of hooks are open: any
//! other hook takes any object and any contribution.
//!
//! Values are checked in their text, without a copy or a tree of them: they may be whole conversations.

use std::borrow::Cow;

use crate::json;

/// A hook whose body and contributions have a form.
#[derive(Debug)]
pub struct KnownHook {
    pub name: &'static str,
    /// The members of its body that it names. There may be others.
    body: &'static [Member],
    /// The kinds of contributions that it takes.
    pub kinds: &'static [&'static str],
}

/// A member of an object.
#[derive(Debug)]
struct Member {
    name: &'static str,
    form: Form,
    required: bool,
}

/// The form of a JSON value.
#[derive(Debug, Clone, Copy)]
enum Form {
    Text,
    NonEmptyText,
    Objects,
    NonEmptyObjects,
    Texts,
}

/// Why a value doesn't fit, in words that hide it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormError {
    /// The member of the value; empty for the value itself.
    pub member: &'static str,
    pub message: String,
}

const fn required(name: &'static str, form: Form) -> Member {
    Member { name, form, required: true }
}

const fn optional(name: &'static str, form: Form) -> Member {
    Member { name, form, required: false }
}

const SESSION: &[Member] = &[optional("messages", Form::Objects)];
const RUN: &[Member] = &[optional("outcome", Form::Text)];
const SUBAGENT: &[Member] = &[required("child", Form::NonEmptyText), optional("outcome", Form::Text)];
const WINDOW: &[Member] =
    &[required("messages", Form::Objects), optional("strategy", Form::Text), optional("trigger", Form::Text)];
const AGENT: &[Member] = &[optional("tools", Form::Objects), optional("reason", Form::Text)];
const EVENT: &[Member] = &[required("kind", Form::NonEmptyText)];
const MEMORY: &[Member] = &[required("content", Form::NonEmptyText)];
const INJECT: &[Member] = &[required("content", Form::Text)];
const WINDOW_KINDS: &[&str] = &["inject", "messages", "retain"];

const fn hook(name: &'static str, body: &'static [Member], kinds: &'static [&'static str]) -> KnownHook {
    KnownHook { name, body, kinds }
}

/// All of them.
pub static KNOWN_HOOKS: [KnownHook; 15] = [
    hook("recall", &[required("message", Form::Text)], &["memory"]),
    hook(
        "turn_end",
        &[required("messages", Form::Objects), optional("outcome", Form::Text)],
        &["event", "memory"],
    ),
    hook("session_start", SESSION, &["inject"]),
    hook("session_idle", SESSION, &["inject"]),
    hook("session_end", SESSION, &["inject"]),
    hook("run_start", RUN, &[]),
    hook("run_end", RUN, &[]),
    hook("subagent_start", SUBAGENT, &[]),
    hook("subagent_end", SUBAGENT, &[]),
    hook("before_compact", WINDOW, WINDOW_KINDS),
    hook("after_compact", WINDOW, WINDOW_KINDS),
    hook("assemble", WINDOW, WINDOW_KINDS),
    hook("agent_start", AGENT, &["inject"]),
    hook("agent_end", AGENT, &["inject"]),
    hook("event", EVENT, &[]),
];

impl KnownHook {
    /// The hook called `name`; `None` if it has no forms.
    pub fn named(name: &str) -> Option<&'static KnownHook> {
        KNOWN_HOOKS.iter().find(|hook| hook.name == name)
    }

    /// What is wrong with a body, which is a JSON object.
    pub fn body_errors(&self, body: &str) -> Vec<FormError> {
        member_errors(body, self.body)
    }

    /// What is wrong with a contribution of this `kind`, which is one of the hook's. `value` is valid JSON.
    pub fn contribution_error(kind: &str, value: &str) -> Option<FormError> {
        let of_object = |members| match value.starts_with('{') {
            true => member_errors(value, members).into_iter().next(),
            false => Some(FormError { member: "", message: "must be an object".to_owned() }),
        };
        match kind {
            "memory" => of_object(MEMORY),
            "inject" => of_object(INJECT),
            "event" => of_object(EVENT),
            "messages" => Form::NonEmptyObjects.error("", value),
            "retain" => Form::Texts.error("", value),
            _ => None,
        }
    }
}

fn member_errors(object: &str, members: &'static [Member]) -> Vec<FormError> {
    let mut errors = Vec::new();
    let mut missing: Vec<_> = members.iter().filter(|member| member.required).collect();
    for (name, value) in json::members(object) {
        let Some(member) = members.iter().find(|member| Cow::Borrowed(member.name) == name) else { continue };
        missing.retain(|missing| missing.name != member.name);
        errors.extend(member.form.error(member.name, value));
    }
    errors.extend(missing.into_iter().map(|member| {
        let message = format!("`{}` is required: {}", member.name, member.form.words());
        FormError { member: member.name, message }
    }));
    errors
}

impl Form {
    const fn words(self) -> &'static str {
        match self {
            Form::Text => "a text",
            Form::NonEmptyText => "a text that isn't empty",
            Form::Objects => "an array of objects",
            Form::NonEmptyObjects => "an array of objects that isn't empty",
            Form::Texts => "an array of texts",
        }
    }

    fn fits(self, value: &str) -> bool {
        let all = |first| value.starts_with('[') && json::elements(value).all(|one| one.starts_with(first));
        match self {
            Form::Text => value.starts_with('"'),
            Form::NonEmptyText => value.starts_with('"') && value != "\"\"",
            Form::Objects => all('{'),
            Form::NonEmptyObjects => all('{') && json::elements(value).next().is_some(),
            Form::Texts => all('"'),
        }
    }

    fn error(self, member: &'static str, value: &str) -> Option<FormError> {
        let message = || match member {
            "" => format!("must be {}", self.words()),
            member => format!("`{member}` must be {}", self.words()),
        };
        (!self.fits(value)).then(|| FormError { member, message: message() })
    }
}

#[cfg(test)]
mod tests {
    use hookgate_proto::HookName;

    use super::*;

    fn body(hook: &str, body: &str) -> Vec<String> {
        let errors = KnownHook::named(hook).expect("it is known").body_errors(body);
        errors.into_iter().map(|error| format!("/{}: {}", error.member, error.message)).collect()
    }

    #[test]
    fn every_known_hook_has_a_valid_name_of_its_own() {
        let mut names: Vec<_> = KNOWN_HOOKS.iter().map(|hook| hook.name).collect();
        assert!(names.iter().all(|name| HookName::new(name).is_ok()), "{names:?}");
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), KNOWN_HOOKS.len());
        assert!(KnownHook::named("my_hook").is_none());
    }

    #[test]
    fn a_body_may_have_more_members_than_its_hook_names() {
        assert_eq!(body("recall", r#"{ "peer_id": null, "message" : "hi", "n": 1e999 }"#), [""; 0]);
        assert_eq!(body("session_start", "{}"), [""; 0]);
        let window = r#"{"messages": [{"role":"user"}, {}], "trigger": "tokens", "child": 1}"#;
        assert_eq!(body("before_compact", window), [""; 0]);
    }

    #[test]
    fn each_member_of_another_form_and_each_missing_one_is_named() {
        assert_eq!(body("recall", r#"{"text":"hi"}"#), ["/message: `message` is required: a text"]);
        assert_eq!(
            body("assemble", r#"{"messages":[{}, "hi"],"strategy":null}"#),
            ["/messages: `messages` must be an array of objects", "/strategy: `strategy` must be a text"]
        );
        assert_eq!(
            body("subagent_end", r#"{"child":"","outcome":[]}"#),
            ["/child: `child` must be a text that isn't empty", "/outcome: `outcome` must be a text"]
        );
    }

    #[test]
    fn contributions_have_the_form_of_their_kind() {
        let wrong = |kind: &str, value: &str| {
            KnownHook::contribution_error(kind, value).map(|error| error.message).unwrap_or_default()
        };
        for (kind, value) in [
            ("memory", r#"{"content":"Ada","weight":1}"#),
            ("inject", r#"{"content":""}"#),
            ("event", r#"{"kind":"noted"}"#),
            ("messages", r#"[{}]"#),
            ("retain", r#"["a", "b"]"#),
            ("retain", "[]"),
        ] {
            assert_eq!(wrong(kind, value), "", "{kind} {value}");
        }
        assert_eq!(wrong("memory", "[]"), "must be an object");
        assert_eq!(wrong("memory", r#"{"content":["s3cr3t"]}"#), "`content` must be a text that isn't empty");
        assert_eq!(wrong("event", "{}"), "`kind` is required: a text that isn't empty");
        assert_eq!(wrong("messages", "[]"), "must be an array of objects that isn't empty");
        assert_eq!(wrong("messages", "{}"), "must be an array of objects that isn't empty");
        assert_eq!(wrong("retain", "[1]"), "must be an array of texts");
    }
}
