//! Improper ways of sending an answer.

use std::{convert::Infallible, io, time::Duration};

use bytes::{BufMut, Bytes, BytesMut};
use futures::{Stream, StreamExt, stream};
use http::{HeaderMap, HeaderValue, Response};
use http_body_util::StreamBody;
use hyper::body::Frame;
use tonic::{Code, body::Body};

use super::flood::SIGNAL;

/// How an answer is sent.
#[derive(Debug, Clone, Default)]
pub enum WireBehaviour {
    /// According to gRPC.
    #[default]
    Proper,
    /// A well-formed frame whose bytes aren't a protobuf message, then status OK.
    Garbage,
    /// A well-formed frame with these bytes instead of the answer, then status OK.
    Raw(Bytes),
    /// Half of the answer, then the stream is reset.
    HalfThenReset,
    /// Half of the answer, then status OK.
    HalfThenOk,
    /// The whole answer, then the stream ends without a status.
    NoStatus,
    /// The whole answer, then a status other than OK.
    ThenStatus(Code),
    /// The whole answer byte by byte with this pause in between, then status OK.
    Drip(Duration),
    /// A frame that announces 4 GiB and contains the answer, then nothing more.
    HugeLength,
    /// The whole answer, then endless response headers. The plugin must be built with `flooding()`.
    EndlessTrailers,
    /// HTTP 200 with a JSON body.
    Json,
    /// Resets the stream instead of answering.
    Reset,
    /// Closes the connection instead of answering.
    Disconnect,
}

/// The extension that marks a response to be replaced by the connection.
#[derive(Debug, Clone)]
pub(super) struct WireFault {
    pub(super) message: Bytes,
    pub(super) wire: WireBehaviour,
}

/// What the connection does with the response.
pub(super) enum ResponseAction {
    Respond(Response<Body>),
    ResetStream,
    Disconnect,
}

type BodyResult = Result<Frame<Bytes>, io::Error>;

impl WireFault {
    pub(super) fn respond(self) -> ResponseAction {
        let whole = frame(self.message.len(), &self.message);
        let half = whole.slice(..5 + self.message.len() / 2);
        let frames: Vec<BodyResult> = match self.wire {
            WireBehaviour::Reset => return ResponseAction::ResetStream,
            WireBehaviour::Disconnect => return ResponseAction::Disconnect,
            WireBehaviour::Json => return ResponseAction::Respond(json()),
            WireBehaviour::Drip(pause) => return ResponseAction::Respond(grpc(drip(whole, pause))),
            WireBehaviour::EndlessTrailers => {
                let frames = [data(whole), data(Bytes::from_static(SIGNAL))];
                return ResponseAction::Respond(grpc(stream::iter(frames).chain(stream::pending())));
            }
            WireBehaviour::HugeLength => {
                let announced = frame(u32::MAX as usize, &self.message);
                return ResponseAction::Respond(grpc(
                    stream::iter([data(announced)]).chain(stream::pending()),
                ));
            }
            WireBehaviour::Proper => vec![data(whole), status(Code::Ok)],
            WireBehaviour::Garbage => vec![data(frame(GARBAGE.len(), GARBAGE)), status(Code::Ok)],
            WireBehaviour::Raw(bytes) => vec![data(frame(bytes.len(), &bytes)), status(Code::Ok)],
            WireBehaviour::HalfThenReset => {
                vec![data(half), Err(io::Error::other("the script resets the stream"))]
            }
            WireBehaviour::HalfThenOk => vec![data(half), status(Code::Ok)],
            WireBehaviour::NoStatus => vec![data(whole)],
            WireBehaviour::ThenStatus(code) => vec![data(whole), status(code)],
        };
        // Yield to the connection between the parts, so that a reset rarely overtakes the data before it.
        let paced = stream::iter(frames).then(|frame| async move {
            tokio::task::yield_now().await;
            frame
        });
        ResponseAction::Respond(grpc(paced))
    }
}

/// Field 15 with a wire type that doesn't exist.
const GARBAGE: &[u8] = &[0x7f, 0xff, 0xff, 0xff, 0x00, 0x7f];

fn frame(announced: usize, message: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(5 + message.len());
    frame.put_u8(0); // not compressed
    frame.put_u32(u32::try_from(announced).expect("a frame announces at most 4 GiB"));
    frame.put_slice(message);
    frame.freeze()
}

fn data(bytes: Bytes) -> BodyResult {
    Ok(Frame::data(bytes))
}

fn status(code: Code) -> BodyResult {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from(i32::from(code)));
    Ok(Frame::trailers(trailers))
}

fn drip(bytes: Bytes, pause: Duration) -> impl Stream<Item = BodyResult> {
    let single = move |byte: Bytes| async move {
        tokio::time::sleep(pause).await;
        data(byte)
    };
    let bytes: Vec<_> = (0..bytes.len()).map(|position| bytes.slice(position..=position)).collect();
    stream::iter(bytes).then(single).chain(stream::iter([status(Code::Ok)]))
}

fn grpc(frames: impl Stream<Item = BodyResult> + Send + 'static) -> Response<Body> {
    let mut response = Response::new(Body::new(StreamBody::new(frames)));
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    response
}

fn json() -> Response<Body> {
    let body = stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"{\"continue\":true}")))]);
    let mut response = Response::new(Body::new(StreamBody::new(body)));
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/json"));
    response
}
