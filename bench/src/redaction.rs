//! The throughput of `redact` on a whole text.

use std::{fmt::Write as _, hint::black_box, time::Duration};

use hookgate_redaction::{Detector, Redactor};

use crate::{BenchError, proc_fs};

/// The size of the searched text.
const TEXT_BYTES: usize = 1 << 20;

/// Redacts a text without anything to find for about `time` in this thread, and returns gigabytes per second of CPU time.
pub(crate) fn clean(time: Duration) -> Result<f64, BenchError> {
    measure(
        time,
        &lines(|text, number| {
            writeln!(
                text,
                "{number}: The order was delivered to the north gate on 2026-03-14 at 10:{:02}, and signed for.",
                number % 60
            )
        })?,
    )
}

/// The same with something to find in every line.
pub(crate) fn dense(time: Duration) -> Result<f64, BenchError> {
    measure(
        time,
        &lines(|text, number| {
            writeln!(
                text,
                "{number}: The order of ada{number}@example.com was paid with 4111 1111 1111 1111, and signed for."
            )
        })?,
    )
}

fn lines(write: impl Fn(&mut String, usize) -> std::fmt::Result) -> Result<String, BenchError> {
    let mut text = String::with_capacity(TEXT_BYTES + 128);
    for number in 0.. {
        if text.len() >= TEXT_BYTES {
            break;
        }
        write(&mut text, number)?;
    }
    Ok(text)
}

fn measure(time: Duration, text: &str) -> Result<f64, BenchError> {
    let redactor: Redactor =
        Detector::ALL.into_iter().filter(|detector| !Detector::BROAD.contains(detector)).collect();
    let (begun, mut bytes) = (proc_fs::thread_cpu()?, 0);
    loop {
        black_box(redactor.redact(black_box(text), None));
        bytes += text.len();
        let took = proc_fs::thread_cpu()? - begun;
        if took >= time {
            return Ok(bytes as f64 / took.as_secs_f64() / 1e9);
        }
    }
}
