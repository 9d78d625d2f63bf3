use base64::{Engine as _, engine::general_purpose::STANDARD};
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn image(url: &str) -> String {
    json!({ "type": "image_url", "image_url": { "url": url } }).to_string()
}

#[test]
fn what_has_no_source_or_no_base64_is_told_apart() {
    for (part, checked) in [
        (image("https://a.test/"), Ok(())),
        (image("data:image/png;base64,aGk="), Ok(())),
        (image("DATA:image/png;charset=utf-8;BASE64,aGk="), Ok(())),
        (image("data:;base64,aGk="), Ok(())),
        (image("data:image/png,aGk="), Err(UnseenMedium::NotBase64)),
        (image("data:base64,aGk="), Err(UnseenMedium::NotBase64)),
        (image("data:image/png;base64;charset=utf-8,aGk="), Err(UnseenMedium::NotBase64)),
        (image("data:image/png;base64"), Err(UnseenMedium::NotBase64)),
        (image("Data:text/plain,hello"), Err(UnseenMedium::NotBase64)),
        (image("data:image/png;base64,a b"), Err(UnseenMedium::NotBase64)),
        (image("File:///etc/passwd"), Err(UnseenMedium::NoSource)),
        (image("aGk="), Ok(())),
        (image(&"aGkh".repeat(10_000)), Ok(())),
        (image(&format!("{}a===", "aGkh".repeat(10_000))), Err(UnseenMedium::NotBase64)),
        (image("aGk"), Err(UnseenMedium::NotBase64)),
        (image("aGl="), Err(UnseenMedium::NotBase64)),
        (image("aGk=aGk="), Err(UnseenMedium::NotBase64)),
        (image("a b"), Err(UnseenMedium::NotBase64)),
        (r#"{"type":"image_url","image_url":{"url":1}}"#.into(), Err(UnseenMedium::NoSource)),
        (r#"{"type":"image_url"}"#.into(), Err(UnseenMedium::NoSource)),
        (r#"{"type":"file","file":"text"}"#.into(), Err(UnseenMedium::NoSource)),
        (r#"{"type":"file","file":{"filename":"f"}}"#.into(), Err(UnseenMedium::NoSource)),
        (r#"{"type":"input_audio","input_audio":{"format":"wav"}}"#.into(), Err(UnseenMedium::NoSource)),
    ] {
        assert_eq!(check_medium(&part), checked, "{part}");
    }
}

#[test]
fn the_type_of_a_data_url_ends_at_its_first_parameter() {
    let medium = medium_of(&image("data:image/png;charset=utf-8;base64,aGk=")).expect("a medium");
    assert_eq!((medium.mime_type.as_str(), medium.source), ("image/png", Some(Source::Data("hi".into()))));
    for unseen in ["data:text/plain,hello", "DATA:image/png;charset=utf-8,hi", "file:///etc/passwd"] {
        assert_eq!(medium_of(&image(unseen)), None, "{unseen}");
    }
}

proptest! {
    #[test]
    fn what_is_checked_is_what_plugins_see(
        bytes in prop::collection::vec(any::<u8>(), 0..4000), place in any::<prop::sample::Index>(), wrong in "[ =A-Z]?",
    ) {
        let mut data = STANDARD.encode(bytes);
        data.insert_str(place.index(data.len() + 1), &wrong);
        let part = image(&data);
        prop_assert_eq!(check_medium(&part).is_ok(), medium_of(&part).is_some());
    }
}

#[test]
fn a_file_with_another_name_keeps_its_source() {
    for source in
        [json!({ "file_url": "https://a.test/x" }), json!({ "file_data": "data:text/plain;x=1;base64,aGk=" })]
    {
        let part = |name: &str| {
            let mut file = source.clone();
            file["filename"] = json!(name);
            json!({ "type": "file", "file": file }).to_string()
        };
        let media = Media { filename: Some("b".to_owned()), ..medium_of(&part("a")).expect("it is seen") };
        assert_eq!(replace_medium(&part("a"), &media).map_err(drop), Ok(part("b")));
    }
}
