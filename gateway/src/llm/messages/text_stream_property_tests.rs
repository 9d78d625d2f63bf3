//! What holds for every answer whose text goes out while the rest still comes.

use std::borrow::Cow;

use bytes::Bytes;
use proptest::{prelude::*, sample::Index};
use serde_json::Value;

use super::{
    MessageAssembly, MessageStream, MessagesAnswer, PingHeartbeat,
    stream_property_tests::{answer, assemble, random_events, stream, text, value},
};
use crate::llm::{
    format::{ChoiceEdit, FormatAnswer, FormatAssembly, FormatTextStream},
    sse::SseEvent,
    stream_test_support::{Cuts, TextClient},
};

type Client = TextClient<MessageStream>;

/// What a client reads that gets the rest of an answer. `None` if it isn't that of a stream that has begun.
fn finished(client: Client, answer: &Bytes, cuts: &mut Cuts<'_>) -> Option<Value> {
    let assembly = assemble(&client.finish(answer)?.concat(), cuts);
    assert!(assembly.is_complete());
    Some(value(&assembly.body()))
}

/// A client that has got the first text of an answer as it came, and the answer.
fn streamed(answer: &Value, cuts: &mut Cuts<'_>) -> (Client, Bytes) {
    let mut assembly = MessageAssembly::new(1 << 20);
    let mut client = Client::new();
    for data in random_events(answer, cuts) {
        let name = data["type"].as_str().expect("a type").to_owned();
        assembly.push(&SseEvent { name, data: data.to_string() }).expect("an event of an answer");
        if cuts.next(2) == 0 {
            let begin = || MessageStream::begin(&assembly.body(), &PingHeartbeat);
            client.read(assembly.first_text(), cuts, begin);
        }
    }
    (client, assembly.body())
}

/// An answer whose text blocks have no empty citations, which mean nothing.
fn without_empty_citations(mut answer: Value) -> Value {
    for block in answer["content"].as_array_mut().expect("content") {
        let is_empty = |list: &Value| list.is_null() || *list == Value::Array(vec![]);
        if block["type"] == "text" && block.get("citations").is_some_and(is_empty) {
            block.as_object_mut().expect("an object").remove("citations");
        }
    }
    answer
}

/// The content of an answer behind the thoughts that it begins with.
fn without_thoughts(answer: &Value) -> Vec<Value> {
    let is_thought = |block: &&Value| {
        let kind: Cow<'_, str> = block["type"].as_str().expect("a type").into();
        kind.ends_with("thinking")
    };
    answer["content"].as_array().expect("content").iter().skip_while(is_thought).cloned().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn an_answer_whose_text_goes_out_before_is_the_same(
        answer in answer(), cuts in prop::collection::vec(any::<Index>(), 1..16),
    ) {
        let mut cuts = Cuts::new(&cuts);
        let (client, whole) = streamed(&answer, &mut cuts);
        if client.has_begun() {
            prop_assert_eq!(finished(client, &whole, &mut cuts), Some(answer));
        }
    }

    #[test]
    fn plugins_may_change_what_comes_behind_the_text_that_was_sent(
        answer in answer(), cuts in prop::collection::vec(any::<Index>(), 1..16), other in text(), is_replaced in any::<bool>(),
    ) {
        let mut cuts = Cuts::new(&cuts);
        let (client, whole) = streamed(&answer, &mut cuts);
        if !client.has_begun() {
            return Ok(());
        }
        let edit = if is_replaced {
            ChoiceEdit::replaced(format!("{}\n{other}", client.text))
        } else {
            ChoiceEdit { texts: vec![Some(format!("{}{other}", client.text))], ..ChoiceEdit::default() }
        };
        // An empty text stands nowhere.
        prop_assume!(edit.texts != [Some(String::new())]);
        let changed = MessagesAnswer::parse(whole, 1).expect("an answer").render(&[edit], false, false).body;
        let expected = without_empty_citations(value(&assemble(&stream(&changed), &mut cuts).body()));
        let read = without_empty_citations(finished(client, &changed, &mut cuts).expect("the text goes on"));
        if is_replaced {
            prop_assert_eq!(without_thoughts(&read), without_thoughts(&expected));
            prop_assert_eq!(&read["stop_reason"], &expected["stop_reason"]);
            prop_assert_eq!(&read["stop_details"], &expected["stop_details"]);
        } else {
            prop_assert_eq!(read, expected);
        }
    }

    #[test]
    fn what_was_sent_is_never_taken_back(
        answer in answer(), cuts in prop::collection::vec(any::<Index>(), 1..16), other in text(), is_replaced in any::<bool>(),
    ) {
        let mut cuts = Cuts::new(&cuts);
        let (client, whole) = streamed(&answer, &mut cuts);
        if !client.has_begun() || other.starts_with(&client.text) {
            return Ok(());
        }
        // An emptied text goes, and the next one may begin as it did.
        prop_assume!(is_replaced || !other.is_empty());
        let edit = if is_replaced {
            ChoiceEdit::replaced(other)
        } else {
            ChoiceEdit { texts: vec![Some(other)], ..ChoiceEdit::default() }
        };
        let changed = MessagesAnswer::parse(whole, 1).expect("an answer").render(&[edit], is_replaced, false).body;
        prop_assert_eq!(finished(client, &changed, &mut cuts), None);
    }
}
