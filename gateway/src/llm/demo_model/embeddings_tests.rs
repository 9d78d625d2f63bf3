use super::*;
use crate::llm::demo_model::tests::{ReceivedAnswer, receive, with};

const PATH: &str = "embeddings";

async fn answered(members: &Value) -> ReceivedAnswer {
    receive(PATH, &with(json!({ "model": "e" }), members).to_string()).await
}

/// The vectors of these texts.
async fn vectors(input: Value) -> Vec<Vec<f32>> {
    let answer = answered(&json!({ "input": input })).await.json();
    let data = answer["data"].as_array().unwrap().iter();
    data.map(|item| serde_json::from_value(item["embedding"].clone()).unwrap()).collect()
}

#[tokio::test]
async fn equal_texts_have_equal_vectors_of_the_length_1() {
    let vectors = vectors(json!(["a", "b", "a", ""])).await;
    assert_eq!(vectors, [numbers("a"), numbers("b"), numbers("a"), numbers("")]);
    assert!(vectors[0] != vectors[1] && vectors[0] != vectors[3]);
    for vector in &vectors {
        let length = vector.iter().map(|number| number * number).sum::<f32>();
        assert!((length - 1.0).abs() < 1e-5, "{vector:?}");
    }
}

#[tokio::test]
async fn an_answer_has_what_a_provider_s_has() {
    let answer = answered(&json!({ "input": "a b", "encoding_format": "float" })).await.json();
    let item = json!({ "object": "embedding", "index": 0, "embedding": numbers("a b") });
    let usage = json!({ "prompt_tokens": 2, "total_tokens": 2 });
    assert_eq!(answer, json!({ "object": "list", "data": [item], "model": "e", "usage": usage }));
}

#[tokio::test]
async fn clients_may_want_the_numbers_as_base64() {
    let answer = answered(&json!({ "input": ["a", "b"], "encoding_format": "base64" })).await.json();
    let bytes = STANDARD.decode(answer["data"][1]["embedding"].as_str().unwrap()).unwrap();
    let read = bytes.chunks(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()));
    assert_eq!(read.collect::<Vec<_>>(), numbers("b"));
}

#[tokio::test]
async fn a_wrong_request_gets_the_error_of_a_provider() {
    for (members, part) in [
        (json!({}), "missing field `input`"),
        (json!({ "input": [1, 2] }), "can't be read"),
        (json!({ "input": [] }), "from 1 to 2048 texts"),
        (json!({ "input": vec!["a"; 2049] }), "from 1 to 2048 texts"),
    ] {
        let received = answered(&members).await;
        let error = received.json();
        assert_eq!(
            (received.status.as_u16(), &error["error"]["type"]),
            (400, &json!("invalid_request_error"))
        );
        let message = error["error"]["message"].as_str().unwrap();
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(vectors(json!(vec!["a"; 2048])).await.len(), 2048);
}
