//! Reads back random requests that other code wrote, and random payloads that our code wrote.

use base64::{Engine, engine::general_purpose::STANDARD};
use hookgate_proto::types::v1::media::Source;
use proptest::prelude::*;

use super::*;

/// A value and the text of its JSON member; `None` if the member is absent.
type Written<T> = (T, Option<String>);

/// A string, plain or with every character escaped.
fn string(content: impl Strategy<Value = String>) -> impl Strategy<Value = (String, String)> {
    (content, any::<bool>()).prop_map(|(content, escape)| {
        let escaped = || content.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect::<String>();
        let text = if escape {
            format!("\"{}\"", escaped())
        } else {
            serde_json::to_string(&content).expect("a string")
        };
        (content, text)
    })
}

fn text() -> impl Strategy<Value = (String, String)> {
    string(any::<String>())
}

fn some<T>((value, text): (T, String)) -> Written<T> {
    (value, Some(text))
}

/// Present, absent or `null`.
fn optional<T: Clone + std::fmt::Debug + 'static>(
    inner: impl Strategy<Value = (T, String)> + 'static,
) -> impl Strategy<Value = Written<Option<T>>> {
    prop_oneof![
        inner.prop_map(|(value, text)| (Some(value), Some(text))),
        Just((None, None)),
        Just((None, Some("null".to_owned()))),
    ]
}

fn integer() -> impl Strategy<Value = (u64, String)> {
    prop_oneof![any::<u64>(), Just((1 << 53) + 1), Just(u64::MAX)]
        .prop_map(|number| (number, number.to_string()))
}

fn json_text() -> impl Strategy<Value = String> {
    let scalar = prop_oneof![
        Just("null".to_owned()),
        Just("9007199254740993".to_owned()),
        Just("-1.50e+2".to_owned()),
        Just("false".to_owned()),
        string(any::<String>()).prop_map(|(_, text)| text),
    ];
    scalar.prop_recursive(4, 24, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(|list| format!("[{}]", list.join(" , "))),
            (inner.clone(), inner).prop_map(|(a, b)| format!("{{\"z\":{a}, \"a\" : {b}}}")),
        ]
    })
}

fn any_json() -> impl Strategy<Value = (Bytes, String)> {
    json_text().prop_map(|text| (text.clone().into(), text))
}

/// An array or object with these brackets; absent and `null` are the same.
fn json_in(open: &'static str, close: &'static str) -> impl Strategy<Value = Written<Bytes>> {
    let inside = json_text().prop_map(move |inner| format!("{open}{inner}{close}"));
    optional(inside.prop_map(|text| (Bytes::from(text.clone()), text)))
        .prop_map(|(value, text)| (value.unwrap_or_default(), text))
}

fn array() -> impl Strategy<Value = Written<Bytes>> {
    json_in("[ ", "]")
}

fn object() -> impl Strategy<Value = Written<Bytes>> {
    json_in("{\"\":", " }")
}

/// An object with the members in random order.
fn object_of(members: Vec<(&'static str, Option<String>)>) -> impl Strategy<Value = String> {
    let present: Vec<_> =
        members.into_iter().filter_map(|(name, text)| Some(format!("\"{name}\" :\n{}", text?))).collect();
    Just(present).prop_shuffle().prop_map(|members| format!("{{ {} }}", members.join(",\t")))
}

fn media() -> impl Strategy<Value = (types::Media, String)> {
    let source = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..9).prop_map(|bytes| {
            let text = format!("\"{}\"", STANDARD.encode(&bytes).replace('/', "\\/"));
            (Source::Data(bytes.into()), "data", text)
        }),
        string(".{1,9}").prop_map(|(url, text)| (Source::Url(url), "url", text)),
    ];
    (source, string(".{1,9}"), optional(text())).prop_flat_map(|((source, kind, source_text), mime, name)| {
        let media = types::Media { source: Some(source), mime_type: mime.0, filename: name.0 };
        let members = vec![(kind, Some(source_text)), ("mime_type", Some(mime.1)), ("filename", name.1)];
        (Just(media), object_of(members))
    })
}

fn media_list() -> impl Strategy<Value = Written<Vec<types::Media>>> {
    let list = prop::collection::vec(media(), 0..3).prop_map(|list| {
        let (media, texts): (Vec<_>, Vec<_>) = list.into_iter().unzip();
        (media, format!("[{}]", texts.join(",")))
    });
    optional(list).prop_map(|(list, text)| (list.unwrap_or_default(), text))
}

fn llm_payload() -> impl Strategy<Value = (types::BeforeLlmRequestPayload, String)> {
    let filled = string(".{1,20}").prop_map(some);
    (filled, media_list(), media_list(), optional(text()), array(), array(), object()).prop_flat_map(
        |(text, images, files, system_prompt, messages, tools, extra)| {
            let members = vec![
                ("text", text.1),
                ("images", images.1),
                ("files", files.1),
                ("system_prompt", system_prompt.1),
                ("messages", messages.1),
                ("tools", tools.1),
                ("extra", extra.1),
            ];
            let payload = types::BeforeLlmRequestPayload {
                text: text.0,
                images: images.0,
                files: files.0,
                system_prompt: system_prompt.0,
                messages: messages.0,
                tools: tools.0,
                extra: extra.0,
            };
            (Just(payload), object_of(members))
        },
    )
}

fn tool_name() -> impl Strategy<Value = (String, String)> {
    string(".{1,60}")
}

fn tool_payload() -> impl Strategy<Value = (types::BeforeToolCallPayload, String)> {
    (tool_name(), any_json(), optional(text()), object()).prop_flat_map(
        |(tool_name, args, call_id, extra)| {
            let members = vec![
                ("tool_name", Some(tool_name.1)),
                ("args", Some(args.1)),
                ("call_id", call_id.1),
                ("extra", extra.1),
            ];
            let payload = types::BeforeToolCallPayload {
                tool_name: tool_name.0,
                args: args.0,
                call_id: call_id.0,
                extra: extra.0,
            };
            (Just(payload), object_of(members))
        },
    )
}

fn result_payload() -> impl Strategy<Value = (types::AfterToolResultPayload, String)> {
    let args = prop::option::of(any_json());
    let call = (tool_name(), any_json(), any::<bool>(), args);
    (call, optional(text()), optional(integer()), object()).prop_flat_map(
        |((tool_name, result, success, args), call_id, duration_ms, extra)| {
            let (args, args_text) = args.unzip();
            let members = vec![
                ("tool_name", Some(tool_name.1)),
                ("result", Some(result.1)),
                ("success", Some(success.to_string())),
                ("args", args_text),
                ("call_id", call_id.1),
                ("duration_ms", duration_ms.1),
                ("extra", extra.1),
            ];
            let payload = types::AfterToolResultPayload {
                tool_name: tool_name.0,
                result: result.0,
                success: Some(success),
                args: args.unwrap_or_default(),
                call_id: call_id.0,
                duration_ms: duration_ms.0,
                extra: extra.0,
            };
            (Just(payload), object_of(members))
        },
    )
}

fn response_payload() -> impl Strategy<Value = (types::BeforeResponsePayload, String)> {
    let usage = (integer(), integer()).prop_map(|(input, output)| {
        let text = format!("{{\"output\":{},\"input\":{}}}", output.1, input.1);
        (types::TokenUsage { input: input.0, output: output.0 }, text)
    });
    let names = (optional(text()), optional(text()), optional(text()), optional(text()));
    (text(), optional(text()), names, optional(usage), object()).prop_flat_map(
        |(content, reasoning, (provider, model, router, stop_reason), token_usage, extra)| {
            let members = vec![
                ("content", Some(content.1)),
                ("reasoning", reasoning.1),
                ("provider", provider.1),
                ("model", model.1),
                ("router", router.1),
                ("token_usage", token_usage.1),
                ("stop_reason", stop_reason.1),
                ("extra", extra.1),
            ];
            let payload = types::BeforeResponsePayload {
                content: content.0,
                reasoning: reasoning.0,
                provider: provider.0,
                model: model.0,
                router: router.0,
                token_usage: token_usage.0,
                stop_reason: stop_reason.0,
                extra: extra.0,
            };
            (Just(payload), object_of(members))
        },
    )
}

/// A context with values like real ids, including ":" and "/".
fn context() -> impl Strategy<Value = Written<Option<gateway::RequestContext>>> {
    let id = || optional(string("[a-z0-9:/~é \"\\\\@.-]{0,40}"));
    let labels = prop::collection::btree_map("[a-z/:~.]{1,8}", "[a-z:/é]{0,9}", 0..4)
        .prop_filter("claims come from the token", |labels| {
            labels.keys().all(|key| !key.starts_with("claim."))
        })
        .prop_map(|labels| (labels.clone(), serde_json::to_string(&labels).expect("a map of strings")));
    let depth = optional(any::<u32>().prop_map(|depth| (depth, depth.to_string())));
    let ids = (id(), id(), id(), id(), id(), id(), id(), id(), id());
    let context = (ids, depth, labels).prop_flat_map(|(ids, depth, labels)| {
        let members = vec![
            ("session_id", ids.0.1),
            ("run_id", ids.1.1),
            ("parent_run_id", ids.2.1),
            ("depth", depth.1),
            ("agent_id", ids.3.1),
            ("agent_path", ids.4.1),
            ("project_id", ids.5.1),
            ("user_id", ids.6.1),
            ("provider", ids.7.1),
            ("model", ids.8.1),
            ("labels", Some(labels.1)),
        ];
        let context = gateway::RequestContext {
            session_id: ids.0.0,
            run_id: ids.1.0,
            parent_run_id: ids.2.0,
            depth: depth.0,
            agent_id: ids.3.0,
            agent_path: ids.4.0,
            project_id: ids.5.0,
            user_id: ids.6.0,
            provider: ids.7.0,
            model: ids.8.0,
            labels: labels.0,
        };
        (Just(context), object_of(members))
    });
    optional(context)
}

macro_rules! round_trips {
    ($($name:ident: $request:ident, $answer:ident, $payload:ident $(, $takes_results:ident)?;)+) => {
        proptest! {
            #![proptest_config(ProptestConfig::with_cases(300))]
            $(
                #[test]
                fn $name(
                    (expected, text) in (context(), $payload(), optional(text()), any::<bool>()).prop_flat_map(
                        |(context, payload, digest, trace)| {
                            let expected = gateway::$request {
                                context: context.0,
                                payload: Some(payload.0),
                                expect_plan_digest: digest.0,
                                trace,
                                $($takes_results: trace,)?
                            };
                            let members = vec![
                                ("context", context.1),
                                ("payload", Some(payload.1)),
                                ("expect_plan_digest", digest.1),
                                ("trace", trace.then(|| "true".to_owned())),
                                $((stringify!($takes_results), trace.then(|| "true".to_owned())),)?
                            ];
                            (Just(expected), object_of(members))
                        },
                    ),
                    revision in any::<u64>(),
                ) {
                    let read = decode::<gateway::$request>(&body(&text));
                    prop_assert_eq!(read.as_ref(), Ok(&expected), "{}", text);

                    let answer = gateway::$answer { payload: expected.payload, revision, ..Default::default() };
                    let written = encode(&answer);
                    let seen: serde_json::Value = serde_json::from_slice(&written).expect("JSON");
                    prop_assert_eq!(seen["revision"].as_u64(), Some(revision));
                    // Our own request, made of the answer's payload as it is in the bytes.
                    let members = crate::json::members(str::from_utf8(&written).expect("JSON"));
                    let payload = members.filter(|(name, _)| name == "payload").map(|(_, text)| text);
                    let again = format!("{{\"payload\":{}}}", payload.collect::<String>());
                    let again = decode::<gateway::$request>(&body(&again)).expect("an answer's payload is valid");
                    prop_assert_eq!(again.payload, answer.payload);
                }
            )+
        }
    };
}

round_trips! {
    llm_requests_survive: BeforeLlmRequestRequest, BeforeLlmRequestResponse, llm_payload;
    tool_calls_survive: BeforeToolCallRequest, BeforeToolCallResponse, tool_payload, takes_results;
    tool_results_survive: AfterToolResultRequest, AfterToolResultResponse, result_payload;
    responses_survive: BeforeResponseRequest, BeforeResponseResponse, response_payload;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn no_body_makes_decoding_panic(
        soup in prop::collection::vec(
            prop_oneof![
                Just("{"), Just("}"), Just("["), Just("]"), Just(":"), Just(","), Just("null"), Just("1"),
                Just("\"payload\""), Just("\"context\""), Just("\"args\""), Just("\"labels\""),
                Just("\"images\""), Just("\"data\""), Just("\"\\ud83d\\ude00\""), Just("{\"payload\":{"), Just("}}"),
            ],
            0..24,
        ),
        bytes in prop::collection::vec(any::<u8>(), 0..48),
    ) {
        for body in [Bytes::from(soup.concat()), Bytes::from(bytes)] {
            let refusals = [
                decode::<gateway::BeforeLlmRequestRequest>(&body).err(),
                decode::<gateway::BeforeToolCallRequest>(&body).err(),
                decode::<gateway::AfterToolResultRequest>(&body).err(),
                decode::<gateway::BeforeResponseRequest>(&body).err(),
            ];
            prop_assert!(refusals.into_iter().flatten().all(|violations| !violations.is_empty()));
        }
    }

    #[test]
    fn a_damaged_request_is_answered_without_a_panic(
        (_, text) in tool_payload(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut bytes = format!("{{\"payload\":{text}}}").into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let readable = serde_json::from_slice::<serde_json::Value>(&bytes).is_ok();
        if decode::<gateway::BeforeToolCallRequest>(&bytes.into()).is_ok() {
            prop_assert!(readable);
        }
    }
}
