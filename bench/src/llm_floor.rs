//! The floor of the LLM proxy: it passes each request on and its answer back, over HTTP/1.1, and does nothing else. Each of its clients
//! has a connection to the provider.

use http::{HeaderValue, Request, Response, header::HOST};
use hyper::{body::Incoming, client, server, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Mutex,
};

use crate::BenchError;

/// Passes on to `provider`, from a free port. `ready` is called with the address.
pub(crate) async fn serve(provider: &str, ready: impl FnOnce(&str)) -> Result<(), BenchError> {
    let provider = provider.trim_start_matches("http://").to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    ready(&format!("http://{}", listener.local_addr()?));
    loop {
        let (stream, _) = listener.accept().await?;
        let provider = provider.clone();
        // The caller reports how a connection ended.
        tokio::spawn(async move { drop(pass_on(stream, &provider).await) });
    }
}

async fn pass_on(client: TcpStream, provider: &str) -> Result<(), BenchError> {
    client.set_nodelay(true)?;
    let upstream = TcpStream::connect(provider).await?;
    upstream.set_nodelay(true)?;
    let (sender, connection) = client::conn::http1::handshake(TokioIo::new(upstream)).await?;
    tokio::spawn(async move { drop(connection.await) });
    let host = HeaderValue::from_str(provider)?;
    let sender = Mutex::new(sender);
    let service =
        service_fn(async |mut request: Request<Incoming>| -> Result<Response<Incoming>, hyper::Error> {
            request.headers_mut().insert(HOST, host.clone());
            let mut sender = sender.lock().await;
            sender.ready().await?;
            sender.send_request(request).await
        });
    Ok(server::conn::http1::Builder::new().serve_connection(TokioIo::new(client), service).await?)
}
