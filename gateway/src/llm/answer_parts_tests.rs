use super::*;

#[test]
fn texts_and_thoughts_with_the_same_place_are_shown_together() {
    let mut parts = AnswerParts::default();
    assert_eq!((parts.count(), parts.payload(0)), (1, BeforeResponsePayload::default()));
    assert_eq!(parts.push_text("", false), None);
    for text in ["a", "b"] {
        parts.push_text(text, false);
    }
    for thought in ["c", "d", "e"] {
        parts.push_thought(thought);
    }
    let seen = |part| {
        let BeforeResponsePayload { content, reasoning, .. } = parts.payload(part);
        (content, reasoning)
    };
    let shown = |text: &str, thought: &str| (text.to_owned(), Some(thought.to_owned()));
    assert_eq!(parts.count(), 3);
    assert_eq!([seen(0), seen(1), seen(2)], [shown("a", "c"), shown("b", "d"), shown("", "e")]);
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
