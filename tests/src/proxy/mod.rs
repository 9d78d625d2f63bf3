//! A faulty network between the gateway and a plugin: passes bytes on, delays them, drips them, drops them,
//! lets the far end vanish, resets, refuses. It doesn't interpret the bytes, so it works for plain HTTP/2
//! and TLS, on TCP and Unix sockets. Unix sockets have no reset, so their connections just end.
//!
//! The gateway is above and the plugin below: *down* is the direction of requests, *up* that of replies.

mod socket;

use std::{
    fmt, io,
    sync::{Arc, LazyLock},
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    runtime::Runtime,
    sync::{mpsc, watch},
    task::JoinHandle,
    time::{Instant, sleep, sleep_until, timeout},
};

use self::socket::{Address, Held, Listener, Socket};

/// Serves all proxies of the process.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .thread_name("proxies")
        .build()
        .expect("threads can be started")
});

/// The timeout of [`Proxy::wait_until`].
const PATIENCE: Duration = Duration::from_secs(35);
/// The maximum number of pieces in transit in one direction; beyond that, reading pauses.
const ON_THEIR_WAY: usize = 256;

/// What happens to the bytes of one direction. A change also applies to existing connections; bytes that
/// were read before it stay in transit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// They are passed on.
    Pass,
    /// They are passed on after this delay, in order.
    Late(Duration),
    /// This many at a time are passed on, after this pause each time.
    Drip(usize, Duration),
    /// They and their end are read and dropped: the far side has vanished without FIN or RST.
    Vanish,
    /// They are not read, so the sender's buffers fill.
    Stop,
}

/// What happens to new connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AcceptPolicy {
    Open,
    /// This many are reset before anything is read.
    Reset(u64),
}

/// The proxy's current behaviour, which all connections read.
#[derive(Debug, Clone, Copy)]
struct ProxyState {
    down: Flow,
    up: Flow,
    door: AcceptPolicy,
    /// Incremented whenever connections are reset or lost. Each connection has the age at which it was
    /// accepted.
    age: u64,
    /// Connections of an earlier age are reset.
    reset_before: u64,
    /// For connections of an earlier age, the far end has vanished.
    lost_before: u64,
}

/// The traffic so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Connections accepted.
    pub connections: u64,
    /// Bytes read from the gateway, passed on or not.
    pub taken_down: u64,
    /// Bytes sent to the plugin.
    pub passed_down: u64,
    /// Bytes read from the plugin, passed on or not.
    pub taken_up: u64,
    /// Bytes sent to the gateway.
    pub passed_up: u64,
}

/// A proxy on its own thread, so that a blocked test doesn't stop it. Dropping it drops its connections.
pub struct Proxy {
    address: Address,
    _held: Held,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

struct Shared {
    plugin: Address,
    script: watch::Sender<ProxyState>,
    traffic: watch::Sender<Traffic>,
}

impl Proxy {
    /// Starts a proxy for the plugin at this endpoint, with the same kind of socket. It passes everything
    /// on.
    pub async fn before(endpoint: &str) -> Self {
        let (plugin, address, held) = Address::pair(endpoint);
        let (flow, door) = (Flow::Pass, AcceptPolicy::Open);
        let script = ProxyState { down: flow, up: flow, door, age: 0, reset_before: 0, lost_before: 0 };
        let (script, traffic) = (watch::Sender::new(script), watch::Sender::default());
        let shared = Arc::new(Shared { plugin, script, traffic });
        let mut proxy = Proxy { address, _held: held, shared, accepting: None };
        proxy.listen().await;
        proxy
    }

    /// The plugin's endpoint with the proxy's address. `scheme` is for TCP endpoints.
    pub fn endpoint(&self, scheme: &str) -> String {
        match &self.address {
            Address::Tcp(address) => format!("{scheme}://{address}"),
            Address::Unix(path) => format!("unix://{}", path.display()),
        }
    }

    /// Sets the flow of requests.
    pub fn down(&self, flow: Flow) {
        self.shared.script.send_modify(|script| script.down = flow);
    }

    /// Sets the flow of replies.
    pub fn up(&self, flow: Flow) {
        self.shared.script.send_modify(|script| script.up = flow);
    }

    /// Sets both flows.
    pub fn both(&self, flow: Flow) {
        self.down(flow);
        self.up(flow);
    }

    /// Resets all current connections.
    pub fn reset(&self) {
        self.shared.script.send_modify(|script| {
            script.age += 1;
            script.reset_before = script.age;
        });
    }

    /// Lets the far end of all current connections vanish. New ones are not affected.
    pub fn lose(&self) {
        self.shared.script.send_modify(|script| {
            script.age += 1;
            script.lost_before = script.age;
        });
    }

    /// Resets the next `connections` before anything is read from them.
    pub fn reset_next(&self, connections: u64) {
        let door = if connections == 0 { AcceptPolicy::Open } else { AcceptPolicy::Reset(connections) };
        self.shared.script.send_modify(|script| script.door = door);
    }

    /// Closes the listener, but keeps the connections.
    pub async fn refuse(&mut self) {
        let accepting = self.accepting.take().expect("it listens");
        accepting.abort();
        let _ = accepting.await; // aborted on purpose
        self.address.clean_up();
    }

    /// Listens again at the same address.
    pub async fn listen(&mut self) {
        let address = self.address.clone();
        let listening = RUNTIME.spawn(async move { address.listen().await.expect("the address is free") });
        let listener = listening.await.expect("it has just said why not");
        let shared = Arc::clone(&self.shared);
        self.accepting = Some(RUNTIME.spawn(accept(listener, shared)));
    }

    /// The traffic so far.
    pub fn traffic(&self) -> Traffic {
        *self.shared.traffic.borrow()
    }

    /// Waits until `condition` holds for the traffic.
    ///
    /// # Panics
    /// After 35 s, with the traffic.
    pub async fn wait_until(&self, condition: impl FnMut(&Traffic) -> bool) -> Traffic {
        let mut traffic = self.shared.traffic.subscribe();
        match timeout(PATIENCE, traffic.wait_for(condition)).await {
            Ok(met) => *met.expect("the proxy holds the sender"),
            Err(_) => panic!("not within {PATIENCE:?}; so far {:?}", self.traffic()),
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(accepting) = &self.accepting {
            accepting.abort();
        }
        self.reset();
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proxy {{ {:?} before {:?}: {:?} }}", self.address, self.shared.plugin, self.traffic())
    }
}

async fn accept(listener: Listener, shared: Arc<Shared>) {
    loop {
        let Ok(gateway) = listener.accept().await else {
            continue; // it went away before it was accepted
        };
        shared.traffic.send_modify(|traffic| traffic.connections += 1);
        let mut is_reset = false;
        shared.script.send_if_modified(|script| {
            if let AcceptPolicy::Reset(left) = script.door {
                is_reset = true;
                script.door = if left > 1 { AcceptPolicy::Reset(left - 1) } else { AcceptPolicy::Open };
            }
            is_reset
        });
        if is_reset {
            gateway.reset_on_drop();
            continue;
        }
        // Spawned separately, because connections outlive the listener.
        let shared = Arc::clone(&shared);
        tokio::spawn(async move { shared.connection(gateway).await });
    }
}

#[derive(Clone, Copy)]
enum Direction {
    Down,
    Up,
}

impl Shared {
    /// Serves one connection. It is reset on request, or if the plugin can't be reached.
    async fn connection(&self, mut gateway: Box<dyn Socket>) {
        let mut script = self.script.subscribe();
        let age = script.borrow().age;
        let was_reset = tokio::select! {
            relayed = self.relay(&mut gateway, age) => relayed.is_err(),
            _ = script.wait_for(|script| script.reset_before > age) => true,
        };
        if was_reset {
            gateway.reset_on_drop();
        }
    }

    /// Returns when both directions have ended; fails if the plugin can't be reached.
    async fn relay(&self, gateway: &mut Box<dyn Socket>, age: u64) -> io::Result<()> {
        let flows =
            |script: &ProxyState| !matches!(script.flow(Direction::Down, age), Flow::Stop | Flow::Vanish);
        let mut script = self.script.subscribe();
        // A connection that is lost from the beginning never reaches the plugin.
        let _ = script.wait_for(flows).await;
        let plugin = self.plugin.dial().await?;
        let (from_gateway, to_gateway) = tokio::io::split(gateway);
        let (from_plugin, to_plugin) = tokio::io::split(plugin);
        let (down, up) = (mpsc::channel(ON_THEIR_WAY), mpsc::channel(ON_THEIR_WAY));
        tokio::join!(
            self.take(Direction::Down, age, from_gateway, down.0),
            self.pass_on(Direction::Down, age, to_plugin, down.1),
            self.take(Direction::Up, age, from_plugin, up.0),
            self.pass_on(Direction::Up, age, to_gateway, up.1),
        );
        Ok(())
    }

    /// Reads to the end, or forever if the end is lost.
    async fn take(
        &self,
        way: Direction,
        age: u64,
        mut from: impl AsyncRead + Unpin,
        pieces: mpsc::Sender<(Instant, Bytes)>,
    ) {
        let mut script = self.script.subscribe();
        let mut buffer = vec![0; 16 << 10];
        loop {
            let flow = script.borrow_and_update().flow(way, age);
            let read = tokio::select! {
                biased;
                _ = script.changed() => continue,
                read = from.read(&mut buffer), if flow != Flow::Stop => read.unwrap_or(0),
            };
            self.count(way, read, Traffic::taken);
            let due = match flow {
                Flow::Late(delay) => Instant::now() + delay,
                _ => Instant::now(),
            };
            match (flow, read) {
                (Flow::Vanish, 0) => std::future::pending().await,
                (Flow::Vanish, _) => {}
                (_, 0) => return,
                _ if pieces.send((due, Bytes::copy_from_slice(&buffer[..read]))).await.is_err() => return,
                _ => {}
            }
        }
    }

    /// Writes what was read, then its end.
    async fn pass_on(
        &self,
        way: Direction,
        age: u64,
        mut to: impl AsyncWrite + Unpin,
        mut pieces: mpsc::Receiver<(Instant, Bytes)>,
    ) {
        while let Some((due, mut piece)) = pieces.recv().await {
            sleep_until(due).await;
            while !piece.is_empty() {
                let flow = self.script.borrow().flow(way, age);
                let most = if let Flow::Drip(most, pause) = flow {
                    sleep(pause).await;
                    most.max(1)
                } else {
                    piece.len()
                };
                let part = piece.split_to(most.min(piece.len()));
                if to.write_all(&part).await.is_err() {
                    return; // the other end is gone, so the rest can't be delivered
                }
                self.count(way, part.len(), Traffic::passed);
            }
        }
        let _ = to.shutdown().await;
    }

    fn count(&self, way: Direction, bytes: usize, counter: fn(&mut Traffic, Direction) -> &mut u64) {
        self.traffic.send_modify(|traffic| *counter(traffic, way) += bytes as u64);
    }
}

impl ProxyState {
    /// The flow for a connection of this age.
    fn flow(&self, way: Direction, age: u64) -> Flow {
        match way {
            _ if age < self.lost_before => Flow::Vanish,
            Direction::Down => self.down,
            Direction::Up => self.up,
        }
    }
}

impl Traffic {
    fn taken(&mut self, way: Direction) -> &mut u64 {
        match way {
            Direction::Down => &mut self.taken_down,
            Direction::Up => &mut self.taken_up,
        }
    }

    fn passed(&mut self, way: Direction) -> &mut u64 {
        match way {
            Direction::Down => &mut self.passed_down,
            Direction::Up => &mut self.passed_up,
        }
    }
}

#[cfg(test)]
mod tests;
