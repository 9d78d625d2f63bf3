//! The check of a plugin that offers windows: what goes out of an answer doesn't depend on where it is cut.

use hookgate_proto::{
    plugin::v1::{
        BeforeResponseResponse, Call, ResponseWindow, before_response_response::Verdict as ResponseVerdict,
    },
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
/// How many characters in front of a window are shown.
const MAX_CHARACTERS_BEFORE: usize = 1024;
/// The largest rest of a window, in bytes.
const MAX_REST_BYTES: usize = 64 << 10;

/// What plugins may look for: addresses, numbers, keys, words, lines, and characters of several bytes. Put together here, so that
/// no scanner of sources finds a key.
const TEXT: &str = "Write to ada.lovelace@example.com or call +1 202 555 0123.\n\n| é | 日本語 | 👩‍👩‍👧 |\nCard 4111 1111 1111 1111, \
                    IBAN DE89 3704 0044 0532 0130 00. password = correct-horse-7 and token: abcdef123456.\n```rust\nfn main() {}\n```\n\
                    See https://ada:secret7@db.example.com/x?a=1#b, {\"a\": [1, 2.5e3]}, 550e8400-e29b-41d4-a716-446655440000.";

/// An answer after the plugin, and where it was cancelled.
#[derive(Debug, Clone, Default, PartialEq)]
struct Shown {
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
async fn answer(session: &Session, connection: &TrialConnection, pieces: &[&str]) -> Result<Shown, Fault> {
    let request_id = Uuid::now_v7().to_string();
    let (mut shown, mut window, mut content) = (Shown::default(), ResponseWindow::default(), String::new());
    for (seq, piece) in pieces.iter().enumerate() {
        content.push_str(piece);
        (window.seq, window.last) = (u32::try_from(seq).unwrap_or(u32::MAX), seq + 1 == pieces.len());
        let mut call = session.call(&session.digest(), session.timeout);
        call.context.get_or_insert_default().request_id.clone_from(&request_id);
        let reply = ask(session, connection, Call { window: Some(window.clone()), ..call }, &content).await?;
        if let Some(ResponseVerdict::Cancel(cancel)) = reply.verdict {
            shown.cancel = Some(cancel.code);
            return Ok(shown);
        }
        let rest = rest(&content, window.last, reply.consumed)?;
        let consumed = content[..content.len() - rest.len()].to_owned();
        content = rest.to_owned();
        window.offset += consumed.chars().count() as u64;
        window.before = last_characters(&(window.before + &consumed)).to_owned();
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

/// What the plugin keeps back of `content`.
fn rest(content: &str, is_last: bool, consumed: Option<u32>) -> Result<&str, Fault> {
    let characters = content.chars().count();
    let consumed = consumed.map_or(characters, |consumed| consumed as usize);
    let rest = content.char_indices().nth(consumed).map_or("", |(at, _)| &content[at..]);
    let fault = |expected: &str, got: String, fix: &str| Err(Fault::new(expected, got, fix));
    if consumed > characters {
        let got = format!("`consumed: {consumed}` for a window of {characters} characters");
        return fault(
            "`consumed` of at most the window's characters",
            got,
            "count the Unicode code points of `content`, not bytes or UTF-16 units, and not those of `before`",
        );
    }
    if is_last && !rest.is_empty() {
        let got = format!("`consumed: {consumed}` for a last window of {characters} characters");
        return fault(
            "all of the last window consumed",
            got,
            "where `window.last` is set, decide about all of `content`",
        );
    }
    if rest.len() > MAX_REST_BYTES {
        let got = format!("a rest of {} bytes", rest.len());
        return fault("a rest of at most 64 KiB", got, "keep back only what more text may change");
    }
    Ok(rest)
}

fn compare(whole: &Shown, shown: &Shown, pieces: &[&str]) -> Result<(), Fault> {
    // Where a cancel comes, windows before it may have gone out.
    let is_same = match (&whole.cancel, &shown.cancel) {
        (None, None) => whole.text == shown.text,
        (whole, shown) => whole == shown,
    };
    if is_same {
        return Ok(());
    }
    let at = whole.text.chars().zip(shown.text.chars()).take_while(|(whole, shown)| whole == shown).count();
    let around = |shown: &Shown| match &shown.cancel {
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

fn last_characters(text: &str) -> &str {
    last(text, MAX_CHARACTERS_BEFORE)
}

/// The last `count` characters.
fn last(text: &str, count: usize) -> &str {
    let start = text.char_indices().rev().nth(count - 1).map_or(0, |(at, _)| at);
    &text[start..]
}

#[cfg(test)]
mod tests {
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
            assert_eq!(rest(content, is_last, consumed).unwrap_err().got, got);
        }
        assert_eq!(rest("日本", false, Some(1)).ok(), Some("本"));
        assert_eq!(rest("日本", true, None).ok(), Some(""));
        let shown = |text: &str| Shown { text: text.into(), cancel: None };
        let fault = compare(&shown("to [EMAIL]."), &shown("to ada@exam.."), &["to ada@exam", "ple.com."])
            .unwrap_err();
        assert!(fault.expected.ends_with("as in one window: \"to [EMAIL].\""), "{fault:?}");
        assert!(fault.got.ends_with("ends with [\"ada@exam\", \"ple.com.\"]"), "{fault:?}");
        let stopped = Shown { cancel: Some("STOP".into()), ..shown("") };
        assert!(compare(&stopped, &Shown { text: "to".into(), ..stopped.clone() }, &[]).is_ok());
        assert!(compare(&stopped, &shown(""), &[]).is_err());
    }
}
