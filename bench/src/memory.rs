//! Measures how much memory the gateway takes for payload bytes in flight: as many of the largest calls as
//! `limits.bytes_in_flight` admits, and a few more, for a while (docs/performance.md).

use std::{
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use hookgate_proto::{
    gateway::v1::{BeforeToolCallRequest, extension_point_service_client::ExtensionPointServiceClient},
    types::v1::BeforeToolCallPayload,
};
use serde::Serialize;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tonic::{
    Code, Request,
    metadata::{Ascii, MetadataValue},
    transport::Endpoint,
};

use crate::{
    BenchError, gateway_config, gateway_process::GatewayProcess, payload::TENANT, plugins::ECHO_NAMES,
    process::RoleProcess,
};

const MIB: u64 = 1 << 20;
/// The maximum payload, less the overhead around it.
const MAX_PAYLOAD_BYTES: usize = (16 << 20) - 1024;
/// Calls beyond those that fit, so that the limit is always reached.
const EXCESS_CALLS: u64 = 2;

/// The result of one soak.
#[derive(Debug, Serialize)]
pub(crate) struct SoakResult {
    /// `limits.bytes_in_flight`, in MiB.
    cap_mib: u64,
    answered: u64,
    /// Rejected with OVERLOADED.
    refused: u64,
    /// Resident memory before the first large call, in MiB.
    base_mib: f64,
    /// The peak of resident memory, in MiB.
    peak_mib: f64,
    /// Memory per byte in flight: (peak - base) / cap.
    factor: f64,
}

#[derive(Default)]
struct CallTally {
    answered: AtomicU64,
    refused: AtomicU64,
}

/// Runs one soak for each cap, each with its own gateway.
pub(crate) async fn run_all(binary: &Path, quick: bool) -> Result<Vec<SoakResult>, BenchError> {
    let (caps, time): (&[u64], _) =
        if quick { (&[64], Duration::from_secs(2)) } else { (&[64, 128, 256], Duration::from_secs(20)) };
    let mut soaks = Vec::with_capacity(caps.len());
    for cap in caps {
        soaks.push(soak(binary, *cap, time).await?);
    }
    Ok(soaks)
}

async fn soak(binary: &Path, cap_mib: u64, time: Duration) -> Result<SoakResult, BenchError> {
    let plugin = RoleProcess::start(&["plugin", ECHO_NAMES[0], "http://127.0.0.1:0"])?;
    let mut config = gateway_config::chain(&[(ECHO_NAMES[0], &plugin.address)]);
    config["limits"] =
        json!({ "request": "16MiB", "bytes_in_flight": format!("{cap_mib}MiB"), "budget": "60s" });
    config["bindings"][0]["timeout"] = json!("60s");
    let gateway = GatewayProcess::start(binary, &config)?;
    let host = &*gateway.data_addr;
    let bearer: MetadataValue<Ascii> = format!("Bearer {}", gateway_config::token(TENANT)?).parse()?;

    call(host, &bearer, "{}".into(), Instant::now(), &CallTally::default()).await?;
    let base = gateway.memory("VmRSS:")?;
    let (until, tally) = (Instant::now() + time, CallTally::default());
    let workers = cap_mib * MIB / (16 * MIB) + EXCESS_CALLS;
    let args = bytes::Bytes::from(format!("\"{}\"", "a".repeat(MAX_PAYLOAD_BYTES - 2)));
    let (args, bearer, tally_of_all) = (&args, &bearer, &tally);
    let calls = (0..workers).map(|worker| async move {
        if worker % 2 == 0 {
            call(host, bearer, args.clone(), until, tally_of_all).await
        } else {
            call_over_http(host, bearer, args, until, tally_of_all).await
        }
    });
    futures::future::try_join_all(calls).await?;
    let peak = gateway.memory("VmHWM:")?;

    let mib = |bytes: u64| bytes as f64 / MIB as f64;
    let factor = (mib(peak) - mib(base)) / cap_mib as f64;
    let (answered, refused) = (tally.answered.into_inner(), tally.refused.into_inner());
    Ok(SoakResult { cap_mib, answered, refused, base_mib: mib(base), peak_mib: mib(peak), factor })
}

/// Makes calls one after another, at least one, over one connection.
async fn call(
    host: &str,
    bearer: &MetadataValue<Ascii>,
    args: bytes::Bytes,
    until: Instant,
    tally: &CallTally,
) -> Result<(), BenchError> {
    let channel = Endpoint::from_shared(format!("http://{host}"))?.connect().await?;
    let mut client = ExtensionPointServiceClient::new(channel).max_decoding_message_size(17 << 20);
    loop {
        let payload =
            BeforeToolCallPayload { tool_name: "t".into(), args: args.clone(), ..Default::default() };
        let mut request =
            Request::new(BeforeToolCallRequest { payload: Some(payload), ..Default::default() });
        request.metadata_mut().insert("authorization", bearer.clone());
        match client.before_tool_call(request).await {
            Ok(_) => tally.answered.fetch_add(1, Ordering::Relaxed),
            Err(status) if matches!(status.code(), Code::ResourceExhausted | Code::Unavailable) => {
                tally.refused.fetch_add(1, Ordering::Relaxed)
            }
            Err(status) => return Err(status.into()),
        };
        if Instant::now() >= until {
            return Ok(());
        }
    }
}

/// The same over HTTP/1.1, with a new connection for each call.
async fn call_over_http(
    host: &str,
    bearer: &MetadataValue<Ascii>,
    args: &[u8],
    until: Instant,
    tally: &CallTally,
) -> Result<(), BenchError> {
    let body = [br#"{"payload":{"tool_name":"t","args":"#, args, b"}}"].concat();
    let (bearer, length) = (bearer.to_str()?, body.len());
    let head = format!(
        "POST /v1/before-tool-call HTTP/1.1\r\nhost: {host}\r\nauthorization: {bearer}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    while Instant::now() < until {
        let mut stream = TcpStream::connect(host).await?;
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(&body).await?;
        let mut answer = Vec::with_capacity(MAX_PAYLOAD_BYTES);
        stream.read_to_end(&mut answer).await?;
        match answer.get(9..12) {
            Some(b"200") => tally.answered.fetch_add(1, Ordering::Relaxed),
            Some(b"429" | b"503") => tally.refused.fetch_add(1, Ordering::Relaxed),
            status => return Err(format!("status {status:?} over HTTP").into()),
        };
    }
    Ok(())
}

#[allow(clippy::print_stdout)] // standard output is where a command shows what it found
pub(crate) fn print(soaks: &[SoakResult]) {
    println!(
        "{:>16}{:>10}{:>10}{:>10}{:>10}{:>9}",
        "bytes_in_flight", "answered", "refused", "base MiB", "peak MiB", "factor"
    );
    for SoakResult { cap_mib, answered, refused, base_mib, peak_mib, factor } in soaks {
        println!("{cap_mib:>12} MiB{answered:>10}{refused:>10}{base_mib:>10.0}{peak_mib:>10.0}{factor:>9.1}");
    }
}
