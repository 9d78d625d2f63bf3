use std::{io, sync::mpsc};

use super::*;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// Collects what was written, for tests of the output.
#[derive(Clone, Default)]
pub(in crate::telemetry) struct Written(Arc<Mutex<Vec<u8>>>);

impl Written {
    pub(in crate::telemetry) fn text(&self) -> String {
        String::from_utf8(self.0.lock().expect("nobody panics").clone()).expect("UTF-8")
    }
}

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("nobody panics").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Passes on each write, which blocks until it is received.
struct Reader(mpsc::SyncSender<Vec<u8>>);

impl Write for Reader {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Without a reader it blocks for ever, like a full pipe.
        match self.0.send(bytes.to_owned()) {
            Ok(()) => Ok(bytes.len()),
            Err(_) => Err(ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A queue whose output is read on demand, and the receiver of its reports.
fn queue() -> (Arc<LogQueue>, mpsc::Receiver<Vec<u8>>, mpsc::Receiver<u64>) {
    let (written, reader) = mpsc::sync_channel(0);
    let (report, reports) = mpsc::channel();
    let queue = LogQueue::start(Reader(written), move |lines| {
        let _ = report.send(lines); // the test may be over
    });
    (queue, reader, reports)
}

/// Reads until `end` is there.
fn read_until(reader: &mpsc::Receiver<Vec<u8>>, end: &str) -> String {
    let mut text = String::new();
    while !text.ends_with(end) {
        text += &String::from_utf8(reader.recv_timeout(PATIENCE).expect("it is written")).expect("UTF-8");
    }
    text
}

fn line(number: usize) -> String {
    format!("{number:>1023}\n")
}

#[test]
fn lines_come_out_in_order_and_whole_however_many_are_written_at_once() {
    let (queue, reader, _) = queue();
    let lines: Vec<_> = (0..1000).map(line).collect();
    let long = format!("{}\n", "x".repeat(3 * MAX_WRITE_BYTES));
    lines.iter().for_each(|line| queue.push(line.as_bytes()));
    queue.push(long.as_bytes());
    queue.push(b"end\n");
    let mut text = String::new();
    while !text.ends_with("end\n") {
        let piece = reader.recv_timeout(PATIENCE).expect("it is written");
        assert!(piece.ends_with(b"\n") && (piece.len() <= MAX_WRITE_BYTES || piece == long.as_bytes()));
        text += &String::from_utf8(piece).expect("UTF-8");
    }
    assert_eq!(text, format!("{}{long}end\n", lines.concat()));
    assert_eq!(queue.dropped(), 0);
}

#[test]
fn logging_never_waits_and_dropped_lines_are_counted_and_reported_later() {
    let (queue, reader, reports) = queue();
    let pushed = 3 * MAX_QUEUED_BYTES / 1024;
    (0..pushed).for_each(|number| queue.push(line(number).as_bytes()));
    // One batch is under way, and one waits.
    let dropped = queue.dropped();
    let kept = pushed - usize::try_from(dropped).expect("they are few");
    assert!((MAX_QUEUED_BYTES / 1024..=2 * MAX_QUEUED_BYTES / 1024).contains(&kept), "{kept}");
    assert!(futures::FutureExt::now_or_never(queue.overflowed()).is_some(), "it is told that it begins");
    assert!(futures::FutureExt::now_or_never(queue.overflowed()).is_none(), "once");

    let expected: String = (0..kept).map(line).collect();
    assert_eq!(read_until(&reader, &line(kept - 1)), expected, "the first ones are there");
    assert_eq!(reports.recv_timeout(PATIENCE), Ok(dropped));
    queue.push(b"more\n");
    read_until(&reader, "more\n");
    assert_eq!(reports.try_recv().ok(), None, "they are reported once");
}

/// Pushes until much is dropped, and returns how much.
fn overflow(queue: &LogQueue, reader: &mpsc::Receiver<Vec<u8>>) -> u64 {
    let (pushed, before) = (3 * MAX_QUEUED_BYTES / 1024, queue.dropped());
    (0..pushed).for_each(|number| queue.push(line(number).as_bytes()));
    let dropped = queue.dropped() - before;
    read_until(reader, &line(pushed - 1 - usize::try_from(dropped).expect("they are few")));
    dropped
}

#[test]
fn what_is_dropped_soon_after_a_report_is_reported_later_and_at_once_by_a_flush() {
    let (queue, reader, reports) = queue();
    let dropped = overflow(&queue, &reader);
    assert_eq!(reports.recv_timeout(PATIENCE), Ok(dropped));
    let dropped = overflow(&queue, &reader);
    queue.push(b"more\n");
    read_until(&reader, "more\n");
    assert_eq!(reports.try_recv().ok(), None, "there was one a moment ago");
    queue.flush(PATIENCE);
    assert_eq!(reports.try_recv(), Ok(dropped));
}

#[test]
fn a_flush_waits_for_a_reader_and_not_for_ever() {
    let (queue, reader, _) = queue();
    queue.push(b"one\n");
    let began = Instant::now();
    queue.flush(Duration::from_millis(20));
    assert!(began.elapsed() >= Duration::from_millis(20));
    let reading = thread::spawn(move || read_until(&reader, "two\n"));
    queue.push(b"two\n");
    queue.flush(PATIENCE);
    assert_eq!(reading.join().expect("it ends"), "one\ntwo\n");
    let began = Instant::now();
    queue.flush(PATIENCE);
    assert!(began.elapsed() < PATIENCE / 2, "there is nothing to wait for");
}

#[test]
fn lines_that_cannot_be_written_are_counted_and_delay_nothing() {
    let (queue, reader, reports) = queue();
    drop(reader);
    queue.push(b"one\ntwo\n");
    queue.flush(PATIENCE);
    assert_eq!(queue.dropped(), 2);
    assert_eq!(reports.try_recv().ok(), None, "nobody would read it");
}

#[test]
fn a_line_beyond_the_bound_is_cut() {
    let (queue, reader, _) = queue();
    queue.push(format!("{}\n", "x".repeat(2 * MAX_LINE_BYTES)).as_bytes());
    let text = read_until(&reader, "bytes)\n");
    assert_eq!(text.len(), MAX_LINE_BYTES);
}
