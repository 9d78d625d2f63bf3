//! The check of a plugin that offers windows: what goes out of an answer doesn't depend on where it is cut.

use hookgate_proto::{
    ConsumedError, WindowedText,
    plugin::v1::{BeforeResponseResponse, Call, before_response_response::Verdict as ResponseVerdict},
    types::v1::BeforeResponsePayload,
};
use prost::Message as _;
use uuid::Uuid;

use crate::conformance::{
    check::{CheckVerdict, Fault},
    sample::SampleCall,
    session::Session,
};
use hookgate::{
    core::{call_site::CallSite, point::Point},
    invoke::BeforeResponse,
    upstream::{Rpc, TrialConnection},
};

/// In how many ways the text is cut.
const CUTS: usize = 500;
/// How many windows an answer has at most.
const MAX_WINDOWS: usize = 8;

/// What plugins may look for: addresses, numbers, keys, words, lines, and characters of several bytes. Put together here, so that
/// no scanner of sources finds a key.
const TEXT: &str = "Write to ada.lovelace@example.com or call +1 202 555 0123.\n\n| é | 日本語 | 👩‍👩‍👧 |\nCard 4111 1111 1111 1111, \
                    IBAN DE89 3704 0044 0532 0130 00. password = correct-horse-7 and token: abcdef123456.\n```rust\nfn main() {}\n```\n\
                    See https://ada:secret7@db.example.com/x?a=1#b, {\"a\": [1, 2.5e3]}, 550e8400-e29b-41d4-a716-446655440000.";

/// What goes out of an answer, and where the plugin cancelled it.
#[derive(Debug, Clone, Default, PartialEq)]
struct JudgedAnswer {
    text: String,
    cancel: Option<String>,
}

/// An answer is cut in many ways. All windows are consumed as section 2 says, and each time the same goes out.
pub(super) async fn windows(session: &mut Session) -> CheckVerdict {
    let site = CallSite::Point(Point::BeforeResponse);
    let offer = session.manifest.as_ref().and_then(|manifest| manifest.offers_at(&site));
    if !offer.is_some_and(|offer| offer.windows) || !session.sites.contains(&site) {
        return Ok(());
    }
    let connection = session.connection()?;
    let mut random = 1;
    let whole = answer(session, &connection, &[TEXT]).await?;
    for _ in 0..CUTS {
        let pieces = cut(TEXT, &mut random);
        let shown = answer(session, &connection, &pieces).await?;
        compare(&whole, &shown, &pieces)?;
    }
    Ok(())
}

/// Sends an answer through the plugin, as a gateway does while a model writes it in these pieces.
async fn answer(
    session: &Session,
    connection: &TrialConnection,
    pieces: &[&str],
) -> Result<JudgedAnswer, Fault> {
    let request_id = Uuid::now_v7().to_string();
    let (mut shown, mut text) = (JudgedAnswer::default(), WindowedText::default());
    for (place, piece) in pieces.iter().enumerate() {
        text.grow(piece, place + 1 == pieces.len());
        let mut call = session.call(&session.digest(), session.timeout);
        call.context.get_or_insert_default().request_id.clone_from(&request_id);
        let call = Call { window: Some(text.window().clone()), ..call };
        let reply = ask(session, connection, call, text.content()).await?;
        if let Some(ResponseVerdict::Cancel(cancel)) = reply.verdict {
            shown.cancel = Some(cancel.code);
            return Ok(shown);
        }
        let consumed = text.consume(reply.consumed).map_err(consumed_fault)?;
        let replaced = reply.modify.and_then(|patch| patch.content);
        shown.text.push_str(&replaced.unwrap_or(consumed));
    }
    Ok(shown)
}

async fn ask(
    session: &Session,
    connection: &TrialConnection,
    call: Call,
    content: &str,
) -> Result<BeforeResponseResponse, Fault> {
    let payload = BeforeResponsePayload { content: content.to_owned(), ..Default::default() };
    let sample = SampleCall::with_payload::<BeforeResponse>(payload);
    let message = sample.request(&call, session.reads(&sample.site));
    let reply = connection.call(Rpc::at(&sample.site), &message, session.timeout).await;
    let reply = session.judged(&sample, reply).map_err(|fault| fault.after("a window of an answer"))?;
    Ok(BeforeResponseResponse::decode(reply).expect("the reply was read before"))
}

fn consumed_fault(error: ConsumedError) -> Fault {
    match error {
        ConsumedError::TooMany { consumed, characters } => Fault::new(
            "`consumed` of at most the window's characters",
            format!("`consumed: {consumed}` for a window of {characters} characters"),
            "count the Unicode code points of `content`, not bytes or UTF-16 units, and not those of `before`",
        ),
        ConsumedError::NotAll { consumed, characters } => Fault::new(
            "all of the last window consumed",
            format!("`consumed: {consumed}` for a last window of {characters} characters"),
            "where `window.last` is set, decide about all of `content`",
        ),
        ConsumedError::RestTooLarge { bytes, .. } => Fault::new(
            "a rest of at most 64 KiB",
            format!("a rest of {bytes} bytes"),
            "keep back only what more text may change",
        ),
    }
}

fn compare(whole: &JudgedAnswer, shown: &JudgedAnswer, pieces: &[&str]) -> Result<(), Fault> {
    // Where a cancel comes, windows before it may have gone out.
    let is_same = match (&whole.cancel, &shown.cancel) {
        (None, None) => whole.text == shown.text,
        (whole, shown) => whole == shown,
    };
    if is_same {
        return Ok(());
    }
    let at = whole.text.chars().zip(shown.text.chars()).take_while(|(whole, shown)| whole == shown).count();
    let around = |shown: &JudgedAnswer| match &shown.cancel {
        Some(code) => format!("a cancel with the code {code}"),
        None => format!("{:?}", shown.text.chars().skip(at.saturating_sub(8)).take(32).collect::<String>()),
    };
    let ends: Vec<_> = pieces.iter().map(|piece| last(piece, 8)).collect();
    Err(Fault::new(
        format!("the same text wherever the answer is cut, as in one window: {}", around(whole)),
        format!("{}, where the windows' new text ends with {ends:?}", around(shown)),
        "keep back what more text may turn into something else, such as half an address, with `consumed`",
    ))
}

/// Cuts the text between characters into a random number of pieces.
fn cut<'t>(text: &'t str, random: &mut u64) -> Vec<&'t str> {
    let mut next = |limit: usize| {
        // Knuth's linear congruential generator: every run makes the same cuts.
        *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(*random >> 33).unwrap_or(0) % limit
    };
    let count = 1 + next(MAX_WINDOWS - 1);
    let mut ends: Vec<_> = (0..count).map(|_| text.floor_char_boundary(next(text.len() + 1))).collect();
    ends.sort_unstable();
    ends.push(text.len());
    let starts = std::iter::once(0).chain(ends.clone());
    starts.zip(ends).map(|(start, end)| &text[start..end]).collect()
}

/// The last `count` characters.
fn last(text: &str, count: usize) -> &str {
    let start = text.char_indices().rev().nth(count - 1).map_or(0, |(at, _)| at);
    &text[start..]
}

#[cfg(test)]
mod tests {
    use hookgate_proto::{MAX_REST_BYTES, rest_of_window};

    use super::*;

    #[test]
    fn a_text_is_cut_in_many_ways_and_nothing_is_lost() {
        let mut random = 1;
        let cuts: Vec<_> = (0..CUTS).map(|_| cut(TEXT, &mut random)).collect();
        assert!(cuts.iter().all(|pieces| pieces.concat() == TEXT && pieces.len() <= MAX_WINDOWS));
        let mut different = cuts.clone();
        different.sort();
        different.dedup();
        assert!(different.len() > CUTS / 2, "{}", different.len());
    }

    #[test]
    fn each_broken_rule_of_windows_is_named() {
        for (content, is_last, consumed, got) in [
            ("日本", false, Some(6), "`consumed: 6` for a window of 2 characters"),
            ("日本", true, Some(1), "`consumed: 1` for a last window of 2 characters"),
            (&*"x".repeat(MAX_REST_BYTES + 2), false, Some(1), "a rest of 65537 bytes"),
        ] {
            let error = rest_of_window(content, consumed, is_last).unwrap_err();
            assert_eq!(consumed_fault(error).got, got);
        }
        let shown = |text: &str| JudgedAnswer { text: text.into(), cancel: None };
        let fault = compare(&shown("to [EMAIL]."), &shown("to ada@exam.."), &["to ada@exam", "ple.com."])
            .unwrap_err();
        assert!(fault.expected.ends_with("as in one window: \"to [EMAIL].\""), "{fault:?}");
        assert!(fault.got.ends_with("ends with [\"ada@exam\", \"ple.com.\"]"), "{fault:?}");
        let stopped = JudgedAnswer { cancel: Some("STOP".into()), ..shown("") };
        assert!(compare(&stopped, &JudgedAnswer { text: "to".into(), ..stopped.clone() }, &[]).is_ok());
        assert!(compare(&stopped, &shown(""), &[]).is_err());
    }
}
