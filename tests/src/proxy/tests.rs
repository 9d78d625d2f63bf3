use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream};

use super::*;

/// A plugin that echoes what it receives and counts its connections.
async fn echo() -> (String, watch::Receiver<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let connections = watch::Sender::new(0);
    let counted = connections.subscribe();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            connections.send_modify(|connections| *connections += 1);
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                let _ = tokio::io::copy(&mut from, &mut to).await;
            });
        }
    });
    (endpoint, counted)
}

async fn dial(proxy: &Proxy) -> TcpStream {
    let Address::Tcp(address) = proxy.address else { panic!("a TCP proxy") };
    TcpStream::connect(address).await.unwrap()
}

async fn exchange(stream: &mut TcpStream, text: &[u8]) {
    stream.write_all(text).await.unwrap();
    let mut back = vec![0; text.len()];
    timeout(PATIENCE, stream.read_exact(&mut back)).await.expect("in time").unwrap();
    assert_eq!(back, text);
}

#[tokio::test]
async fn bytes_go_through_both_ways_and_are_counted_and_ends_go_through() {
    let (endpoint, _) = echo().await;
    let proxy = Proxy::before(&endpoint).await;
    let mut stream = dial(&proxy).await;
    exchange(&mut stream, b"hello").await;
    let traffic = Traffic { connections: 1, taken_down: 5, passed_down: 5, taken_up: 5, passed_up: 5 };
    proxy.wait_until(|so_far| *so_far == traffic).await;
    stream.shutdown().await.unwrap();
    assert_eq!(timeout(PATIENCE, stream.read(&mut [0])).await.unwrap().unwrap(), 0);
}

#[tokio::test]
async fn unix_sockets_are_passed_on_to_unix_sockets() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let listener = UnixListener::bind(&path).unwrap();
    let mut proxy = Proxy::before(&format!("unix://{}", path.display())).await;
    let endpoint = proxy.endpoint("http");
    let mut above = UnixStream::connect(endpoint.trim_start_matches("unix://")).await.unwrap();
    above.write_all(b"x").await.unwrap();
    let (mut below, _) = listener.accept().await.unwrap();
    assert_eq!(below.read_u8().await.unwrap(), b'x');
    proxy.refuse().await;
    assert!(UnixStream::connect(endpoint.trim_start_matches("unix://")).await.is_err());
    proxy.listen().await;
    assert!(UnixStream::connect(endpoint.trim_start_matches("unix://")).await.is_ok());
    proxy.reset();
    assert_eq!(timeout(PATIENCE, above.read(&mut [0])).await.unwrap().unwrap_or(0), 0);
}

#[tokio::test]
async fn late_bytes_are_late_once_however_many_are_on_their_way() {
    let (endpoint, _) = echo().await;
    let proxy = Proxy::before(&endpoint).await;
    let (mut first, mut second) = (dial(&proxy).await, dial(&proxy).await);
    let late = Duration::from_millis(300);
    proxy.up(Flow::Late(late));
    let began = Instant::now();
    let many = async {
        for _ in 0..5 {
            first.write_all(b"a").await.unwrap();
            sleep(Duration::from_millis(20)).await;
        }
        first.read_exact(&mut [0; 5]).await.unwrap();
    };
    tokio::join!(many, exchange(&mut second, b"b"));
    let took = began.elapsed();
    assert!(took >= late && took < 4 * late, "{took:?}");
}

#[tokio::test]
async fn drips_come_a_few_at_a_time() {
    let (endpoint, _) = echo().await;
    let proxy = Proxy::before(&endpoint).await;
    let mut stream = dial(&proxy).await;
    proxy.up(Flow::Drip(2, Duration::from_millis(20)));
    let began = Instant::now();
    exchange(&mut stream, b"0123456789").await;
    assert!(began.elapsed() >= Duration::from_millis(100), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_far_end_that_vanished_says_nothing_more_not_even_that_it_ended() {
    let (endpoint, _) = echo().await;
    let proxy = Proxy::before(&endpoint).await;
    let mut stream = dial(&proxy).await;
    exchange(&mut stream, b"there").await;
    proxy.lose();
    exchange(&mut dial(&proxy).await, b"new").await;
    stream.write_all(b"anybody").await.unwrap();
    let traffic = proxy.wait_until(|traffic| traffic.taken_down == 15).await;
    assert_eq!(traffic.passed_down, 8);
    proxy.wait_until(|traffic| traffic.passed_up == 8).await;
    stream.shutdown().await.unwrap();
    assert!(timeout(Duration::from_millis(100), stream.read(&mut [0])).await.is_err());
}

#[tokio::test]
async fn a_black_hole_fills_buffers_and_never_reaches_the_plugin() {
    let (endpoint, connections) = echo().await;
    let proxy = Proxy::before(&endpoint).await;
    proxy.both(Flow::Stop);
    let mut stream = dial(&proxy).await;
    let endless = async { while stream.write_all(&[0; 1 << 16]).await.is_ok() {} };
    assert!(timeout(Duration::from_millis(200), endless).await.is_err(), "one of them has to wait");
    assert_eq!((proxy.traffic().taken_down, *connections.borrow()), (0, 0));
}

#[tokio::test]
async fn resets_are_resets_at_the_door_and_later() {
    let (endpoint, connections) = echo().await;
    let proxy = Proxy::before(&endpoint).await;
    let mut stream = dial(&proxy).await;
    exchange(&mut stream, b"there").await;
    proxy.reset();
    let error = timeout(PATIENCE, stream.read(&mut [0])).await.expect("in time").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);

    proxy.reset_next(1);
    let Address::Tcp(address) = proxy.address else { panic!("a TCP proxy") };
    let at_the_door = async { TcpStream::connect(address).await?.read(&mut [0]).await };
    // It fails while connecting or right after.
    let error = timeout(PATIENCE, at_the_door).await.expect("in time").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    assert_eq!(*connections.borrow(), 1, "it did not reach the plugin");
    exchange(&mut dial(&proxy).await, b"there again").await;
}

#[tokio::test]
async fn a_closed_listener_refuses_and_leaves_connections_alone() {
    let (endpoint, _) = echo().await;
    let mut proxy = Proxy::before(&endpoint).await;
    let mut stream = dial(&proxy).await;
    exchange(&mut stream, b"there").await;
    proxy.refuse().await;
    let Address::Tcp(address) = proxy.address else { panic!("a TCP proxy") };
    let refused = TcpSocket::new_v4().unwrap().connect(address).await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    exchange(&mut stream, b"still there").await;
    proxy.listen().await;
    exchange(&mut dial(&proxy).await, b"and again").await;
}
