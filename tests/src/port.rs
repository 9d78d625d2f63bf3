//! A reserved port: its holder can close a socket on it and open it again, and meanwhile nobody else gets
//! the port.

use std::{
    io,
    net::{self, Ipv4Addr, Shutdown, SocketAddr},
    ops::Deref,
    os::fd::OwnedFd,
};

use tokio::net::{TcpListener, TcpSocket};

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

/// A listener whose port refuses connections from its drop on.
///
/// Closing the socket is not enough: a process that is being started holds a copy of every open file between
/// fork and exec, and a copy keeps the socket listening.
#[derive(Debug)]
pub struct ShutdownListener(Option<TcpListener>);

impl ShutdownListener {
    /// Listens at this address.
    pub async fn bind(address: SocketAddr) -> io::Result<Self> {
        Ok(ShutdownListener(Some(TcpListener::bind(address).await?)))
    }
}

impl Deref for ShutdownListener {
    type Target = TcpListener;

    fn deref(&self) -> &TcpListener {
        self.0.as_ref().expect("only its drop takes it")
    }
}

impl Drop for ShutdownListener {
    fn drop(&mut self) {
        let listener = self.0.take().and_then(|listener| listener.into_std().ok());
        if let Some(listener) = listener {
            // Only a stream of the standard library has a method for the call, which every socket takes.
            let _ = net::TcpStream::from(OwnedFd::from(listener)).shutdown(Shutdown::Both);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use tokio::net::TcpStream;

    use super::*;

    #[tokio::test]
    async fn a_reserved_port_refuses_until_it_is_listened_on_and_may_be_so_again_and_again() {
        let reserved = ReservedPort::new().expect("a port is free");
        for _ in 0..2 {
            let refused = TcpStream::connect(reserved.address()).await.expect_err("nobody listens");
            assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
            let listener = ShutdownListener::bind(reserved.address()).await.expect("it is ours");
            TcpStream::connect(reserved.address()).await.expect("there is a listener");
            drop(listener);
        }
    }

    #[tokio::test]
    async fn a_dropped_listener_refuses_though_a_copy_of_its_socket_is_open() {
        let listener = ShutdownListener::bind((Ipv4Addr::LOCALHOST, 0).into()).await.expect("a port is free");
        let address = listener.local_addr().expect("it has an address");
        // As a process that another test starts holds one until its exec.
        let copy = listener.as_fd().try_clone_to_owned().expect("there is room for a file");
        drop(listener);
        let refused = TcpStream::connect(address).await.expect_err("nobody listens");
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        drop(copy);
    }
}
