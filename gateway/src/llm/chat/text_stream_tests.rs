use proptest::{prelude::*, sample::Index};
use serde_json::{Value, json};

use super::*;
use crate::llm::{
    chat::{
        AnswerAssembly,
        chunks::stream_events,
        stream_property_tests::{answer, assemble, random_chunks, value, without_nulls},
    },
    format::{FormatAssembly as _, FormatHeartbeat as _},
    sse::SseEvent,
    stream_test_support::Cuts,
};

/// The events of a stream whose text goes out as it comes, and the assembly in the end.
struct SentStream {
    assembly: AnswerAssembly,
    stream: Option<ChunkStream>,
    events: Vec<u8>,
}

impl SentStream {
    fn of(chunks: &[Value]) -> Self {
        let assembly = AnswerAssembly::new(1 << 20);
        let mut sent = SentStream { assembly, stream: None, events: Vec::new() };
        for chunk in chunks {
            let event = SseEvent { name: String::new(), data: chunk.to_string() };
            sent.assembly.push(&event).expect("a chunk");
            sent.send_text();
        }
        sent
    }

    fn send_text(&mut self) {
        let Some(text) = self.assembly.first_text() else { return };
        let begun = self.stream.take().unwrap_or_else(|| {
            let heartbeat = CommentHeartbeat::new(&Default::default(), false);
            let (stream, events) = ChunkStream::begin(&self.assembly.body(), &heartbeat);
            self.events.extend(events.concat());
            stream
        });
        let stream = self.stream.insert(begun);
        let piece = text.strip_prefix(stream.sent()).expect("a text only grows").to_owned();
        if !piece.is_empty() {
            self.events.extend(stream.text(&piece));
        }
    }

    /// All events, where `answer` is what is made of the answer in the end.
    fn ended_with(self, answer: &Value) -> Option<Vec<u8>> {
        let answer = Bytes::from(answer.to_string());
        let rest = match &self.stream {
            Some(stream) => stream.rest(&answer, true)?,
            None => stream_events(&answer, true),
        };
        Some([self.events, rest.answer.concat(), rest.end.concat()].concat())
    }
}

/// An answer with its first choice only.
fn with_one_choice(mut answer: Value) -> Value {
    answer["choices"].as_array_mut().expect("choices").truncate(1);
    if let Some(choice) = answer["choices"].get_mut(0) {
        choice["index"] = 0.into();
    }
    answer
}

fn read(events: &[u8], cuts: &mut Cuts<'_>) -> Value {
    without_nulls(value(&assemble(events, cuts).body()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn a_client_gets_the_same_answer_if_its_text_goes_out_as_it_comes(
        answer in answer(), cuts in prop::collection::vec(any::<Index>(), 1..16),
    ) {
        let answer = with_one_choice(answer);
        let mut cuts = Cuts::new(&cuts);
        let sent = SentStream::of(&random_chunks(&answer, &mut cuts));
        let whole = value(&sent.assembly.body());
        let events = sent.ended_with(&whole).expect("the text that was sent");
        prop_assert_eq!(read(&events, &mut cuts), without_nulls(whole));
    }

    #[test]
    fn what_replaces_an_answer_follows_the_text_that_was_sent(
        answer in answer(), taken in any::<Index>(), cuts in prop::collection::vec(any::<Index>(), 1..16),
    ) {
        let mut cuts = Cuts::new(&cuts);
        let chunks = random_chunks(&with_one_choice(answer), &mut cuts);
        let sent = SentStream::of(&chunks[..taken.index(chunks.len() + 1)]);
        let text = sent.stream.as_ref().map_or("", |stream| stream.sent()).to_owned();
        let message = json!({ "role": "assistant", "content": format!("{text}\nNo.") });
        let replaced = json!({ "choices": [{ "index": 0, "message": message, "finish_reason": "stop" }] });
        let events = sent.ended_with(&replaced).expect("it begins with what was sent");
        let read = read(&events, &mut cuts);
        prop_assert_eq!(&read["choices"][0]["message"]["content"], &message["content"]);
        prop_assert_eq!(&read["choices"][0]["finish_reason"], "stop");
        prop_assert!(read["choices"][0]["message"].get("tool_calls").is_none());
    }
}

#[test]
fn another_text_than_the_one_that_was_sent_is_no_rest() {
    let chunk = json!({ "choices": [{ "index": 0, "delta": { "content": "Hello" } }] });
    let ended_with = |text: &str| {
        let message = json!({ "role": "assistant", "content": text });
        let answer = json!({ "choices": [{ "index": 0, "message": message, "finish_reason": "stop" }] });
        SentStream::of(std::slice::from_ref(&chunk)).ended_with(&answer)
    };
    assert!(ended_with("Hello, Ada").is_some());
    assert_eq!(ended_with("Help"), None);
    assert_eq!(ended_with(""), None);
}

#[test]
fn text_behind_a_second_choice_or_in_a_list_is_held() {
    let first_text = |choices: Value| {
        let sent = SentStream::of(&[json!({ "choices": choices })]);
        sent.assembly.first_text().map(|text| text.into_owned())
    };
    let choice = |index: u8, content: Value| json!({ "index": index, "delta": { "content": content } });
    assert_eq!(first_text(json!([choice(0, "a".into())])).as_deref(), Some("a"));
    assert_eq!(first_text(json!([choice(0, "".into())])), None);
    assert_eq!(first_text(json!([choice(0, "a".into()), choice(1, "b".into())])), None);
    assert_eq!(first_text(json!([choice(1, "a".into())])), None);
    assert_eq!(first_text(json!([choice(0, json!([{ "type": "text", "text": "a" }]))])), None);
}
