use hookgate_proto::types::v1::media::Source as MediaSource;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn block(kind: &str, source: &Value) -> String {
    json!({ "type": kind, "source": source }).to_string()
}

fn base64(data: &str) -> Value {
    json!({ "type": "base64", "media_type": "image/png", "data": data })
}

fn url(url: &str) -> Value {
    json!({ "type": "url", "url": url })
}

fn media(mime_type: &str, filename: Option<&str>, source: MediaSource) -> Media {
    Media { mime_type: mime_type.to_owned(), filename: filename.map(str::to_owned), source: Some(source) }
}

#[test]
fn what_has_no_source_or_no_base64_is_told_apart() {
    for (block, checked) in [
        (block("image", &url("https://a.test/")), Ok(())),
        (block("image", &url("HTTP://a.test/")), Ok(())),
        (block("image", &base64("aGk=")), Ok(())),
        (block("document", &base64(&"aGkh".repeat(10_000))), Ok(())),
        (block("document", &json!({ "type": "text", "media_type": "text/plain", "data": "hi" })), Ok(())),
        (block("image", &base64(&format!("{}a===", "aGkh".repeat(10_000)))), Err(UnseenMedium::NotBase64)),
        (block("image", &base64("aGk")), Err(UnseenMedium::NotBase64)),
        (block("image", &base64("aGl=")), Err(UnseenMedium::NotBase64)),
        (block("image", &base64("a b")), Err(UnseenMedium::NotBase64)),
        (block("image", &url("data:image/png;base64,aGk=")), Err(UnseenMedium::NoSource)),
        (block("document", &url("file:///etc/passwd")), Err(UnseenMedium::NoSource)),
        (block("document", &url("")), Err(UnseenMedium::NoSource)),
        (block("document", &json!({ "type": "file", "file_id": "f" })), Err(UnseenMedium::NoSource)),
        (block("document", &json!({ "type": "content", "content": "hi" })), Err(UnseenMedium::NoSource)),
        (block("document", &json!({ "type": "base64", "data": 1 })), Err(UnseenMedium::NoSource)),
        (block("document", &json!("hi")), Err(UnseenMedium::NoSource)),
        (block("search_result", &json!("https://a.test/")), Err(UnseenMedium::NoSource)),
        (r#"{"type":"image"}"#.to_owned(), Err(UnseenMedium::NoSource)),
    ] {
        assert_eq!(check_medium(&block), checked, "{block}");
        assert_eq!(medium_of(&block).is_some(), checked.is_ok(), "{block}");
    }
}

#[test]
fn a_medium_has_the_type_and_the_title_of_its_block() {
    let data = |text: &'static str| MediaSource::Data(text.into());
    let url_of = |url: &str| MediaSource::Url(url.to_owned());
    for (block, expected) in [
        (block("image", &base64("aGk=")), media("image/png", None, data("hi"))),
        (
            block("image", &json!({ "type": "base64", "media_type": "", "data": "aGk=" })),
            media("image/*", None, data("hi")),
        ),
        (block("image", &url("https://a.test/")), media("image/*", None, url_of("https://a.test/"))),
        (
            json!({ "type": "image", "title": "t", "source": url("https://a.test/") }).to_string(),
            media("image/*", None, url_of("https://a.test/")),
        ),
        (
            json!({ "type": "document", "title": "t", "source": url("https://a.test/") }).to_string(),
            media("application/pdf", Some("t"), url_of("https://a.test/")),
        ),
        (
            block("document", &json!({ "type": "base64", "data": "aGk=" })),
            media("application/octet-stream", None, data("hi")),
        ),
        (
            block("document", &json!({ "type": "text", "media_type": "text/plain", "data": "caf\u{e9}" })),
            media("text/plain", None, data("caf\u{e9}")),
        ),
    ] {
        assert_eq!(medium_of(&block), Some(expected), "{block}");
    }
}

#[test]
fn another_medium_changes_the_source_and_the_title_and_nothing_else() {
    let old = r#"{ "type":"document", "context" : "c","source":{"type":"url","url":"https://a.test/"},"title":"t","cache_control":{"type":"ephemeral"}}"#;
    let text = r#"{"type":"text","media_type":"text/plain","data":"a\"b"}"#;
    let pdf = r#"{"type":"base64","media_type":"application/pdf","data":"aGk="}"#;
    let unknown = r#"{"type":"base64","media_type":"text/plain","data":"/w=="}"#;
    let data = |bytes: &'static [u8]| MediaSource::Data(bytes.into());
    for (media, source, title) in [
        (media("text/plain", Some("t"), data(b"a\"b")), text, "t"),
        (media("application/pdf", Some("new"), data(b"hi")), pdf, "new"),
        (media("text/plain", Some("t"), data(b"\xff")), unknown, "t"),
    ] {
        let expected =
            old.replace(r#"{"type":"url","url":"https://a.test/"}"#, source).replace("\"t\"", &quote(title));
        assert_eq!(replace_medium(old, &media), Ok(expected));
    }
    let unnamed = media("application/pdf", None, data(b"hi"));
    let expected = old.replace(r#"{"type":"url","url":"https://a.test/"},"title":"t""#, pdf);
    assert_eq!(replace_medium(old, &unnamed), Ok(expected));
    let image = r#"{"type":"image","source":{"type":"url","url":"https://a.test/"}}"#;
    let new = media("image/png", Some("no title"), data(b"hi"));
    let expected = r#"{"type":"image","source":{"type":"base64","media_type":"image/png","data":"aGk="}}"#;
    assert_eq!(replace_medium(image, &new).as_deref(), Ok(expected));
    let empty = Media { source: None, ..new };
    assert!(replace_medium(image, &empty).is_err());
}

proptest! {
    #[test]
    fn what_is_checked_is_what_plugins_see(
        bytes in prop::collection::vec(any::<u8>(), 0..4000), place in any::<prop::sample::Index>(), wrong in "[ =A-Z]?",
    ) {
        let mut data = STANDARD.encode(bytes);
        data.insert_str(place.index(data.len() + 1), &wrong);
        let block = block("image", &base64(&data));
        prop_assert_eq!(check_medium(&block).is_ok(), medium_of(&block).is_some());
    }

    #[test]
    fn a_new_block_has_the_medium(
        bytes in prop::collection::vec(any::<u8>(), 0..100), text in any::<String>(), title in prop::option::of(any::<String>()),
    ) {
        let title = title.as_deref();
        for medium in [
            media("image/png", None, MediaSource::Data(bytes.clone().into())),
            media("application/pdf", title, MediaSource::Data(bytes.into())),
            media("text/plain", title, MediaSource::Data(text.into())),
            media("application/pdf", title, MediaSource::Url("https://a.test/\"".into())),
        ] {
            let block = new_block(&medium).expect("it has a source");
            prop_assert_eq!(medium_of(&block), Some(medium));
        }
    }
}
