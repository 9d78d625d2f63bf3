use serde_json::{Value, json};

use super::*;

fn created() -> SseEvent {
    let response = json!({ "id": "resp", "status": "queued", "output": [{ "type": "message" }], "output_text": "x", "usage": {} });
    let data = json!({ "type": "response.created", "sequence_number": 7, "response": response });
    SseEvent { name: String::new(), data: data.to_string() }
}

fn heartbeat() -> StreamHeartbeat {
    StreamHeartbeat::new(&Echoes::default(), false)
}

/// The data of a heartbeat that is an event.
fn data(beat: &Bytes) -> Option<Value> {
    let text = str::from_utf8(beat).expect("text");
    let (_, data) = text.split_once("\ndata: ")?;
    Some(serde_json::from_str(data).expect("JSON"))
}

#[test]
fn heartbeats_are_comments_until_the_answer_begins() {
    let mut heartbeat = heartbeat();
    for (name, data) in
        [("error", "?"), ("", r#"{"type":"response.created","response":{"id":null}}"#), ("", "[DONE]")]
    {
        heartbeat.push(&SseEvent { name: name.to_owned(), data: data.to_owned() });
        assert_eq!(heartbeat.beat(), sse::COMMENT);
    }
    assert_eq!(heartbeat.events(), 0);
}

#[test]
fn the_answer_begins_and_then_is_in_progress_with_every_third_heartbeat() {
    let mut heartbeat = heartbeat();
    heartbeat.push(&created());
    let beats: Vec<_> = (0..8).map(|_| data(&heartbeat.beat())).collect();
    let events: Vec<_> =
        beats.iter().flatten().map(|data| (data["type"].clone(), data["sequence_number"].clone())).collect();
    let (begin, goes_on) = (json!("response.created"), json!("response.in_progress"));
    assert_eq!(
        events,
        [(begin, json!(0)), (goes_on.clone(), json!(1)), (goes_on.clone(), json!(2)), (goes_on, json!(3))]
    );
    assert!([2, 3, 5, 6].iter().all(|place| beats[*place].is_none()));
    assert_eq!(heartbeat.events(), 4);
}

#[test]
fn a_heartbeat_has_nothing_that_the_model_says() {
    let mut heartbeat = heartbeat();
    heartbeat.push(&created());
    let beat = data(&heartbeat.beat()).expect("an event");
    assert_eq!(
        beat["response"],
        json!({ "id": "resp", "status": "in_progress", "usage": null, "output": [] })
    );
}

#[test]
fn a_heartbeat_repeats_the_clients_words() {
    let echoes = Echoes::new(vec![("instructions".to_owned(), Some("\"client\"".to_owned()))]);
    let mut heartbeat = StreamHeartbeat::new(&echoes, true);
    let data_of =
        json!({ "type": "response.created", "response": { "id": "resp", "instructions": "plugin" } });
    heartbeat.push(&SseEvent { name: String::new(), data: data_of.to_string() });
    let beat = data(&heartbeat.beat()).expect("an event");
    assert_eq!(beat["response"]["instructions"], "client");
}

/// An event of this type, with a response with this id.
fn begins(name: &str, id: &Value) -> SseEvent {
    SseEvent { name: String::new(), data: json!({ "type": name, "response": { "id": id } }).to_string() }
}

#[test]
fn the_answer_begins_with_the_first_event_that_has_its_id() {
    for name in ["response.created", "response.queued", "response.in_progress"] {
        let mut heartbeat = heartbeat();
        for event in [
            begins("response.created", &Value::Null),
            begins("response.completed", &json!("end")),
            begins(name, &json!("first")),
            begins("response.created", &json!("second")),
        ] {
            heartbeat.push(&event);
        }
        let beat = data(&heartbeat.beat()).expect("an event");
        assert_eq!((&beat["type"], &beat["response"]["id"]), (&json!("response.created"), &json!("first")));
    }
}

#[test]
fn a_beginning_that_is_too_long_to_repeat_is_not_sent_nor_is_another() {
    let mut heartbeat = heartbeat();
    let long =
        json!({ "type": "response.created", "response": { "id": "resp", "x": "y".repeat(MAX_OPENING) } });
    heartbeat.push(&SseEvent { name: String::new(), data: long.to_string() });
    assert_eq!(heartbeat.beat(), sse::COMMENT);
    heartbeat.push(&begins("response.in_progress", &json!("other")));
    assert_eq!(heartbeat.beat(), sse::COMMENT);
}
