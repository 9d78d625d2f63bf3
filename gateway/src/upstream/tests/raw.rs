//! A plugin in raw HTTP/2, for responses that no server would send.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use futures::future::BoxFuture;
use prost::Message as _;

use super::support::manifest;

pub(crate) type RawStream = h2::server::SendResponse<bytes::Bytes>;
pub(crate) type RawAnswer = Arc<dyn Fn(usize, RawStream) -> BoxFuture<'static, ()> + Send + Sync>;

pub(crate) async fn serve_raw(stream: tokio::net::TcpStream, answer: RawAnswer) {
    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
    let calls = AtomicUsize::new(0);
    while let Some(Ok((request, respond))) = connection.accept().await {
        let method = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
        let answering = match &*method {
            "Describe" => Box::pin(raw_message(respond, manifest().encode_to_vec())),
            "Initialize" => Box::pin(raw_message(respond, Vec::new())) as BoxFuture<'static, ()>,
            // The health check.
            "Check" => Box::pin(raw_message(respond, vec![8, 1])),
            _ => answer(calls.fetch_add(1, Ordering::SeqCst), respond),
        };
        tokio::spawn(async move {
            let mut body = request.into_body();
            while let Some(Ok(data)) = body.data().await {
                let _ = body.flow_control().release_capacity(data.len());
            }
            answering.await;
        });
    }
}

/// Headers of a gRPC reply.
pub(crate) fn raw_head() -> http::Response<()> {
    http::Response::builder().header("content-type", "application/grpc").body(()).expect("valid")
}

/// A message with its prefix.
pub(crate) fn raw_frame(message: &[u8]) -> bytes::Bytes {
    let mut frame = vec![0];
    frame.extend_from_slice(&u32::try_from(message.len()).expect("short").to_be_bytes());
    frame.extend_from_slice(message);
    frame.into()
}

/// A complete and valid reply.
pub(crate) async fn raw_message(mut respond: RawStream, message: Vec<u8>) {
    let mut body = respond.send_response(raw_head(), false).expect("an open stream");
    body.send_data(raw_frame(&message), false).expect("an open stream");
    let trailers = [(http::HeaderName::from_static("grpc-status"), http::HeaderValue::from_static("0"))];
    body.send_trailers(trailers.into_iter().collect()).expect("an open stream");
}
