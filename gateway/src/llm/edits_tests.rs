use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

#[test]
fn without_edits_the_text_is_the_same_memory() {
    let text = Bytes::from_static(b"[1, 2]");
    let edited = Edits::default().apply(&text);
    assert_eq!(edited.as_ptr(), text.as_ptr());
}

#[test]
fn edits_may_come_in_any_order() {
    let mut edits = Edits::default();
    edits.replace(4..5, "E");
    edits.replace(0..1, "A");
    edits.replace(2..2, "+");
    assert_eq!(edits.apply(&Bytes::from_static(b"abcdef")), "Ab+cdEf");
}

#[test]
fn members_change_in_their_places_and_the_rest_keeps_its_bytes() {
    let text = r#"{ "a" : 1 ,  "b":2, "\u0063": 3 }"#;
    let changed = edit_object(text, |object| {
        object.set("c", "4");
        object.set("d", "5");
    });
    assert_eq!(changed, r#"{ "a" : 1 ,  "b":2, "\u0063": 4,"d":5 }"#);
    assert_eq!(edit_object(text, |object| object.remove("a")), r#"{  "b":2, "\u0063": 3 }"#);
    assert_eq!(edit_object(text, |object| object.remove("b")), r#"{ "a" : 1, "\u0063": 3 }"#);
    let emptied = edit_object(text, |object| {
        ["a", "b", "c"].into_iter().for_each(|name| object.remove(name));
        object.set("d", "5");
    });
    assert_eq!(emptied, r#"{"d":5}"#);
    let inside_of_space = edit_object(" \n{\"a\":1}\n", |object| object.remove("a"));
    assert_eq!(inside_of_space, " \n{}\n");
}

#[test]
#[should_panic(expected = "only objects have members to change")]
#[cfg(debug_assertions)]
fn only_objects_are_changed_by_their_members() {
    edit_object("[1]", |object| object.set("a", "1"));
}

/// What happens to each element, in the tests.
fn fates() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(0_u8..3, 0..8)
}

proptest! {
    #[test]
    fn an_array_has_exactly_the_elements_that_were_asked_for(
        fates in fates(), first in 0_usize..3, last in 0_usize..3, space in "[ \n]{0,2}",
    ) {
        let elements: Vec<String> = (0..fates.len()).map(|index| format!("{space}{{\"i\":{index}}}{space}")).collect();
        let root = format!("{space}{{\"x\":[{}]{space}, \"y\":[1]}}", elements.join(","));
        let array = json::members(root.trim()).next().expect("a member").1;
        let mut edit = ArrayEdit::new(&root, array);
        let mut expected: Vec<Value> = (0..first).rev().map(|index| json!(["first", index])).collect();
        for index in 0..first {
            edit.push_front(json!(["first", index]).to_string());
        }
        for (index, fate) in fates.iter().enumerate() {
            match fate {
                0 => expected.push(json!({ "i": index })),
                1 => {
                    edit.replace(index, json!(["new", index]).to_string());
                    expected.push(json!(["new", index]));
                }
                _ => edit.remove(index),
            }
        }
        for index in 0..last {
            edit.push_back(json!(["last", index]).to_string());
            expected.push(json!(["last", index]));
        }
        prop_assert_eq!(edit.is_emptied(), expected.is_empty());
        let mut edits = Edits::default();
        edit.finish(&mut edits);
        let edited: Value = serde_json::from_str(&edits.apply_to_str(&root)).expect("JSON");
        prop_assert_eq!(edited, json!({ "x": expected, "y": [1] }));
    }

    #[test]
    fn an_object_has_exactly_the_members_that_were_asked_for(fates in fates(), added in 0_usize..3) {
        let names: Vec<String> = (0..fates.len()).map(|index| format!("m{index}")).collect();
        let members: Vec<String> = names.iter().map(|name| format!(" \"{name}\" : [\"{name}\"] ")).collect();
        let text = format!("{{{}}}", members.join(","));
        let mut expected = serde_json::Map::new();
        let edited = edit_object(&text, |object| {
            for (name, fate) in names.iter().zip(&fates) {
                match fate {
                    0 => { expected.insert(name.clone(), json!([name])); }
                    1 => {
                        object.set(name, "null");
                        expected.insert(name.clone(), Value::Null);
                    }
                    _ => object.remove(name),
                }
            }
            for index in 0..added {
                object.set(&format!("added {index}"), "1");
                expected.insert(format!("added {index}"), json!(1));
            }
        });
        prop_assert_eq!(serde_json::from_str::<Value>(&edited).expect("JSON"), Value::Object(expected));
    }
}
