//! TCP, with or without TLS: to a name that is resolved at each dial, or to one of its addresses.

use std::{io, net::SocketAddr, sync::Arc};

use futures::future::BoxFuture;
use http::uri::{Authority, Scheme};
use rustls::pki_types::ServerName;
use tokio::net::{TcpStream, lookup_host};

use super::{Transport, answer_probe::AnswerProbe};
use crate::{
    config::{AddressRefusal, DialPolicy},
    tls,
    upstream::{
        connection::Connection,
        dial_error::{DialError, DialErrorKind},
    },
};

/// A host that resolves to any number of addresses.
#[derive(Clone)]
pub(in crate::upstream) struct DnsTarget {
    /// The address as configured.
    pub(in crate::upstream) address: String,
    pub(in crate::upstream) host: String,
    pub(in crate::upstream) port: u16,
    /// The authority of requests, whatever address they go to.
    pub(super) authority: Authority,
    /// Which of its addresses may be dialled.
    pub(super) policy: DialPolicy,
    pub(super) tls: Option<TlsIdentity>,
}

/// TLS settings, and the host name that the certificate must have.
pub(super) type TlsIdentity = (Arc<tls::Client>, ServerName<'static>);

/// Where a connection goes.
pub(super) enum Destination {
    Name { host: String, port: u16 },
    Address(SocketAddr),
}

pub(super) struct Tcp {
    pub(super) address: String,
    pub(super) authority: Authority,
    pub(super) to: Destination,
    pub(super) policy: DialPolicy,
    pub(super) tls: Option<TlsIdentity>,
}

impl Tcp {
    /// Connects to the first address that accepts. Disables Nagle's algorithm, which would cost 40 ms a call.
    pub(super) async fn dial(&self) -> Result<TcpStream, DialError> {
        let mut failed = DialError::new(DialErrorKind::NoAddress, "the name stands for no address");
        for address in self.addresses().await? {
            match TcpStream::connect(address).await {
                Ok(stream) => {
                    stream.set_nodelay(true).map_err(|error| DialError::from_socket(&error))?;
                    return Ok(stream);
                }
                Err(error) => failed = DialError::from_socket(&error),
            }
        }
        Err(failed)
    }

    /// The addresses that may be dialled.
    async fn addresses(&self) -> Result<Vec<SocketAddr>, DialError> {
        let addresses = match &self.to {
            Destination::Address(address) => vec![*address],
            Destination::Name { host, port } => {
                let found = lookup_host((&**host, *port)).await.map_err(|error| {
                    let detail = format!("`{host}` is not resolved ({error}): correct the name, or fix DNS");
                    DialError::new(DialErrorKind::NameUnresolved, detail)
                })?;
                found.collect()
            }
        };
        self.policy.permitted(addresses).map_err(|refusal| {
            let kind = match refusal {
                AddressRefusal::Unlisted(_) => DialErrorKind::NotPermitted,
                AddressRefusal::Denied(_) => DialErrorKind::EgressDenied,
            };
            DialError::new(kind, refusal.to_string())
        })
    }

    async fn plain(&self, stream: TcpStream) -> Result<Connection, DialError> {
        let peer = stream.peer_addr().map_err(|error| DialError::from_socket(&error))?;
        let private = peer.ip().to_canonical().is_loopback();
        let connected = Connection::http2(stream, Scheme::HTTP, self.authority.clone(), private).await;
        connected.map_err(|error| DialError::new(DialErrorKind::Closed, error.to_string()))
    }

    async fn secure(&self, (tls, host): &TlsIdentity, stream: TcpStream) -> Result<Connection, DialError> {
        let stream = tls.connect(host, stream).await.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                DialError::new(
                    DialErrorKind::TlsFailed,
                    format!(
                        "the plugin closed the connection during the TLS handshake ({error}): check its log"
                    ),
                )
            }
            _ => DialError::from_tls(&error),
        })?;
        if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
            let detail = "the plugin doesn't offer HTTP/2 (`h2` in ALPN): make it a gRPC server";
            return Err(DialError::new(DialErrorKind::TlsFailed, detail));
        }
        let (stream, answered) = AnswerProbe::new(stream);
        let connected = Connection::http2(stream, Scheme::HTTPS, self.authority.clone(), true).await;
        // In TLS 1.3 our side finishes before the plugin has seen our certificate. A rejection arrives in
        // place of the first bytes of HTTP/2, which a server sends unasked.
        match answered.await {
            Ok(Err(error)) => Err(error),
            Ok(Ok(())) => connected.map_err(|error| DialError::new(DialErrorKind::Closed, error.to_string())),
            Err(_) => Err(DialError::new(
                DialErrorKind::Closed,
                "the connection ended before the plugin answered anything",
            )),
        }
    }
}

impl Transport for Tcp {
    fn connect(&self) -> BoxFuture<'_, Result<Connection, DialError>> {
        Box::pin(async {
            let stream = self.dial().await?;
            match &self.tls {
                None => self.plain(stream).await,
                Some(tls) => self.secure(tls, stream).await,
            }
        })
    }

    fn address(&self) -> &str {
        &self.address
    }
}
