use base64::{Engine as _, engine::general_purpose::STANDARD};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn image(url: impl Into<Value>) -> String {
    json!({ "type": "input_image", "detail": "low", "image_url": url.into() }).to_string()
}

fn file(members: &Value) -> String {
    let mut part = json!({ "type": "input_file" });
    let members = members.as_object().expect("members").clone();
    part.as_object_mut().expect("an object").extend(members);
    part.to_string()
}

fn audio(members: &Value) -> String {
    json!({ "type": "input_audio", "input_audio": members }).to_string()
}

fn media(mime_type: &str, filename: Option<&str>, source: Source) -> Media {
    Media { mime_type: mime_type.to_owned(), filename: filename.map(str::to_owned), source: Some(source) }
}

fn url(url: &str) -> Source {
    Source::Url(url.to_owned())
}

fn data(data: &'static str) -> Source {
    Source::Data(data.into())
}

#[test]
fn what_has_no_source_or_no_base64_is_told_apart() {
    let long = "aGkh".repeat(10_000);
    for (part, checked) in [
        (image("https://a.test/"), Ok(())),
        (image("data:image/png;base64,aGk="), Ok(())),
        (image("DATA:image/png;charset=utf-8;BASE64,aGk="), Ok(())),
        (image("data:image/png,aGk="), Err(UnseenMedium::NotBase64)),
        (image("data:image/png;base64,a b"), Err(UnseenMedium::NotBase64)),
        (image("file:///etc/passwd"), Err(UnseenMedium::NoSource)),
        (image(json!({ "url": "https://a.test/" })), Err(UnseenMedium::NoSource)),
        (image(json!(null)), Err(UnseenMedium::NoSource)),
        (json!({ "type": "input_image", "file_id": "f" }).to_string(), Err(UnseenMedium::NoSource)),
        (file(&json!({ "file_data": long })), Ok(())),
        (file(&json!({ "file_data": format!("{long}a===") })), Err(UnseenMedium::NotBase64)),
        (file(&json!({ "file_url": "https://a.test/", "file_id": null })), Ok(())),
        (file(&json!({ "file_url": "data:text/plain,hi" })), Err(UnseenMedium::NotBase64)),
        (file(&json!({ "filename": "f" })), Err(UnseenMedium::NoSource)),
        (file(&json!({ "file_id": "f" })), Err(UnseenMedium::NoSource)),
        (file(&json!({ "file_data": 1 })), Err(UnseenMedium::NoSource)),
        (audio(&json!({ "data": "aGk=", "format": "wav" })), Ok(())),
        (audio(&json!({ "format": "wav" })), Err(UnseenMedium::NoSource)),
        (json!({ "type": "input_text", "image_url": "aGk=" }).to_string(), Err(UnseenMedium::NoSource)),
    ] {
        assert_eq!(check_medium(&part), checked, "{part}");
        assert_eq!(medium_of(&part).is_some(), checked.is_ok(), "{part}");
    }
}

#[test]
fn a_part_with_two_sources_has_none_that_plugins_surely_see() {
    let (link, data) = ("https://a.test/", "aGk=");
    for part in [
        file(&json!({ "file_url": link, "file_data": data })),
        file(&json!({ "file_url": link, "file_id": "f" })),
        file(&json!({ "file_data": data, "file_id": "f" })),
        json!({ "type": "input_image", "image_url": link, "file_id": "f" }).to_string(),
    ] {
        assert_eq!(check_medium(&part), Err(UnseenMedium::NoSource), "{part}");
    }
}

#[test]
fn a_medium_has_the_type_and_the_name_of_its_part() {
    for (part, expected) in [
        (image("https://a.test/"), media("image/*", None, url("https://a.test/"))),
        (image("data:image/png;charset=utf-8;base64,aGk="), media("image/png", None, data("hi"))),
        (
            file(&json!({ "file_url": "https://a.test/", "filename": "f" })),
            media("application/octet-stream", Some("f"), url("https://a.test/")),
        ),
        (file(&json!({ "file_data": "aGk=" })), media("application/octet-stream", None, data("hi"))),
        (
            file(&json!({ "file_data": "data:application/pdf;base64,aGk=", "filename": "f" })),
            media("application/pdf", Some("f"), data("hi")),
        ),
        (audio(&json!({ "data": "aGk=", "format": "wav" })), media("audio/wav", None, data("hi"))),
    ] {
        assert_eq!(medium_of(&part), Some(expected), "{part}");
    }
}

#[test]
fn another_medium_changes_the_source_and_the_name_and_nothing_else() {
    let old = r#"{ "type":"input_file", "detail" : "low","file_url":"https://a.test/","filename":"f","x":1}"#;
    let data_url = r#""file_data":"data:application/pdf;base64,aGk=""#;
    let without = r#"{ "type":"input_file", "detail" : "low""#;
    for (medium, expected) in [
        (
            media("application/pdf", Some("f"), url("https://b.test/")),
            format!(r#"{without},"file_url":"https://b.test/","filename":"f","x":1}}"#),
        ),
        (
            media("application/pdf", Some("g"), data("hi")),
            format!(r#"{without},"filename":"g","x":1,{data_url}}}"#),
        ),
        (media("application/pdf", None, data("hi")), format!(r#"{without},"x":1,{data_url}}}"#)),
    ] {
        assert_eq!(replace_medium(old, &medium), Ok(expected));
    }
    let image = r#"{"type":"input_image","image_url":"https://a.test/","detail":"high"}"#;
    let expected = image.replace("https://a.test/", "data:image/png;base64,aGk=");
    assert_eq!(replace_medium(image, &media("image/png", None, data("hi"))), Ok(expected));
    let wrong = r#"{"type":"input_image","image_url":"data:application/pdf;base64,aGk="}"#;
    let expected = format!(r#"{{"type":"input_file",{data_url}}}"#);
    assert_eq!(replace_medium(wrong, &media("application/pdf", None, data("hi"))), Ok(expected));
    for part in [image, old] {
        let empty = Media { source: None, ..media("image/png", None, data("")) };
        assert!(replace_medium(part, &empty).is_err());
    }
}

proptest! {
    #[test]
    fn what_is_checked_is_what_plugins_see(
        bytes in prop::collection::vec(any::<u8>(), 0..4000), place in any::<prop::sample::Index>(), wrong in "[ =A-Z]?",
    ) {
        let mut data = STANDARD.encode(bytes);
        data.insert_str(place.index(data.len() + 1), &wrong);
        for part in [image(data.as_str()), file(&json!({ "file_data": data }))] {
            prop_assert_eq!(check_medium(&part).is_ok(), medium_of(&part).is_some());
        }
    }

    #[test]
    fn a_new_part_has_the_medium(
        bytes in prop::collection::vec(any::<u8>(), 0..100), name in prop::option::of(any::<String>()),
    ) {
        let name = name.as_deref();
        let bytes = || Source::Data(bytes.clone().into());
        for medium in [
            media("image/png", None, bytes()),
            media("image/*", None, url("https://a.test/\"")),
            media("application/pdf", name, bytes()),
            media("text/plain", name, bytes()),
            media("audio/wav", None, bytes()),
            media("application/octet-stream", name, url("https://a.test/\"")),
        ] {
            let part = new_part(&medium).expect("it has a source");
            prop_assert_eq!(medium_of(&part), Some(medium));
        }
    }
}
