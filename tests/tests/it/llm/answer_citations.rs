//! Citations and annotations of an answer: plugins are asked about each text in them, and what no longer fits is taken out.

use hookgate_proto::types::v1::BeforeResponsePatch;
use hookgate_tests::{
    fake::{Act, FakePlugin, Payload},
    provider::{self, FakeProvider},
};
use serde_json::{Value, json};

use super::{
    answer_parts::{WAYS, Way, answered, fetch, gateway, read},
    window_support::{ANSWER, APIS, Api},
};

const TEXT: &str = "It says so, as we know.";

/// A citation of a page with this title and address.
fn citation(api: Api, title: &str, url: &str) -> Value {
    match api {
        Api::Messages => json!({
            "type": "web_search_result_location", "url": url, "title": title, "cited_text": "so", "encrypted_index": "Eo8B",
        }),
        Api::Responses => {
            json!({ "type": "url_citation", "url": url, "title": title, "start_index": 0, "end_index": 2 })
        }
        Api::Chat => json!({
            "type": "url_citation", "url_citation": { "url": url, "title": title, "start_index": 0, "end_index": 2 },
        }),
    }
}

/// What this API answers with one text and these citations, in the form that [`read`] returns.
fn content(api: Api, citations: &[Value]) -> Value {
    match api {
        Api::Messages => json!([{ "type": "text", "text": TEXT, "citations": citations }]),
        Api::Responses => {
            let mut message = provider::responses::message("msg_1", TEXT);
            message["content"][0]["annotations"] = json!(citations);
            json!([message])
        }
        Api::Chat => json!({
            "role": "assistant", "content": [{ "type": "text", "text": TEXT }], "annotations": citations,
        }),
    }
}

#[tokio::test]
async fn a_citation_with_what_a_plugin_redacts_is_taken_out_and_the_others_stay() {
    for api in APIS {
        let citations = [
            citation(api, "A menu", "https://example.com/a"),
            citation(api, "Of ada@example.com", "https://example.com/b"),
            citation(api, "B menu", "https://example.com/?card=4111111111111111"),
            citation(api, "C menu", "https://example.com/a"),
        ];
        let left = [citations[0].clone(), citations[3].clone()];
        for way in WAYS {
            let provider = FakeProvider::always(answered(api, &content(api, &citations), way)).await;
            let gateway = gateway(api, &provider, way).await;
            let answer = fetch(api, &gateway, way).await;
            assert_eq!(read(api, &answer, way), content(api, &left), "{api:?} {way:?} {answer:?}");
            for text in ["ada@example.com", "4111111111111111"] {
                assert!(!answer.text.contains(text), "{api:?} {way:?} {answer:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_blocked_text_of_a_citation_blocks_the_answer() {
    for api in APIS {
        let citations = [
            citation(api, "A menu", "https://example.com/a"),
            citation(api, "BOMB", "https://example.com/b"),
        ];
        for way in WAYS {
            let provider = FakeProvider::always(answered(api, &content(api, &citations), way)).await;
            let plugin = FakePlugin::named("judge").only(&[ANSWER]);
            let plugin = if way == Way::Windows { plugin.in_windows() } else { plugin };
            let plugin = plugin.at_with(ANSWER, |seen| match &seen.payload {
                Payload::BeforeResponse(answer) if answer.content == "BOMB" => {
                    Act::cancel("POLICY", "Not that.")
                }
                _ => Act::pass(),
            });
            let plugin = plugin.start().await;
            let gateway = api.setup(&provider).plugin(&plugin).binding("judge", 10).start().await;
            gateway.wait_until_ready().await;
            let answer = fetch(api, &gateway, way).await;
            let is_blocked = answer.text.contains("Not that.") && !answer.text.contains("BOMB");
            assert!(is_blocked && !answer.text.contains("A menu"), "{api:?} {way:?} {answer:?}");
        }
    }
}

#[tokio::test]
async fn each_text_of_citations_is_asked_about_once_and_counts_no_answer() {
    for api in APIS {
        let citations = [
            citation(api, "A menu", "https://example.com/a"),
            citation(api, "A menu", "https://example.com/b"),
        ];
        let provider = FakeProvider::always(answered(api, &content(api, &citations), Way::Whole)).await;
        let plugin = FakePlugin::named("judge").only(&[ANSWER]).start().await;
        let gateway = api.setup(&provider).plugin(&plugin).binding("judge", 10).start().await;
        gateway.wait_until_ready().await;
        fetch(api, &gateway, Way::Whole).await;
        let mut texts: Vec<_> = plugin
            .seen()
            .into_iter()
            .map(|seen| {
                let Payload::BeforeResponse(answer) = seen.payload else { panic!("an answer") };
                let is_part = seen.call.context.unwrap_or_default().part;
                assert_eq!(
                    (is_part, answer.token_usage.is_none()),
                    (answer.content != TEXT, answer.content != TEXT)
                );
                answer.content
            })
            .collect();
        texts.sort_unstable();
        let mut expected = vec!["A menu", TEXT, "https://example.com/a", "https://example.com/b"];
        expected.extend(matches!(api, Api::Messages).then_some("so"));
        expected.sort_unstable();
        assert_eq!(texts, expected, "{api:?}");
    }
}

#[tokio::test]
async fn a_changed_text_loses_its_citations_whatever_plugins_think_of_them() {
    for api in APIS {
        let citations = [citation(api, "A menu", "https://example.com/a")];
        let provider = FakeProvider::always(answered(api, &content(api, &citations), Way::Whole)).await;
        let plugin = FakePlugin::named("judge").only(&[ANSWER]).at_with(ANSWER, |seen| match &seen.payload {
            Payload::BeforeResponse(answer) if answer.content == TEXT => Act::patch(BeforeResponsePatch {
                content: Some("Something else.".to_owned()),
                ..BeforeResponsePatch::default()
            }),
            _ => Act::pass(),
        });
        let plugin = plugin.start().await;
        let gateway = api.setup(&provider).plugin(&plugin).binding("judge", 10).start().await;
        gateway.wait_until_ready().await;
        let read = read(api, &fetch(api, &gateway, Way::Whole).await, Way::Whole).to_string();
        assert!(read.contains("Something else.") && !read.contains("example.com"), "{api:?} {read}");
    }
}
