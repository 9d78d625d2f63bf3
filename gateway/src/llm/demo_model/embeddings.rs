//! The demo model with OpenAI's embeddings: of each text eight numbers, which only say whether texts are equal.

use base64::{Engine, engine::general_purpose::STANDARD};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{DemoAnswer, openai, read, words};

const MAX_TEXTS: usize = 2048;

/// The answer to a request to `/embeddings`.
pub(super) fn answer(body: &[u8]) -> DemoAnswer {
    match read(body).and_then(Request::embeddings) {
        Ok(list) => DemoAnswer::json(StatusCode::OK, &list),
        Err(message) => openai::bad_request(&message),
    }
}

#[derive(Deserialize)]
struct Request {
    model: String,
    input: Input,
    encoding_format: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Input {
    Text(String),
    Texts(Vec<String>),
}

impl Request {
    fn embeddings(self) -> Result<Value, String> {
        let texts = match self.input {
            Input::Text(text) => vec![text],
            Input::Texts(texts) if (1..=MAX_TEXTS).contains(&texts.len()) => texts,
            Input::Texts(_) => return Err(format!("`input` must have from 1 to {MAX_TEXTS} texts")),
        };
        let is_base64 = self.encoding_format.as_deref() == Some("base64");
        let data = texts.iter().enumerate().map(|(index, text)| {
            let numbers = numbers(text);
            let bytes = || STANDARD.encode(numbers.map(f32::to_le_bytes).concat());
            let embedding = if is_base64 { bytes().into() } else { json!(numbers) };
            json!({ "object": "embedding", "index": index, "embedding": embedding })
        });
        let tokens: usize = texts.iter().map(|text| words(text)).sum();
        let usage = json!({ "prompt_tokens": tokens, "total_tokens": tokens });
        Ok(json!({ "object": "list", "data": data.collect::<Vec<_>>(), "model": self.model, "usage": usage }))
    }
}

/// A vector of the length 1, made from a hash of the text.
fn numbers(text: &str) -> [f32; 8] {
    let hash = Sha256::digest(text);
    let vector = std::array::from_fn(|at| f32::from(i16::from_le_bytes([hash[2 * at], hash[2 * at + 1]])));
    let length = vector.map(|number: f32| number * number).iter().sum::<f32>().sqrt();
    vector.map(|number| number / length)
}

#[cfg(test)]
#[path = "embeddings_tests.rs"]
mod tests;
