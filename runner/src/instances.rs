//! The configurations of a plugin, by digest.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use hookgate::upstream::Redaction;

/// Most configurations. Gateways that crashed never release theirs, so the one that was initialised the longest ago makes
/// room. A gateway that still uses it initialises it again.
const MAX_INSTANCES: usize = 16;

/// One configuration.
pub(crate) struct Instance {
    pub(crate) digest: String,
    /// A JSON object.
    pub(crate) config: Bytes,
    /// What must not be shown of the program's output.
    pub(crate) redaction: Redaction,
    is_released: AtomicBool,
}

impl Instance {
    pub(crate) fn new(digest: String, config: Bytes, redaction: Redaction) -> Self {
        Instance { digest, config, redaction, is_released: AtomicBool::new(false) }
    }

    /// Whether no gateway uses it any more.
    pub(crate) fn is_released(&self) -> bool {
        self.is_released.load(Ordering::Acquire)
    }
}

struct HeldInstance {
    instance: Arc<Instance>,
    /// The gateways that use it.
    holders: BTreeSet<String>,
}

#[derive(Default)]
pub(crate) struct Instances(Mutex<VecDeque<HeldInstance>>);

impl Instances {
    /// Adds `instance` unless there is one of its digest, and records that `gateway` uses it.
    pub(crate) fn hold(&self, gateway: &str, instance: Instance) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = all.iter().position(|held| held.instance.digest == instance.digest);
        let mut held = place
            .and_then(|place| all.remove(place))
            .unwrap_or_else(|| HeldInstance { instance: Arc::new(instance), holders: BTreeSet::new() });
        held.holders.insert(gateway.to_owned());
        all.push_back(held);
        if all.len() > MAX_INSTANCES {
            all.pop_front().inspect(HeldInstance::release);
        }
    }

    /// The digests of all.
    pub(crate) fn digests(&self) -> Vec<String> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(|held| held.instance.digest.clone()).collect()
    }

    pub(crate) fn get(&self, digest: &str) -> Option<Arc<Instance>> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let held = all.iter().find(|held| held.instance.digest == digest)?;
        Some(Arc::clone(&held.instance))
    }

    /// Records that `gateway` uses `digest` no more; without one, none at all.
    pub(crate) fn release(&self, gateway: &str, digest: Option<&str>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain_mut(|held| {
            if digest.is_none_or(|digest| held.instance.digest == digest) {
                held.holders.remove(gateway);
            }
            if held.holders.is_empty() {
                held.release();
            }
            !held.holders.is_empty()
        });
    }
}

impl HeldInstance {
    fn release(&self) {
        self.instance.is_released.store(true, Ordering::Release);
    }
}
