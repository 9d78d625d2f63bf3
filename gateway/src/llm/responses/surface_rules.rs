//! What a Responses request is refused for: the rows and rules of [`super::surface`].

use crate::llm::surface::{
    AUDIO_PART, AllowSwitch, CONVERSATION_RULES, HOSTED, Row, Rule, STATE, STREAM_OPTIONS, SurfaceTable,
    Treatment::{Refused, Seen, StoredId},
    UNKNOWN_PART, UNSEEN, UNTYPED_TOOL, When,
};

/// The members of a request that not all formats have.
const MEMBERS: &[Row] = &[
    ("model", Seen),
    ("input", Seen),
    ("instructions", Seen),
    ("tools", Seen),
    ("tool_choice", Seen),
    ("text", Seen),
    ("reasoning", Seen),
    ("include", Seen),
    ("metadata", Seen),
    // What Codex says about itself and the turn.
    ("client_metadata", Seen),
    ("stream_options", Seen),
    ("user", Seen),
    ("safety_identifier", Seen),
    ("prompt_cache_key", Seen),
    ("prompt_cache_options", Seen),
    ("moderation", Seen),
    ("context_management", Refused(When::Request, UNSEEN)),
    ("prompt", Refused(When::Always, STORED_TEXT)),
    ("container", Refused(When::Always, STATE)),
];

/// What names files, containers and other things that the provider keeps, wherever it stands.
pub(super) const STORED: &[Row] = &[
    ("file_id", StoredId),
    ("file_ids", StoredId),
    ("vector_store_ids", StoredId),
    ("container_id", StoredId),
    ("skill_id", StoredId),
    ("tunnel_id", StoredId),
    // An answer, beside the cache.
    ("comparison_response_id", StoredId),
];

const STORED_TEXT: &str =
    "it names a text at the provider that no plugin has seen, and that may be another tenant's";

/// The family of tools for screens.
pub(super) const COMPUTER: &str = "computer";

/// What it refuses.
pub(super) const TABLE: SurfaceTable = SurfaceTable {
    members: MEMBERS,
    inner: &[("the request, but in `metadata`, schemas, arguments and citations", STORED)],
    rules: &[RULES, CONVERSATION_RULES],
};

const RULES: &[Rule] = &[
    INCLUDE,
    STREAM_OPTIONS,
    UNTYPED_TOOL,
    SHELL,
    CONTAINER_ID,
    HOSTED_TOOL,
    COMPUTER_TOOL,
    UNKNOWN_PART,
    AUDIO_PART,
    REFERENCE,
    COMPACTION,
    UNKNOWN_ITEM,
    RESULT_IN_CALL,
];

pub(super) const INCLUDE: Rule = Rule {
    what: "`include` that is no list of names",
    when: When::Request,
    why: UNSEEN,
    opened_by: AllowSwitch::Entry("include"),
};

pub(super) const SHELL: Rule = Rule {
    what: "a `shell` whose `environment` is not `local`",
    when: When::Tools,
    why: HOSTED,
    opened_by: AllowSwitch::Entry("shell"),
};

pub(super) const CONTAINER_ID: Rule = Rule {
    what: "`container` with an id in a tool",
    when: When::Always,
    why: STATE,
    opened_by: AllowSwitch::Entry("container"),
};

pub(super) const HOSTED_TOOL: Rule = Rule {
    what: "another tool of the provider, by its type, and the items of such tools",
    when: When::Tools,
    why: HOSTED,
    opened_by: AllowSwitch::ItsName,
};

pub(super) const COMPUTER_TOOL: Rule = Rule {
    what: "a `computer` tool, and its items",
    when: When::Tools,
    why: "screens have no text to judge",
    opened_by: AllowSwitch::Entry(COMPUTER),
};

pub(super) const REFERENCE: Rule = Rule {
    what: "an `item_reference` item, one without a type, or one of the provider with nothing but its id",
    when: When::Always,
    why: "it names an item that the provider keeps, which may be another tenant's, so the client must send items whole, as \
          most do with `store: false`",
    opened_by: AllowSwitch::Entry("item_reference"),
};

pub(super) const COMPACTION: Rule =
    Rule { what: "a `compaction` item", when: When::Request, why: UNSEEN, opened_by: AllowSwitch::ItsName };

pub(super) const UNKNOWN_ITEM: Rule = Rule {
    what: "an item of an unknown type",
    when: When::Results,
    why: UNSEEN,
    opened_by: AllowSwitch::ItsName,
};

pub(super) const RESULT_IN_CALL: Rule = Rule {
    what: "`output`, `content`, `result` or found `tools` of a tool call",
    when: When::Results,
    why: UNSEEN,
    opened_by: AllowSwitch::ItsName,
};
