//! Entries of `llm.allow` that are probably misspelled. Any member's name may be listed, so these are hints and no mistakes.

use std::collections::BTreeSet;

use super::{
    chat::ChatCompletions,
    embeddings::Embeddings,
    format::Format,
    messages::{CountTokens, Messages},
    responses::Responses,
    surface::{AllowSwitch, SurfaceTable, Treatment},
};
use crate::config::did_you_mean;

const TABLES: [&SurfaceTable; 6] = [
    &SurfaceTable::SHARED,
    ChatCompletions::SURFACE,
    Responses::SURFACE,
    Embeddings::SURFACE,
    Messages::SURFACE,
    CountTokens::SURFACE,
];

/// Providers' tools and parts that the tables refuse as unknown: their names are right, however near to others.
const OF_PROVIDERS: &[&str] = &[
    "advisor",
    "code_execution",
    "code_interpreter",
    "compaction",
    "computer_use_preview",
    "file_search",
    "image_generation",
    "input_audio",
    "mcp",
    "mcp_toolset",
    "search_result",
    "tool_search",
    "web_fetch",
    "web_search_preview",
];

/// One sentence for each entry of `allow` that opens nothing known, and is near to a name that would, or to one that nothing
/// opens.
pub fn hints(allow: &[String]) -> Vec<String> {
    let (mut opens, mut members) = (BTreeSet::from_iter(OF_PROVIDERS.iter().copied()), BTreeSet::new());
    for table in TABLES {
        let rows = table.members.iter().chain(table.inner.iter().flat_map(|(_, rows)| *rows));
        for (name, treatment) in rows {
            match treatment {
                Treatment::Refused(..) | Treatment::StoredId => opens.insert(*name),
                Treatment::Seen | Treatment::Settings => members.insert(*name),
            };
        }
        opens.extend(table.rules.iter().copied().flatten().filter_map(|rule| match rule.opened_by {
            AllowSwitch::Entry(name) => Some(name),
            AllowSwitch::ItsName | AllowSwitch::Nothing => None,
        }));
    }
    allow
        .iter()
        .enumerate()
        .filter_map(|(index, name)| Some(format!("/llm/allow/{index}: {}", hint(name, &opens, &members)?)))
        .collect()
}

fn hint(name: &str, opens: &BTreeSet<&str>, members: &BTreeSet<&str>) -> Option<String> {
    if opens.contains(name) || members.contains(name) {
        return None;
    }
    if let Some(known) = members.iter().find(|known| known.eq_ignore_ascii_case(name)) {
        return Some(format!(
            "`{name}` differs from `{known}` in case alone, and nothing allows such a member"
        ));
    }
    let near = did_you_mean(name, opens.iter().copied())?;
    Some(format!("`{name}` opens nothing that the gateway knows; {near}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(names: &[&str]) -> Vec<String> {
        hints(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_misspelled_name_gets_the_right_one() {
        for wrong in ["web_serach", "web-search", "WebSearch", "WEB_SEARCH"] {
            let expected = format!(
                "/llm/allow/1: `{wrong}` opens nothing that the gateway knows; did you mean `web_search`?"
            );
            assert_eq!(of(&["audio", wrong]), [expected]);
        }
    }

    #[test]
    fn another_spelling_of_a_member_is_said_to_open_nothing() {
        let expected =
            "/llm/allow/0: `Model` differs from `model` in case alone, and nothing allows such a member";
        assert_eq!(of(&["Model"]), [expected]);
    }

    #[test]
    fn names_that_are_right_or_of_somebody_else_get_no_hint() {
        let right = ["web_search", "audio", "cachedContent", "file_id", "tokens", "temperature", "store"];
        assert_eq!(of(&[&right[..], OF_PROVIDERS].concat()), [""; 0]);
        assert_eq!(of(&["x_lab_routing_table", "thinking_budget_of_ours"]), [""; 0]);
    }
}
