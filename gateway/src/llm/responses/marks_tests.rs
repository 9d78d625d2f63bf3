use super::*;

fn user(content: &str) -> String {
    format!(r#"{{"role":"user","content":{content}}}"#)
}

#[test]
fn a_unit_is_the_same_wherever_the_marks_are() {
    let mark = r#""prompt_cache_breakpoint":{"mode":"explicit"}"#;
    let plain = user(r#""h\u0069""#);
    let same = [
        plain.clone(),
        user(r#"[{"type":"input_text","text":"h\u0069"}]"#),
        user(r#"[ {"text" : "h\u0069", "type":"input\u005ftext"} ]"#),
        user(&format!(r#"[{{"type":"input_text","text":"h\u0069",{mark}}}]"#)),
        user(r#"[{"type":"input_text","text":"h\u0069","prompt_cache_breakpoint":null}]"#),
        r#"{"id":"msg_1","role":"user","content":"h\u0069","status":"completed"}"#.to_owned(),
        r#"{"role":"user","status":null,"content":"h\u0069"}"#.to_owned(),
    ];
    for item in same {
        assert_eq!(unmarked(&item), plain, "{item}");
    }
    let image = r#"{"type":"input_image","image_url":"u"}"#;
    let marked = format!(r#"[{{"type":"input_text",{mark},"text":"a"}}, {image}]"#);
    let without = format!(r#"[{{"type":"input_text","text":"a"}}, {image}]"#);
    assert_eq!(unmarked(&user(&marked)), user(&without));
    for form in ["function_call_output", "custom_tool_call_output"] {
        let result = |output: &str| {
            format!(r#"{{"type":"{form}","id":"1","call_id":"c","status":"failed","output":{output}}}"#)
        };
        assert_eq!(unmarked(&result(&marked)), result(&without));
        let marked = format!(r#"[{{"type":"input_text","text":"a",{mark}}}]"#);
        assert_eq!(unmarked(&result(&marked)), result(r#""a""#));
    }
}

#[test]
fn what_no_agent_changes_stays() {
    let kept = [
        user("[]"),
        user(r#"[{"type":"output_text","text":"a"}]"#),
        user(r#"[{"type":"input_text","text":"a","x":1}]"#),
        user(r#"[{"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]"#),
        r#"{"role":"user","type":"message"}"#.to_owned(),
        r#"{"type":"shell_call_output","id":"1","output":[{"prompt_cache_breakpoint":{}}]}"#.to_owned(),
        r#"{"type":"apply_patch_call_output","id":"1","status":"failed","output":"a"}"#.to_owned(),
        "1".to_owned(),
    ];
    for item in kept {
        assert!(matches!(unmarked(&item), Cow::Borrowed(same) if same == item), "{item}");
    }
}

#[test]
fn what_replaces_a_unit_has_its_last_mark() {
    let marked = user(
        r#"[{"type":"input_text","text":"a","prompt_cache_breakpoint":{"n":1}},{"type":"input_image","prompt_cache_breakpoint":{"n":2}},{"type":"x"}]"#,
    );
    let part = r#"{"type":"input_text","text":"x"}"#;
    let with_mark = r#"{"type":"input_text","text":"x","prompt_cache_breakpoint":{"n":2}}"#;
    let own = user(r#"[{"type":"input_text","text":"x","prompt_cache_breakpoint":{}}]"#);
    let cases = [
        (user(r#""x""#), user(&format!("[{with_mark}]"))),
        (user(&format!("[{part}]")), user(&format!("[{with_mark}]"))),
        (user(&format!("[{part},{part}]")), user(&format!("[{part},{with_mark}]"))),
        (own.clone(), own),
        (user(r#""""#), user(r#""""#)),
        (user("[]"), user("[]")),
        (user("[1]"), user("[1]")),
        (r#"{"role":"user"}"#.to_owned(), r#"{"role":"user"}"#.to_owned()),
        (
            r#"{"type":"function_call_output","output":"x"}"#.to_owned(),
            format!(r#"{{"type":"function_call_output","output":[{with_mark}]}}"#),
        ),
        (
            r#"{"type":"shell_call_output","output":[{}]}"#.to_owned(),
            r#"{"type":"shell_call_output","output":[{}]}"#.to_owned(),
        ),
    ];
    for (item, expected) in cases {
        assert_eq!(with_marks_of(&marked, &item), expected, "{item}");
    }
    for unmarked in [user(r#""a""#), user(r#"[{"type":"input_text","prompt_cache_breakpoint":null}]"#)] {
        assert_eq!(with_marks_of(&unmarked, &user(r#""x""#)), user(r#""x""#));
    }
}
