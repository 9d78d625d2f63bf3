//! `hookgate probe`: asks the ops port, for containers without a shell and without curl.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, time::timeout};

use super::{Exit, output::printable};

/// Longest probe, dial and answer included.
const LIMIT: Duration = Duration::from_secs(3);
/// Most of an answer that is read, in bytes.
const MAX_ANSWER: usize = 4 << 10;
/// Most of it that is shown.
const MAX_SHOWN: usize = 200;

pub(super) async fn run(address: &str, live: bool) -> Exit {
    let path = if live { "/livez" } else { "/readyz" };
    let shown = printable(address);
    match timeout(LIMIT, ask(address, path)).await {
        Ok(Ok((StatusCode::OK, _))) => Exit::ok(),
        Ok(Ok((status, said))) => Exit::failure(format!("{shown}{path} answers {}: {said}", status.as_u16())),
        Ok(Err(error)) => Exit::failure(format!(
            "no answer from {shown}: {error}; --addr is the gateway's `server.ops_addr`"
        )),
        Err(_) => Exit::failure(format!(
            "no answer from {shown} within {} s; --addr is the gateway's `server.ops_addr`",
            LIMIT.as_secs()
        )),
    }
}

/// Status and the first line of the answer.
async fn ask(
    address: &str,
    path: &str,
) -> Result<(StatusCode, String), Box<dyn std::error::Error + Send + Sync>> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = Request::get(path).header(header::HOST, address).body(Empty::<Bytes>::new())?;
    let answer = sender.send_request(request).await?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await?.to_bytes();
    let text = String::from_utf8_lossy(&body);
    let said = printable(text.lines().next().unwrap_or_default()).chars().take(MAX_SHOWN).collect();
    Ok((status, said))
}
