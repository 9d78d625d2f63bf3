//! The throughput of the gateway's scan of JSON text, which checks syntax, depth and repeated keys.

use std::{hint::black_box, time::Duration};

use hookgate::json;
use serde_json::{Value, json};

use crate::{BenchError, proc_fs};

/// The size of the scanned text.
const TEXT_BYTES: usize = 256 << 10;

/// Scans for about `time` in this thread, and returns gigabytes per second of CPU time.
pub(crate) fn measure(time: Duration) -> Result<f64, BenchError> {
    let text = records();
    let (begun, mut bytes) = (proc_fs::thread_cpu()?, 0);
    loop {
        json::scan(black_box(text.as_bytes()), json::MAX_DEPTH).map_err(|error| format!("{error:?}"))?;
        bytes += text.len();
        let took = proc_fs::thread_cpu()? - begun;
        if took >= time {
            return Ok(bytes as f64 / took.as_secs_f64() / 1e9);
        }
    }
}

/// What a tool that queries a database returns: records with members of every type, nested, one of them with
/// escapes.
fn records() -> String {
    let record = |number: usize| {
        json!({
            "id": number, "region": "EMEA", "amount": 1250.75, "paid": number.is_multiple_of(2), "note": null,
            "customer": { "name": "Müller & Söhne", "tags": ["retail", "net-30"], "since": "2019-04-01" },
            "comment": "Delivered to the \"north\" gate.\nSigned by the receptionist on duty.",
        })
    };
    let length = record(1000).to_string().len();
    Value::from_iter((0..TEXT_BYTES / length).map(record)).to_string()
}
