use tracing_subscriber::layer::SubscriberExt as _;

use super::*;
use crate::telemetry::value::MAX_VALUE_BYTES;

fn recorded(log: impl FnOnce()) -> Arc<Events> {
    let events = Arc::default();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer(&events)), log);
    events
}

fn all(events: &Events) -> Vec<Arc<Event>> {
    events.read(&mut events.start(), usize::MAX).events
}

fn of_a_call(number: u64) -> Event {
    let (text, ends) = ("\"request_id\":1".to_owned(), vec![("request_id", 14)]);
    Event { id: 0, level: Level::INFO, name: format!("decision.{number}"), owner: None, text, ends }
}

fn of_a_tenant(tenant: &str, number: u64) -> Event {
    Event { owner: Some(tenant.into()), ..of_a_call(number) }
}

fn of_a_plugin(text: usize) -> Event {
    Event {
        id: 0,
        level: Level::INFO,
        name: "plugin.x".into(),
        owner: None,
        text: "x".repeat(text),
        ends: Vec::new(),
    }
}

#[test]
fn lines_with_an_event_are_kept_from_info_on_and_no_others() {
    let events = recorded(|| {
        tracing::info!(event = "plugin.connected", plugin = %"guard", n = 7_u64, steps = "[{}]", "one\nline");
        tracing::debug!(event = "plugin.connected", "too fine");
        tracing::info!("no event");
        tracing::error!(target: "other", event = "plugin.connected", "not ours");
        tracing::error!(event = "config.rejected", "bad");
    });
    let kept = all(&events);
    assert_eq!(
        kept.iter().map(|event| &*event.name).collect::<Vec<_>>(),
        ["plugin.connected", "config.rejected"]
    );
    assert_eq!((kept[0].level, kept[1].level), (Level::INFO, Level::ERROR));
    assert!(kept[0].id < kept[1].id);
    let members: Vec<_> = kept[0].members().collect();
    let line: serde_json::Value = serde_json::from_str(&format!("{{{}}}", kept[0].text)).expect("JSON");
    assert_eq!(members.len(), line.as_object().expect("an object").len());
    assert!(members.contains(&("plugin", "\"plugin\":\"guard\"")) && members.contains(&("n", "\"n\":7")));
    assert_eq!((&line["message"], &line["steps"]), (&"one\nline".into(), &serde_json::json!([{}])));
    assert!(
        kept[0].says("plugin", "guard") && !kept[0].says("plugin", "guar") && !kept[0].says("x", "guard")
    );
}

#[test]
fn a_member_that_is_too_long_is_left_out_and_the_rest_is_there() {
    let long = "\u{1}".repeat(MAX_VALUE_BYTES); // six times as long in JSON
    let kept = all(&recorded(|| {
        tracing::info!(event = "plugin.refused", fits = long, long, plugin = "guard", "why");
    }));
    let line: serde_json::Value = serde_json::from_str(&format!("{{{}}}", kept[0].text)).expect("JSON");
    assert_eq!(
        (&line["event"], &line["plugin"], &line["long"], &line["left_out"]),
        (&"plugin.refused".into(), &"guard".into(), &().into(), &serde_json::json!(["long"]))
    );
}

#[test]
fn calls_push_out_calls_alone_and_what_was_not_read_is_counted() {
    let events = Events::default();
    events.add(of_a_plugin(1));
    let mut place = events.start();
    for number in 0..MAX_KEPT_EVENTS as u64 + 5 {
        events.add(of_a_call(number));
    }
    let first = events.read(&mut place, 2);
    assert_eq!((first.missed, &*first.events[0].name, &*first.events[1].name), (5, "plugin.x", "decision.5"));
    let second = events.read(&mut place, usize::MAX);
    assert_eq!((second.missed, second.events.len()), (0, MAX_KEPT_EVENTS - 1));
    assert!(second.events.is_sorted_by(|one, other| one.id < other.id));
    assert_eq!(place, events.end());
    // After a dropped event something is missing; after a kept event nothing is.
    assert_eq!(events.after(first.events[0].id), (EventCursor([5, 0, 1]), true));
    assert_eq!(events.after(first.events[1].id), (EventCursor([6, 0, 1]), false));
}

#[test]
fn a_tenant_evicts_only_its_own_entries() {
    let events = Events::default();
    let mut place = events.start();
    for number in 0..3 {
        events.add(of_a_tenant("quiet", number));
    }
    for number in 0..MAX_KEPT_EVENTS as u64 * 2 {
        events.add(of_a_tenant("noisy", number));
    }
    events.add(of_a_tenant("quiet", 3));
    let EventBatch { events: kept, missed } = events.read(&mut place, usize::MAX);
    let quiet: Vec<_> = kept.iter().filter(|event| event.owner.as_deref() == Some("quiet")).collect();
    assert_eq!(
        quiet.iter().map(|event| &*event.name).collect::<Vec<_>>(),
        [0, 1, 2, 3].map(|n| format!("decision.{n}"))
    );
    assert_eq!((kept.len(), missed), (MAX_KEPT_EVENTS, MAX_KEPT_EVENTS as u64 + 4));
    assert!(kept.is_sorted_by(|one, other| one.id < other.id));
    assert_eq!((place, events.read(&mut place.clone(), usize::MAX).missed), (events.end(), 0));
    // After the quiet tenant's third event some were dropped, after its last event none.
    assert!(events.after(quiet[2].id).1 && !events.after(quiet[3].id).1);
}

#[test]
fn a_plugin_that_emits_much_evicts_only_its_own_events() {
    let events = recorded(|| {
        tracing::info!(event = "plugin.connected", plugin = "guard", "connected");
        tracing::info!(event = "decision.block", request_id = "r", tenant = "acme", "blocked");
        tracing::info!(event = EMITTED, plugin = "quiet", name = "one", "one");
        for _ in 0..MAX_KEPT_EVENTS * 2 {
            tracing::info!(
                event = EMITTED,
                plugin = "noisy",
                name = "many",
                request_id = "r",
                tenant = "acme",
                "many"
            );
        }
    });
    let kept = all(&events);
    assert_eq!(kept.len(), MAX_KEPT_EVENTS + 2);
    assert_eq!(kept.iter().filter(|event| event.says("plugin", "noisy")).count(), MAX_KEPT_EVENTS - 1);
}

#[test]
fn what_is_kept_is_bounded_in_bytes() {
    let events = Events::default();
    for _ in 0..9 {
        events.add(of_a_plugin(MAX_KEPT_BYTES / 8));
    }
    assert_eq!(all(&events).len(), 8);
}

#[tokio::test]
async fn followers_are_told_and_there_are_only_so_many() {
    let events = Events::default();
    let mut followers: Vec<_> =
        (0..MAX_FOLLOWERS).map(|_| events.follow(None).expect("there is a place")).collect();
    assert!(events.follow(None).is_none());
    events.add(of_a_plugin(1));
    for follower in &mut followers {
        follower.more().await;
    }
    drop(followers);
    assert!(events.follow(None).is_some());
}

#[test]
fn followers_of_one_tenant_leave_seats_for_others() {
    let events = Events::default();
    let noisy: Vec<_> = std::iter::from_fn(|| events.follow(Some("noisy"))).collect();
    assert_eq!(noisy.len(), MAX_FOLLOWERS * 3 / 4);
    assert!(events.follow(Some("quiet")).is_some() && events.follow(None).is_some());
    drop(noisy);
    assert!(events.followers.lock().expect("nobody panicked").tenants.is_empty());
}
