//! A reserved port: its holder can close a socket on it and open it again, and meanwhile nobody else gets
//! the port.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
};

use tokio::net::TcpSocket;

/// A socket that is bound but never listens. The system gives the port to nobody else, but a listener that
/// names it and sets `SO_REUSEADDR`, as tokio and PostgreSQL do, may use it. Until then, connections are
/// refused.
#[derive(Debug)]
pub struct ReservedPort(TcpSocket);

impl ReservedPort {
    /// Reserves a free port of 127.0.0.1.
    pub fn new() -> io::Result<Self> {
        ReservedPort::at((Ipv4Addr::LOCALHOST, 0).into())
    }

    /// Reserves this address; port 0 takes any free port.
    pub fn at(address: SocketAddr) -> io::Result<Self> {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        Ok(ReservedPort(socket))
    }

    /// Where it is.
    pub fn address(&self) -> SocketAddr {
        self.0.local_addr().expect("a bound socket has an address")
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[tokio::test]
    async fn a_reserved_port_refuses_until_it_is_listened_on_and_may_be_so_again_and_again() {
        let reserved = ReservedPort::new().expect("a port is free");
        for _ in 0..2 {
            let refused = TcpStream::connect(reserved.address()).await.expect_err("nobody listens");
            assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
            let listener = TcpListener::bind(reserved.address()).await.expect("it is ours");
            TcpStream::connect(reserved.address()).await.expect("there is a listener");
            drop(listener);
        }
    }
}
