use super::*;

#[test]
fn texts_and_thoughts_with_the_same_place_are_shown_together() {
    let mut parts = AnswerParts::default();
    assert_eq!(
        parts.to_judge().expect("one part"),
        [AnswerPart { place: Some(0), text: String::new(), thought: None }]
    );
    assert_eq!(parts.push_text("", false), None);
    for text in ["a", "b"] {
        parts.push_text(text, false);
    }
    for thought in ["c", "d", "e"] {
        parts.push_thought(thought);
    }
    let usage = Some(hookgate_proto::types::v1::TokenUsage { input: 1, output: 2 });
    let choice = BeforeResponsePayload {
        model: Some("m".to_owned()),
        token_usage: usage,
        ..BeforeResponsePayload::default()
    };
    let shown: Vec<_> =
        parts.to_judge().expect("three parts").into_iter().map(|part| part.payload(&choice)).collect();
    let expected = |text: &str, thought: &str, token_usage| BeforeResponsePayload {
        content: text.to_owned(),
        reasoning: Some(thought.to_owned()),
        token_usage,
        ..choice.clone()
    };
    assert_eq!(shown, [expected("a", "c", usage), expected("b", "d", None), expected("", "e", None)]);
}

#[test]
fn plugins_are_asked_about_at_most_1024_texts_and_no_more_are_kept() {
    let mut parts = AnswerParts::default();
    (0..1024).for_each(|_| assert!(parts.push_text("a", false).is_some()));
    assert_eq!(parts.to_judge().expect("just enough").len(), 1024);
    (0..9).for_each(|_| {
        parts.push_text("a", false);
    });
    let error = parts.to_judge().expect_err("too many");
    assert_eq!(error.to_string(), "the answer has 1025 texts or thoughts, more than 1024");
    assert_eq!((parts.texts.len(), parts.push_text("a", false)), (1025, None));
}

#[test]
fn the_first_piece_takes_a_changed_text_and_the_others_become_empty() {
    let mut parts = AnswerParts::default();
    let pieces =
        [("a", false), ("b", true), ("c", false)].map(|(text, goes_on)| parts.push_text(text, goes_on));
    assert_eq!(parts.texts, ["ab", "c"]);
    let changed = |edits: &[Option<String>]| {
        pieces.map(|piece| piece.and_then(|piece| piece.changed(&parts.texts, edits)).map(str::to_owned))
    };
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(changed(&[text("x")]), [text("x"), text(""), None]);
    assert_eq!(changed(&[None, text("x")]), [None, None, text("x")]);
    assert_eq!(changed(&[text("ab"), text("c")]), [None, None, None], "the same text is no change");
}

#[test]
fn a_text_that_goes_on_behind_nothing_is_a_text() {
    let mut parts = AnswerParts::default();
    let piece = parts.push_text("a", true).expect("a piece");
    let edits = [Some("x".to_owned())];
    assert_eq!((piece.changed(&parts.texts, &edits), parts.texts.len()), (Some("x"), 1));
}

#[test]
fn each_text_of_citations_is_a_part_that_counts_nothing() {
    let mut parts = AnswerParts::default();
    parts.push_text("a", false);
    for citation in [r#"{"title":"T","url":"u"}"#, r#"{"title":"T","url":"v","type":"x"}"#] {
        parts.cited.add(citation, &["type", "title", "url"]);
    }
    let usage = Some(hookgate_proto::types::v1::TokenUsage { input: 1, output: 2 });
    let choice = BeforeResponsePayload { token_usage: usage, ..BeforeResponsePayload::default() };
    let parts = parts.to_judge().expect("four parts");
    let shown: Vec<_> = parts.into_iter().map(|part| part.payload(&choice)).collect();
    let texts: Vec<_> = shown.iter().map(|part| part.content.as_str()).collect();
    assert_eq!(texts, ["a", "T", "u", "v"]);
    assert!(shown[1..].iter().all(|part| part.token_usage.is_none() && part.reasoning.is_none()));
}
