//! What holds for every answer whose text goes out while the rest still comes.

use bytes::Bytes;
use proptest::{prelude::*, sample::Index};
use serde_json::Value;

use super::{
    ResponseAssembly, ResponseStream, ResponsesAnswer, StreamHeartbeat,
    stream_property_tests::{answer, assemble, many_cases, random_events, stream, taken, text, value},
};
use crate::llm::{
    format::{ChoiceEdit, Echoes, FormatAnswer, FormatAssembly, FormatHeartbeat, FormatTextStream},
    stream_test_support::{Cuts, TextClient},
};

type Client = TextClient<ResponseStream>;

/// What a client reads that gets the rest of an answer. `None` if it isn't that of a stream that has begun.
fn finished(client: Client, answer: &Bytes, cuts: &mut Cuts<'_>) -> Option<Value> {
    let events = client.finish(answer)?;
    check_places(&events);
    let assembly = assemble(&events.concat(), cuts);
    assert!(assembly.is_complete());
    Some(value(&assembly.body()))
}

/// Checks that events are numbered, that items follow each other, and that an item has one id.
fn check_places(events: &[Bytes]) {
    let data = events.iter().filter_map(|event| str::from_utf8(event).expect("text").split_once("\ndata: "));
    let mut items: Vec<Value> = Vec::new();
    for (number, (_, data)) in data.enumerate() {
        let data: Value = serde_json::from_str(data).expect("JSON");
        assert_eq!(data["sequence_number"], number);
        match data["type"].as_str().expect("a type") {
            "response.output_item.added" => {
                assert_eq!(data["output_index"], items.len());
                items.push(data["item"]["id"].clone());
            }
            "response.output_item.done" => assert_eq!(Some(&data["item"]["id"]), items.last()),
            _ if data["item_id"].is_string() => {
                assert_eq!(data["output_index"], items.len() - 1);
                assert_eq!(Some(&data["item_id"]), items.last());
            }
            _ => {}
        }
    }
}

/// A client that has got the first text of an answer as it came, and the answer. With `is_guarded`, what no plugin saw is withheld
/// from it.
fn streamed(answer: &Value, is_guarded: bool, cuts: &mut Cuts<'_>) -> (Client, Bytes) {
    let mut assembly = ResponseAssembly::new(1 << 20);
    let mut heartbeat = StreamHeartbeat::new(&Echoes::default(), is_guarded);
    let mut client = Client::new();
    for event in random_events(answer, cuts).iter().map(taken) {
        assembly.push(&event).expect("an event of an answer");
        heartbeat.push(&event);
        if cuts.next(2) == 0 {
            let text = assembly.first_text();
            if text.is_none() {
                client.events.push(heartbeat.beat());
            }
            let so_far = || rendered(assembly.body(), ChoiceEdit::default(), is_guarded);
            client.read(text, cuts, || ResponseStream::begin(&so_far(), &heartbeat));
        }
    }
    (client, assembly.body())
}

fn rendered(body: Bytes, edit: ChoiceEdit, is_guarded: bool) -> Bytes {
    ResponsesAnswer::parse(body, 1).expect("an answer").render(&[edit], false, is_guarded).body
}

/// The items of an answer that aren't reasoning, in any order.
fn said(answer: &Value) -> Vec<Value> {
    let items = answer["output"].as_array().expect("a list").iter();
    let mut said: Vec<Value> = items.filter(|item| item["type"] != "reasoning").cloned().collect();
    said.sort_by_key(Value::to_string);
    said
}

/// Gives the message with the first text the id of the one that was the first. Returns whether it had it.
fn set_first_id(changed: &mut Value, answer: &Value) -> bool {
    let mut items = answer["output"].as_array().expect("a list").iter();
    let id = &items.find(|item| item["type"] != "reasoning").expect("a message")["id"];
    let mut items = changed["output"].as_array_mut().expect("a list").iter_mut();
    let first = items.find(|item| item["content"][0]["type"] == "output_text").expect("a text");
    std::mem::replace(&mut first["id"], id.clone()) == *id
}

proptest! {
    #![proptest_config(many_cases())]

    #[test]
    fn an_answer_whose_text_goes_out_before_is_the_same(
        answer in answer(), cuts in prop::collection::vec(any::<Index>(), 1..16),
    ) {
        let mut cuts = Cuts::new(&cuts);
        let (client, whole) = streamed(&answer, false, &mut cuts);
        if client.has_begun() {
            prop_assert_eq!(finished(client, &whole, &mut cuts), Some(answer));
        }
    }

    #[test]
    fn plugins_may_change_what_comes_behind_the_text_that_was_sent(
        answer in answer(), cuts in prop::collection::vec(any::<Index>(), 1..16), other in text(), is_replaced in any::<bool>(),
    ) {
        let mut cuts = Cuts::new(&cuts);
        let (client, whole) = streamed(&answer, true, &mut cuts);
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
        let changed = rendered(whole, edit, true);
        let mut expected = value(&assemble(&stream(&changed), &mut cuts).body());
        let is_same = set_first_id(&mut expected, &answer);
        let read = finished(client, &changed, &mut cuts).expect("the text goes on");
        if is_same {
            prop_assert_eq!(read, expected);
        } else {
            prop_assert_eq!(said(&read), said(&expected));
        }
    }

    #[test]
    fn what_was_sent_is_never_taken_back(
        answer in answer(), cuts in prop::collection::vec(any::<Index>(), 1..16), other in text(), is_replaced in any::<bool>(),
        expects_json in any::<bool>(),
    ) {
        let mut cuts = Cuts::new(&cuts);
        let (client, whole) = streamed(&answer, false, &mut cuts);
        let is_refused = is_replaced && expects_json;
        if !client.has_begun() || (other.starts_with(&client.text) && !is_refused) {
            return Ok(());
        }
        // An emptied text goes, and the next one may begin as it did.
        prop_assume!(is_replaced || !other.is_empty());
        let edit = if is_replaced {
            ChoiceEdit::replaced(other)
        } else {
            ChoiceEdit { texts: vec![Some(other)], ..ChoiceEdit::default() }
        };
        let changed = ResponsesAnswer::parse(whole, 1).expect("an answer").render(&[edit], expects_json, false).body;
        prop_assert_eq!(finished(client, &changed, &mut cuts), None);
    }
}
