use proptest::prelude::*;

use super::*;

/// The events of a body that comes in pieces, up to an error.
fn decode_pieces<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
    max: usize,
) -> (Vec<SseEvent>, Option<SseError>) {
    let mut decoder = SseDecoder::new(max);
    let mut events = Vec::new();
    for piece in pieces {
        decoder.push(piece);
        loop {
            match decoder.next_event() {
                Ok(Some(event)) => events.push(event),
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(decoder.next_event(), Err(error));
                    return (events, Some(error));
                }
            }
        }
    }
    (events, None)
}

fn decode(body: &str) -> Vec<(String, String)> {
    let (events, error) = decode_pieces([body.as_bytes()], 1 << 10);
    assert_eq!(error, None);
    events.into_iter().map(|event| (event.name, event.data)).collect()
}

fn data(texts: &[&str]) -> Vec<(String, String)> {
    texts.iter().map(|text| (String::new(), (*text).to_owned())).collect()
}

#[test]
fn lines_end_in_cr_lf_or_both() {
    for body in ["data: a\n\ndata: b\n\n", "data: a\r\rdata: b\r\r", "data: a\r\n\r\ndata: b\r\n\r\n"] {
        assert_eq!(decode(body), data(&["a", "b"]), "{body:?}");
    }
    assert_eq!(decode("data: a\n\r\ndata: b\r\n\r"), data(&["a", "b"]));
}

#[test]
fn an_event_is_there_as_soon_as_its_blank_line_is() {
    let mut decoder = SseDecoder::new(100);
    decoder.push(b"data: a\r\n\r");
    assert_eq!(decoder.next_event().unwrap().unwrap().data, "a");
    decoder.push(b"\ndata: b\n");
    assert_eq!(decoder.next_event(), Ok(None));
    decoder.push(b"\n");
    assert_eq!(decoder.next_event().unwrap().unwrap().data, "b");
    assert_eq!(decoder.buffered(), 0);
}

#[test]
fn several_data_lines_are_joined_and_one_space_is_removed() {
    assert_eq!(decode("data:a\ndata:  b \ndata\ndata:\n\n"), data(&["a\n b \n\n"]));
    assert_eq!(decode("data\n\n"), data(&[""]));
}

#[test]
fn the_last_name_of_an_event_counts_for_it_alone() {
    let named = ("error".to_owned(), "a".to_owned());
    assert_eq!(decode("event: x\ndata: a\nevent: error\n\n"), [named]);
    assert_eq!(decode("event: error\n\ndata: a\n\n"), data(&["a"]));
}

#[test]
fn comments_and_other_fields_are_dropped_and_events_without_data_too() {
    assert_eq!(decode(": hi\n\nid: 1\n\nretry: 3\nDATA: x\n data: y\n\n:\ndata: a\nid: 2\n\n"), data(&["a"]));
}

#[test]
fn an_event_that_no_blank_line_ends_is_lost() {
    assert_eq!(decode("data: a\n\ndata: b\n"), data(&["a"]));
    assert_eq!(decode("data: a"), []);
}

#[test]
fn one_byte_order_mark_is_skipped_at_the_beginning() {
    assert_eq!(decode("\u{feff}data: a\n\n"), data(&["a"]));
    assert_eq!(decode("\u{feff}\u{feff}data: a\n\n"), []);
    assert_eq!(decode("data: a\n\n\u{feff}data: b\n\n"), data(&["a"]));
    let (events, _) = decode_pieces("\u{feff}data: a\n\n".as_bytes().chunks(1), 100);
    assert_eq!(events.len(), 1);
}

#[test]
fn an_event_may_have_so_many_bytes_and_no_more() {
    let error = |body: &str, max| decode_pieces([body.as_bytes()], max).1;
    assert_eq!(error("data: a\n\ndata: b\n\n", 8), None);
    assert_eq!(error("data: ab\n\n", 8), Some(SseError::TooLarge));
    assert_eq!(error("data: abc", 8), Some(SseError::TooLarge));
    assert_eq!(error(":234\n:234\n\n", 10), None);
    assert_eq!(error(":234\n:2345\n\n", 10), Some(SseError::TooLarge));
    assert_eq!(error(&": keep alive\n\n".repeat(100), 20), None);
}

#[test]
fn names_and_data_are_utf8_and_other_lines_need_not_be() {
    for body in [&b"data: \xff\n\n"[..], b"event: \xc3\n\n"] {
        assert_eq!(decode_pieces([body], 100), (vec![], Some(SseError::NotText)));
    }
    let (events, error) = decode_pieces([&b":\xff\n\xff: a\ndata: a\n\n"[..]], 100);
    assert_eq!((events.len(), error), (1, None));
    let (events, _) = decode_pieces("data: é€\n\n".as_bytes().chunks(1), 100);
    assert_eq!(events[0].data, "é€");
}

#[test]
fn a_long_line_in_small_pieces_is_looked_through_once() {
    let body = format!("data: {}\n\n", "x".repeat(1 << 20));
    let (events, error) = decode_pieces(body.as_bytes().chunks(3), 2 << 20);
    assert_eq!((events.len(), error), (1, None));
}

/// What a body's events are, read from the whole of its text.
fn reference(body: &str) -> Vec<SseEvent> {
    let body = body.strip_prefix('\u{feff}').unwrap_or(body).replace("\r\n", "\n").replace('\r', "\n");
    let mut lines: Vec<&str> = body.split('\n').collect();
    lines.pop(); // no line end follows
    let mut events = Vec::new();
    let (mut name, mut data) = (String::new(), Vec::new());
    for line in lines {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "" if line.is_empty() => {
                if !data.is_empty() {
                    events.push(SseEvent { name: name.clone(), data: data.join("\n") });
                }
                name.clear();
                data.clear();
            }
            "data" => data.push(value),
            "event" => value.clone_into(&mut name),
            _ => {}
        }
    }
    events
}

fn body() -> impl Strategy<Value = String> {
    let token = prop::sample::select(vec![
        "data", "data: ", "event: ", "event", "id: 1", ":", " ", "a", "é", "\u{2028}", "\u{feff}", "\r",
        "\n", "\r\n", "\n\n", "\r\r",
    ]);
    prop::collection::vec(token, 0..24).prop_map(|tokens| tokens.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn cuts_change_nothing_and_the_events_are_those_of_the_whole_text(
        body in body(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6), max in 1_usize..40,
    ) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(body.len() + 1)).collect();
        cuts.sort_unstable();
        let ends = cuts.iter().copied().chain([body.len()]);
        let starts = [0].into_iter().chain(cuts.iter().copied());
        let pieces: Vec<&[u8]> = starts.zip(ends).map(|(start, end)| &body.as_bytes()[start..end]).collect();
        prop_assert_eq!(decode_pieces(pieces.iter().copied(), usize::MAX), (reference(&body), None));
        let small = decode_pieces([body.as_bytes()], max);
        prop_assert_eq!(decode_pieces(pieces, max), small.clone());
        prop_assert_eq!(decode_pieces(body.as_bytes().chunks(1), max), small);
    }

    #[test]
    fn any_bytes_are_read_alike_in_any_pieces(
        bytes in prop::collection::vec(prop::sample::select(b"data: event\r\n\n\xff\xc3\xa9".to_vec()), 0..48),
        size in 1_usize..8,
    ) {
        prop_assert_eq!(decode_pieces(bytes.chunks(size), 30), decode_pieces([&bytes[..]], 30));
    }
}
