//! Verdicts on parts of conversations, remembered: agents send the whole history again with every request, so what
//! was removed from a part once has to be removed from it every time.
//!
//! Only of this process: another replica, or the same after a restart, judges the part again. Losing a verdict costs
//! calls of plugins, never a leak.

use std::time::Duration;

use aws_lc_rs::hmac;
use bytes::Bytes;
use moka::{policy::EvictionPolicy, sync::Cache};

/// Weight of all verdicts, in bytes.
const MAX_WEIGHT: u64 = 64 << 20;
/// How long a verdict is kept after its last use.
const MAX_IDLE: Duration = Duration::from_secs(3_600);
/// A tenant's verdicts are all in one segment, so that no tenant takes more than its part of the memory, and at most the
/// tenants of the same segment lose verdicts because of another.
const SEGMENTS: u64 = 4;
/// What the cache itself needs for an entry, in bytes.
const ENTRY_OVERHEAD: usize = 192;

/// What plugins decided about a part of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RememberedVerdict {
    /// It stays as it is.
    Kept,
    /// These bytes replace it.
    Replaced(Bytes),
    /// It is removed.
    Blocked {
        /// The block's code.
        code: String,
        /// The message for the agent.
        message: String,
    },
}

impl RememberedVerdict {
    fn weight(&self) -> u32 {
        let own = match self {
            RememberedVerdict::Kept => 0,
            RememberedVerdict::Replaced(bytes) => bytes.len(),
            RememberedVerdict::Blocked { code, message } => code.len() + message.len(),
        };
        u32::try_from(own + ENTRY_OVERHEAD).unwrap_or(u32::MAX)
    }
}

/// Identifies the question that a verdict answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerdictKey {
    segment: usize,
    /// Half of a keyed SHA-256, which nobody without the key can find another question for.
    digest: u128,
}

/// The remembered verdicts of a process. Readers never wait for a writer.
#[derive(Debug)]
pub struct VerdictMemory {
    key: hmac::Key,
    segments: Vec<Cache<u128, RememberedVerdict>>,
}

impl Default for VerdictMemory {
    fn default() -> Self {
        VerdictMemory::with_limits(MAX_WEIGHT, MAX_IDLE)
    }
}

impl VerdictMemory {
    fn with_limits(weight: u64, idle: Duration) -> Self {
        let mut secret = [0; 32];
        aws_lc_rs::rand::fill(&mut secret).expect("the system has random bytes");
        let segment = |_| {
            Cache::builder()
                .max_capacity(weight / SEGMENTS)
                .weigher(|_, verdict: &RememberedVerdict| verdict.weight())
                .time_to_idle(idle)
                // The last verdict always gets in.
                .eviction_policy(EvictionPolicy::lru())
                .build()
        };
        VerdictMemory {
            key: hmac::Key::new(hmac::HMAC_SHA256, &secret),
            segments: (0..SEGMENTS).map(segment).collect(),
        }
    }

    /// The key of a question about a tenant's conversation. `parts` are everything that the verdict depends on; each
    /// counts with its length, so that no two lists of parts are alike.
    pub fn key<'p>(&self, tenant: &'p str, parts: impl IntoIterator<Item = &'p [u8]>) -> VerdictKey {
        let tenant = tenant.as_bytes();
        let segment = (self.digest([tenant]) % u128::from(SEGMENTS)) as usize;
        VerdictKey { segment, digest: self.digest([tenant].into_iter().chain(parts)) }
    }

    /// The verdict that is remembered for `key`.
    pub fn get(&self, key: VerdictKey) -> Option<RememberedVerdict> {
        self.segments[key.segment].get(&key.digest)
    }

    /// Remembers `verdict` in place of an earlier one.
    pub fn put(&self, key: VerdictKey, verdict: RememberedVerdict) {
        let verdict = match verdict {
            // A part of a larger buffer would keep all of it in memory.
            RememberedVerdict::Replaced(bytes) => RememberedVerdict::Replaced(Bytes::copy_from_slice(&bytes)),
            other => other,
        };
        self.segments[key.segment].insert(key.digest, verdict);
    }

    fn digest<'p>(&self, parts: impl IntoIterator<Item = &'p [u8]>) -> u128 {
        let mut context = hmac::Context::with_key(&self.key);
        for part in parts {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        let tag = context.sign();
        let half = tag.as_ref().first_chunk().expect("a SHA-256 has 32 bytes");
        u128::from_be_bytes(*half)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    fn key(memory: &VerdictMemory, tenant: &str, parts: &[&str]) -> VerdictKey {
        memory.key(tenant, parts.iter().map(|part| part.as_bytes()))
    }

    /// How much is in a segment, once everything that is due was done.
    fn weight(memory: &VerdictMemory, segment: usize) -> u64 {
        memory.segments[segment].run_pending_tasks();
        memory.segments[segment].weighted_size()
    }

    #[test]
    fn the_last_verdict_on_a_part_is_remembered() {
        let memory = VerdictMemory::default();
        let unit = key(&memory, "acme", &["user", "my address is a@b.c"]);
        assert_eq!(memory.get(unit), None);
        let blocked = RememberedVerdict::Blocked { code: "PII".into(), message: "no addresses".into() };
        for verdict in [
            RememberedVerdict::Kept,
            RememberedVerdict::Replaced(Bytes::from_static(b"my address is [x]")),
            blocked,
        ] {
            memory.put(unit, verdict.clone());
            assert_eq!(memory.get(unit), Some(verdict));
        }
    }

    #[test]
    fn a_verdict_answers_only_the_same_question() {
        let memory = VerdictMemory::default();
        memory.put(key(&memory, "acme", &["ab", "c"]), RememberedVerdict::Kept);
        for (tenant, parts) in [
            ("globex", &["ab", "c"][..]),
            ("acme", &["a", "bc"]),
            ("acme", &["abc"]),
            ("acme", &["ab", "c", ""]),
            ("acm", &["eab", "c"]),
        ] {
            assert_eq!(memory.get(key(&memory, tenant, parts)), None, "{tenant} {parts:?}");
        }
        assert!(memory.get(key(&memory, "acme", &["ab", "c"])).is_some());
        let other = VerdictMemory::default();
        assert_ne!(
            key(&memory, "acme", &["a"]).digest,
            key(&other, "acme", &["a"]).digest,
            "the key is random"
        );
    }

    #[test]
    fn an_unused_verdict_is_forgotten() {
        let memory = VerdictMemory::with_limits(MAX_WEIGHT, Duration::from_millis(50));
        let unit = key(&memory, "acme", &["a"]);
        memory.put(unit, RememberedVerdict::Kept);
        thread::sleep(Duration::from_millis(100));
        assert_eq!(memory.get(unit), None);
    }

    #[test]
    fn one_tenant_fills_only_its_segment() {
        let memory = VerdictMemory::with_limits(SEGMENTS * 64 * 1024, LONG);
        let mut tenants = (0..).map(|number| format!("t{number}"));
        let of = |tenant: &str| key(&memory, tenant, &["unit"]);
        let loud = tenants.next().unwrap();
        let quiet = tenants.find(|tenant| of(tenant).segment != of(&loud).segment).unwrap();
        memory.put(of(&quiet), RememberedVerdict::Kept);
        for number in 0..1_000_u32 {
            let unit = memory.key(&loud, [&number.to_be_bytes()[..]]);
            memory.put(unit, RememberedVerdict::Replaced(Bytes::from(vec![0; 1024])));
        }
        let last = memory.key(&loud, [&999_u32.to_be_bytes()[..]]);
        assert!(weight(&memory, last.segment) <= 64 * 1024);
        assert!(memory.get(last).is_some(), "the newest verdict stays");
        assert_eq!(memory.get(of(&quiet)), Some(RememberedVerdict::Kept));
    }

    #[test]
    fn a_remembered_part_keeps_no_larger_buffer() {
        let memory = VerdictMemory::default();
        let whole = Bytes::from(vec![7; 4096]);
        let unit = key(&memory, "acme", &["a"]);
        memory.put(unit, RememberedVerdict::Replaced(whole.slice(10..20)));
        assert!(whole.is_unique(), "the slice was copied");
        assert_eq!(memory.get(unit), Some(RememberedVerdict::Replaced(Bytes::from(vec![7; 10]))));
    }
}
