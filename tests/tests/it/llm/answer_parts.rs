//! Texts of an answer that a reader sees apart: no pattern crosses from one into another, and each takes back its own change.

use std::time::Duration;

use hookgate_proto::types::v1::{BeforeResponsePatch, ExtensionPoint};
use hookgate_tests::{
    fake::{Act, FakePlugin, Payload},
    gateway::Gateway,
    provider::{self, FakeProvider, ProviderAct, chunk, usage_chunk},
};
use serde_json::{Value, json};

use super::{
    support::{self, ClientAnswer},
    window_support::{ANSWER, APIS, Api},
};

/// What `redact` makes of texts that would be something else, or nothing, together with their neighbours.
const TEXTS: [(&str, &str); 9] = [
    ("Card 4111111111111111", "Card [CARD]"),
    ("2 cards found", "2 cards found"),
    ("I write to ada@example.com", "I write to [EMAIL]"),
    ("Next I read.", "Next I read."),
    ("41111111", "41111111"),
    ("11111111", "11111111"),
    ("ada@", "ada@"),
    ("example.com", "example.com"),
    ("é", "é"),
];

/// How an answer is asked for and judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Whole,
    /// A stream that is held until it is whole.
    Held,
    /// A stream whose first text goes out in windows.
    Windows,
}

pub(super) const WAYS: [Way; 3] = [Way::Whole, Way::Held, Way::Windows];

#[derive(Debug, Clone, Copy)]
enum Piece {
    Text(&'static str),
    Thought(&'static str),
    Call,
}

use Piece::{Call, Text, Thought};

/// What this API answers with these pieces: `content` of Messages, `output` of Responses, and a message of Chat Completions.
fn provider_content(api: Api, pieces: &[Piece]) -> Value {
    let mut content = Vec::new();
    for (at, piece) in pieces.iter().enumerate() {
        let at = at.to_string();
        let part = match (api, piece) {
            (Api::Messages, Text(text)) => provider::messages::text(text),
            (Api::Messages, Thought(thought)) => provider::messages::thinking(thought),
            (Api::Messages, Call) => provider::messages::tool_use(&at, "f", &json!({})),
            (Api::Responses, Text(text)) => {
                // A part behind a part of the same message, or another message.
                let last = content.last_mut().filter(|last: &&mut Value| last["type"] == "message");
                if let Some(last) = last.filter(|_| text.len() % 2 == 0) {
                    let parts = last["content"].as_array_mut().expect("a list of parts");
                    parts.push(provider::responses::output_text(text));
                    continue;
                }
                provider::responses::message(&format!("msg_{at}"), text)
            }
            (Api::Responses, Thought(thought)) => {
                provider::responses::reasoning(&format!("rs_{at}"), thought)
            }
            (Api::Responses, Call) => provider::responses::function_call(&at, "f", "{}"),
            (Api::Chat, Text(text)) => json!({ "type": "text", "text": text }),
            (Api::Chat, Thought(text)) => {
                json!({ "type": "reasoning.text", "index": content.len(), "text": text })
            }
            (Api::Chat, Call) => {
                json!({ "id": at, "type": "function", "function": { "name": "f", "arguments": "{}" } })
            }
        };
        content.push(part);
    }
    if !matches!(api, Api::Chat) {
        return json!(content);
    }
    let of_type =
        |name: &str| content.iter().filter(|part| part["type"] == name).cloned().collect::<Vec<_>>();
    let mut message = json!({ "role": "assistant", "content": of_type("text") });
    for (name, list) in
        [("reasoning_details", of_type("reasoning.text")), ("tool_calls", of_type("function"))]
    {
        if !list.is_empty() {
            message[name] = json!(list);
        }
    }
    message
}

/// The same with each text and thought as `redact` leaves it alone.
fn redacted(content: &Value) -> Value {
    let mut content = content.clone();
    match &mut content {
        Value::Array(list) => list.iter_mut().for_each(|value| *value = redacted(value)),
        Value::Object(members) => {
            for (name, value) in members {
                let known = TEXTS.iter().find(|(text, _)| *value == *text);
                match known.filter(|_| ["text", "thinking"].contains(&&**name)) {
                    Some((_, left)) => *value = json!(left),
                    None => *value = redacted(value),
                }
            }
        }
        _ => {}
    }
    content
}

pub(super) fn answered(api: Api, content: &Value, way: Way) -> ProviderAct {
    let act = match (api, way) {
        (Api::Messages, Way::Whole) => provider::messages::answer(&provider::messages::message(content)),
        (Api::Messages, _) => provider::messages::stream(&provider::messages::message(content)),
        (Api::Responses, Way::Whole) => provider::responses::answer(&provider::responses::response(content)),
        (Api::Responses, _) => provider::responses::stream(&provider::responses::response(content)),
        (Api::Chat, Way::Whole) => {
            let choice = json!({ "index": 0, "message": content, "finish_reason": "stop" });
            ProviderAct::json(&provider::completion(&json!([choice])))
        }
        (Api::Chat, _) => chat_stream(content),
    };
    act.paced(if way == Way::Windows { Duration::from_millis(15) } else { Duration::ZERO })
}

/// Each thought in two pieces, and all parts of the content in one chunk.
fn chat_stream(message: &Value) -> ProviderAct {
    let mut deltas = vec![json!({ "role": "assistant" })];
    for detail in message["reasoning_details"].as_array().into_iter().flatten() {
        let text = detail["text"].as_str().expect("a text");
        let (first, second) = text.split_at(text.floor_char_boundary(4));
        for piece in [first, second] {
            let mut detail = detail.clone();
            detail["text"] = json!(piece);
            deltas.push(json!({ "reasoning_details": [detail] }));
        }
    }
    deltas.push(json!({ "content": message["content"] }));
    if let Some(annotations) = message.get("annotations") {
        deltas.push(json!({ "annotations": annotations }));
    }
    for (index, call) in message["tool_calls"].as_array().into_iter().flatten().enumerate() {
        let mut call = call.clone();
        call["index"] = json!(index);
        deltas.push(json!({ "tool_calls": [call] }));
    }
    let chunks = deltas.iter().map(|delta| chunk(0, delta, None));
    let end = [chunk(0, &json!({}), Some("stop")), usage_chunk()];
    ProviderAct::stream(&chunks.chain(end).collect::<Vec<_>>())
}

/// What a client reads, in the form of [`provider_content`].
pub(super) fn read(api: Api, answer: &ClientAnswer, way: Way) -> Value {
    assert_eq!(answer.status, 200, "{answer:?}");
    if way == Way::Whole {
        let body = answer.json();
        return match api {
            Api::Messages => body["content"].clone(),
            Api::Responses => body["output"].clone(),
            Api::Chat => body["choices"][0]["message"].clone(),
        };
    }
    let datas = answer.text.lines().filter_map(|line| line.strip_prefix("data: "));
    let events: Vec<Value> = datas.filter_map(|data| serde_json::from_str(data).ok()).collect();
    match api {
        Api::Messages => joined_blocks(&events),
        Api::Responses => {
            let last = events.iter().find(|event| event["type"] == "response.completed");
            last.unwrap_or_else(|| panic!("{answer:?}"))["response"]["output"].clone()
        }
        Api::Chat => {
            let mut message = json!({ "role": "assistant" });
            for event in &events {
                for (name, value) in event["choices"][0]["delta"].as_object().into_iter().flatten() {
                    let Value::Array(list) = value else { continue };
                    let known = message.as_object_mut().expect("an object").entry(name).or_insert(json!([]));
                    known.as_array_mut().expect("a list").extend(list.iter().cloned());
                }
            }
            for call in message.get_mut("tool_calls").and_then(Value::as_array_mut).into_iter().flatten() {
                call.as_object_mut().expect("a call").remove("index");
            }
            message
        }
    }
}

fn joined_blocks(events: &[Value]) -> Value {
    let mut blocks: Vec<Value> = Vec::new();
    for event in events {
        match event["type"].as_str() {
            Some("content_block_start") => blocks.push(event["content_block"].clone()),
            Some("content_block_delta") => {
                let block = blocks.last_mut().expect("an open block");
                for name in ["text", "thinking", "signature"] {
                    if let Some(piece) = event["delta"][name].as_str() {
                        block[name] = json!(format!("{}{piece}", block[name].as_str().unwrap_or_default()));
                    }
                }
                if let Some(Value::Array(citations)) = block.get_mut("citations") {
                    citations.extend(event["delta"].get("citation").cloned());
                }
            }
            _ => {}
        }
    }
    json!(blocks)
}

/// A gateway with `redact` at answers; with another built-in plugin that takes no windows, unless the way is that of windows.
pub(super) async fn gateway(api: Api, provider: &FakeProvider, way: Way) -> Gateway {
    let binding = json!({ "points": ["before_response"] });
    let setup = api.setup(provider).builtin("redact", &json!({})).binding_with("redact", 10, &binding);
    let setup = match way {
        Way::Windows => setup,
        Way::Whole | Way::Held => setup.builtin("secrets", &json!({})).binding_with("secrets", 20, &binding),
    };
    let gateway = setup.start().await;
    gateway.wait_until_ready().await;
    gateway
}

pub(super) async fn fetch(api: Api, gateway: &Gateway, way: Way) -> ClientAnswer {
    let request = if way == Way::Whole { api.request_whole(gateway) } else { api.request(gateway) };
    support::send(request).await
}

#[tokio::test]
async fn no_pattern_crosses_from_a_text_into_another_and_no_text_moves() {
    for api in APIS {
        for way in WAYS {
            for pieces in [
                &[Text("Card 4111111111111111"), Text("2 cards found")][..],
                &[Text("I write to ada@example.com"), Call, Text("Next I read.")],
                &[
                    Thought("Card 4111111111111111"),
                    Thought("2 cards found"),
                    Text("ada@"),
                    Text("example.com"),
                ],
                &[Thought("I write to ada@example.com"), Call, Thought("Next I read.")],
            ] {
                let content = provider_content(api, pieces);
                let provider = FakeProvider::always(answered(api, &content, way)).await;
                let gateway = gateway(api, &provider, way).await;
                let answer = fetch(api, &gateway, way).await;
                assert_eq!(
                    read(api, &answer, way),
                    redacted(&content),
                    "{api:?} {way:?} {pieces:?} {answer:?}"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_pattern_in_a_text_that_the_provider_cut_for_a_citation_is_found() {
    for way in WAYS {
        let mut cited = provider::messages::text("Write to ada@");
        cited["citations"] = json!([{ "type": "char_location", "cited_text": "x", "document_index": 0 }]);
        let content = json!([
            cited,
            provider::messages::text("example.com"),
            provider::messages::tool_use("0", "f", &json!({}))
        ]);
        let provider = FakeProvider::always(answered(Api::Messages, &content, way)).await;
        let gateway = gateway(Api::Messages, &provider, way).await;
        let answer = fetch(Api::Messages, &gateway, way).await;
        let blocks = read(Api::Messages, &answer, way);
        assert_eq!(
            (&blocks[0]["text"], &blocks[1]),
            (&json!("Write to [EMAIL]"), &content[2]),
            "{way:?} {answer:?}"
        );
        assert_eq!(blocks.as_array().map(Vec::len), Some(2), "{way:?} {answer:?}");
    }
}

#[tokio::test]
async fn a_pattern_in_a_text_part_that_a_stream_was_cut_in_is_found() {
    let part = |text: &str| json!({ "content": [{ "type": "text", "text": text, "citations": null }] });
    let deltas = [part("Card 4111 1111 "), part("1111 1111"), part(" is mine")];
    let chunks = deltas.iter().map(|delta| chunk(0, delta, None));
    let act = ProviderAct::stream(&chunks.chain([chunk(0, &json!({}), Some("stop"))]).collect::<Vec<_>>());
    let provider = FakeProvider::always(act).await;
    let gateway = gateway(Api::Chat, &provider, Way::Held).await;
    let answer = fetch(Api::Chat, &gateway, Way::Held).await;
    let read = read(Api::Chat, &answer, Way::Held);
    assert_eq!(
        read["content"],
        json!([{ "type": "text", "text": "Card [CARD] is mine", "citations": null }]),
        "{answer:?}"
    );
}

#[tokio::test]
async fn the_message_of_a_blocked_part_follows_the_text_that_went_out_in_windows() {
    for api in [Api::Messages, Api::Responses] {
        let pieces = [Text("a text that goes out word by word, and on and on"), Call, Text("BOMB")];
        let provider =
            FakeProvider::always(answered(api, &provider_content(api, &pieces), Way::Windows)).await;
        let plugin = FakePlugin::named("judge").only(&[ANSWER]).in_windows().at_with(ANSWER, |seen| {
            match &seen.payload {
                Payload::BeforeResponse(answer) if answer.content == "BOMB" => {
                    Act::cancel("POLICY", "Not that.")
                }
                _ => Act::pass(),
            }
        });
        let plugin = plugin.start().await;
        let gateway = api.setup(&provider).plugin(&plugin).binding("judge", 10).start().await;
        gateway.wait_until_ready().await;
        let got = api.got(&gateway).await;
        assert_eq!(
            got.text, "a text that goes out word by word, and on and on\nNot that.",
            "{api:?} {got:?}"
        );
        assert!(!got.all.contains("BOMB"), "{api:?} {got:?}");
    }
}

/// Pseudorandom pieces.
fn random_pieces(seed: &mut u64) -> Vec<Piece> {
    let mut below = |limit: usize| {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(*seed >> 33).expect("31 bits") % limit
    };
    (0..1 + below(6))
        .map(|_| match (below(5), TEXTS[below(TEXTS.len())].0) {
            (0, _) => Call,
            (1, thought) => Thought(thought),
            (_, text) => Text(text),
        })
        .collect()
}

#[tokio::test]
async fn a_redactor_makes_of_an_answer_what_it_makes_of_each_part() {
    for api in APIS {
        for way in WAYS {
            let mut seed = 42;
            let answers: Vec<_> = (0..24).map(|_| provider_content(api, &random_pieces(&mut seed))).collect();
            let next = std::sync::atomic::AtomicUsize::new(0);
            let scripted = answers.clone();
            let provider = FakeProvider::start(move |_| {
                let at = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                answered(api, &scripted[at % scripted.len()], way)
            });
            let provider = provider.await;
            let gateway = gateway(api, &provider, way).await;
            for content in &answers {
                let answer = fetch(api, &gateway, way).await;
                assert_eq!(read(api, &answer, way), redacted(content), "{api:?} {way:?} {answer:?}");
            }
        }
    }
}

#[tokio::test]
async fn each_part_is_a_question_and_the_usage_is_in_the_first_one() {
    for api in APIS {
        let pieces = [Thought("1"), Text("a"), Call, Thought("2"), Thought("3"), Text("b")];
        let provider = FakeProvider::always(answered(api, &provider_content(api, &pieces), Way::Whole)).await;
        let plugin = FakePlugin::named("judge").only(&[ANSWER]).start().await;
        let gateway = api.setup(&provider).plugin(&plugin).binding("judge", 10).start().await;
        gateway.wait_until_ready().await;
        fetch(api, &gateway, Way::Whole).await;
        let mut seen: Vec<_> = plugin
            .seen()
            .into_iter()
            .map(|seen| {
                let Payload::BeforeResponse(answer) = seen.payload else { panic!("an answer") };
                let is_part = seen.call.context.unwrap_or_default().part;
                (answer.content, answer.reasoning.unwrap_or_default(), is_part, answer.token_usage.is_some())
            })
            .collect();
        seen.sort_by(|one, other| one.1.cmp(&other.1));
        let part =
            |text: &str, thought: &str, is_main: bool| (text.into(), thought.into(), !is_main, is_main);
        assert_eq!(seen, [part("a", "1", true), part("b", "2", false), part("", "3", false)], "{api:?}");
    }
}

#[tokio::test]
async fn a_part_that_is_blocked_blocks_the_answer_and_what_plugins_add_counts_in_the_first_part() {
    for api in APIS {
        let pieces = [Thought("1"), Text("a"), Thought("2"), Text("b"), Thought("3")];
        let content = provider_content(api, &pieces);
        for is_blocked in [false, true] {
            let provider = FakeProvider::always(answered(api, &content, Way::Whole)).await;
            let plugin = FakePlugin::named("judge").only(&[ANSWER]).at_with(ANSWER, move |seen| {
                let Payload::BeforeResponse(answer) = &seen.payload else { return Act::pass() };
                match answer.content.as_str() {
                    "b" if is_blocked => Act::cancel("POLICY", "Not that."),
                    text => Act::patch(BeforeResponsePatch {
                        content: Some(format!("{text}!")),
                        ..BeforeResponsePatch::default()
                    }),
                }
            });
            let plugin = plugin.start().await;
            let gateway = api.setup(&provider).plugin(&plugin).binding("judge", 10).start().await;
            gateway.wait_until_ready().await;
            let answer = fetch(api, &gateway, Way::Whole).await;
            let read = read(api, &answer, Way::Whole).to_string();
            if is_blocked {
                assert!(read.contains("Not that.") && !read.contains("\"a\""), "{api:?} {read}");
            } else {
                assert!(read.contains("\"a!\"") && read.contains("\"b!\""), "{api:?} {read}");
                assert_eq!(read.matches('!').count(), 2, "{api:?} {read}");
            }
        }
    }
}

#[tokio::test]
async fn a_thought_in_front_of_a_text_that_goes_out_in_windows_is_judged_before_it_goes_out() {
    const POINT: ExtensionPoint = ExtensionPoint::BeforeResponse;
    for api in [Api::Messages, Api::Responses] {
        let pieces =
            [Thought("1"), Thought("BOMB"), Text("a text that goes out word by word, and on and on")];
        let provider =
            FakeProvider::always(answered(api, &provider_content(api, &pieces), Way::Windows)).await;
        let plugin =
            FakePlugin::named("judge").only(&[POINT]).in_windows().at_with(POINT, |seen| {
                match &seen.payload {
                    Payload::BeforeResponse(answer) if answer.reasoning.as_deref() == Some("BOMB") => {
                        Act::cancel("POLICY", "Not that.")
                    }
                    _ => Act::pass(),
                }
            });
        let plugin = plugin.start().await;
        let gateway = api.setup(&provider).plugin(&plugin).binding("judge", 10).start().await;
        gateway.wait_until_ready().await;
        let answer = fetch(api, &gateway, Way::Windows).await;
        assert!(answer.text.contains("Not that."), "{api:?} {answer:?}");
        assert!(!answer.text.contains("BOMB") && !answer.text.contains("word by word"), "{api:?} {answer:?}");
    }
}

#[tokio::test]
async fn each_part_of_each_choice_takes_back_its_own_change_beside_a_refused_call() {
    let part = |text: &str| json!({ "type": "text", "text": text });
    let call = |name: &str| json!({ "id": name, "type": "function", "function": { "name": name, "arguments": "{}" } });
    let choice = |index: usize, texts: [&str; 2], calls: Value| {
        let message = json!({ "role": "assistant", "content": texts.map(part), "tool_calls": calls });
        json!({ "index": index, "message": message, "finish_reason": "tool_calls" })
    };
    let choices = json!([
        choice(0, ["Card 4111111111111111", "2 cards found"], json!([call("good")])),
        choice(1, ["Next I read.", "I write to ada@example.com"], json!([call("bad"), call("good")])),
    ]);
    let provider = FakeProvider::always(ProviderAct::json(&provider::completion(&choices))).await;
    let binding = json!({ "points": ["before_response"] });
    let deny = json!({ "default": "allow", "rules": [{ "name": "no", "tools": ["bad"], "action": "deny" }] });
    let setup = Api::Chat.setup(&provider).builtin("redact", &json!({})).binding_with("redact", 10, &binding);
    let setup = setup.builtin("tool-policy", &deny).binding("tool-policy", 20);
    let gateway = setup.start().await;
    let mut body = support::ask(&json!([support::user("x")]));
    body["n"] = json!(2);
    let answer = support::chat(&gateway, &body).await;
    let message = |index: usize| answer.json()["choices"][index]["message"].take();
    assert_eq!(message(0)["content"], json!([part("Card [CARD]"), part("2 cards found")]), "{answer:?}");
    let content = message(1)["content"].take();
    assert_eq!(content[0], part("Next I read."), "{answer:?}");
    assert_eq!(content[1], part("I write to [EMAIL]"), "{answer:?}");
    let note = content[2]["text"].as_str().unwrap_or_default();
    assert!(note.starts_with("Tool call bad was refused: "), "{answer:?}");
    assert_eq!(message(1)["tool_calls"], json!([call("good")]), "{answer:?}");
}
