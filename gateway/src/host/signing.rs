//! The keys that sign plugins' tokens. They are in the database, so that any replica accepts a token of any other. There
//! are two generations: a new key signs, and the one before is still accepted.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwapOption;
use jsonwebtoken::{DecodingKey, EncodingKey};
use tokio::{sync::Mutex, time::Instant};

use super::{
    now_ms,
    token::{self, Refusal, TokenClaims},
};
use crate::store::{PluginData, SigningKey, StoreError};

/// How long a key signs.
pub(super) const KEY_AGE: Duration = Duration::from_secs(24 * 60 * 60);
/// How often the keys are read again.
const REFRESH_INTERVAL: Duration = Duration::from_secs(60);
/// How soon they are, after a failure.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// How often a token of an unknown key makes this process read them: anyone can invent such a token.
const MIN_UNKNOWN_KEY_INTERVAL: Duration = Duration::from_secs(1);

/// The keys as last read.
struct AcceptedKeys {
    /// The newest one signs.
    newest: (u64, EncodingKey),
    accepted: Vec<(u64, DecodingKey)>,
}

impl AcceptedKeys {
    fn new(keys: &[SigningKey]) -> Option<Self> {
        let newest = keys.first()?;
        let accepted = keys.iter().map(|key| (key.generation, DecodingKey::from_secret(&key.secret)));
        Some(AcceptedKeys {
            newest: (newest.generation, EncodingKey::from_secret(&newest.secret)),
            accepted: accepted.collect(),
        })
    }

    fn find(&self, generation: u64) -> Option<&DecodingKey> {
        self.accepted.iter().find(|(own, _)| *own == generation).map(|(_, key)| key)
    }
}

/// The keys of this process.
pub(super) struct KeyRing {
    data: Arc<dyn PluginData>,
    /// `None` until they were read first.
    keys: ArcSwapOption<AcceptedKeys>,
    /// When a token of an unknown key last made this process read them. Held while reading.
    asked: Mutex<Option<Instant>>,
}

impl KeyRing {
    pub(super) fn new(data: Arc<dyn PluginData>) -> Self {
        KeyRing { data, keys: ArcSwapOption::empty(), asked: Mutex::new(None) }
    }

    /// Reads the keys, so that the first plugins get tokens. A failure is logged, and [`KeyRing::follow`] tries again.
    pub(super) async fn prepare(&self) {
        if let Err(error) = self.refresh().await {
            tracing::warn!(%error, "the keys for plugins' tokens can't be read");
        }
    }

    /// Keeps the keys current, and makes a new one when the newest is too old.
    pub(super) async fn follow(&self) {
        let mut was_read = self.keys.load().is_some();
        loop {
            tokio::time::sleep(if was_read { REFRESH_INTERVAL } else { RETRY_INTERVAL }).await;
            let refreshed = self.refresh().await;
            if let (Err(error), true) = (&refreshed, was_read) {
                tracing::warn!(%error, "the keys for plugins' tokens can't be read");
            }
            was_read = refreshed.is_ok();
        }
    }

    pub(super) async fn refresh(&self) -> Result<(), StoreError> {
        let mut keys = self.data.signing_keys().await?;
        let oldest_signing = now_ms() - i64::try_from(KEY_AGE.as_millis()).unwrap_or(i64::MAX);
        if keys.first().is_none_or(|newest| newest.created_ms <= oldest_signing) {
            let generation = keys.first().map_or(0, |newest| newest.generation) + 1;
            // Another replica may add this generation first; then its key is read here.
            self.data
                .add_signing_key(&SigningKey { generation, created_ms: now_ms(), secret: secret()? })
                .await?;
            keys = self.data.signing_keys().await?;
        }
        self.keys.store(AcceptedKeys::new(&keys).map(Arc::new));
        Ok(())
    }

    /// Signs `claims`. `None` if the keys were not read yet.
    pub(super) fn sign(&self, claims: &TokenClaims) -> Option<String> {
        let keys = self.keys.load();
        let (generation, key) = &keys.as_ref()?.newest;
        token::sign(claims, *generation, key)
    }

    /// The claims of a token that this or another replica signed.
    pub(super) async fn verify(&self, token: &str) -> Result<TokenClaims, Refusal> {
        let generation = token::generation(token)?;
        if let Some(claims) = self.verify_known(token, generation) {
            return claims;
        }
        // Another replica may have made a new key since.
        self.ask_again(generation).await;
        match self.verify_known(token, generation) {
            Some(claims) => claims,
            None if self.keys.load().is_none() => Err(Refusal::KeysUnavailable),
            None => Err(Refusal::Invalid),
        }
    }

    /// `None` if the key isn't known.
    fn verify_known(&self, token: &str, generation: u64) -> Option<Result<TokenClaims, Refusal>> {
        let keys = self.keys.load();
        Some(token::verify(token, keys.as_ref()?.find(generation)?))
    }

    async fn ask_again(&self, generation: u64) {
        let mut asked = self.asked.lock().await;
        let is_known = || self.keys.load().as_ref().is_some_and(|keys| keys.find(generation).is_some());
        if is_known() || asked.is_some_and(|last| last.elapsed() < MIN_UNKNOWN_KEY_INTERVAL) {
            return;
        }
        *asked = Some(Instant::now());
        if let Err(error) = self.refresh().await {
            tracing::debug!(%error, "the keys for plugins' tokens can't be read");
        }
    }
}

fn secret() -> Result<[u8; 32], StoreError> {
    let mut secret = [0; 32];
    aws_lc_rs::rand::fill(&mut secret)
        .map_err(|_| StoreError::Unavailable("the system gave no random bytes for a key".into()))?;
    Ok(secret)
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::store;

    const DAY_MS: i64 = 24 * 60 * 60 * 1000;

    async fn ring() -> (KeyRing, tempfile::TempDir) {
        let folder = tempfile::tempdir().expect("a folder");
        let url = format!("sqlite:{}", folder.path().join("data.db").display());
        let store = store::open(&url).expect("a database");
        store.prepare().await.expect("its tables");
        (KeyRing::new(store), folder)
    }

    /// Adds a key that is `age_ms` old, as another replica would have.
    async fn add(ring: &KeyRing, generation: u64, age_ms: i64) {
        let secret = [u8::try_from(generation).expect("few generations"); 32];
        let key = SigningKey { generation, created_ms: now_ms() - age_ms, secret };
        ring.data.add_signing_key(&key).await.expect("it is stored");
        ring.refresh().await.expect("it is read");
    }

    fn signed(ring: &KeyRing) -> (u64, String) {
        let expires = SystemTime::now() + Duration::from_secs(60);
        let token = ring.sign(&TokenClaims::for_plugin("quota", &[], expires)).expect("there is a key");
        (token::generation(&token).expect("it names its key"), token)
    }

    #[tokio::test]
    async fn a_key_signs_for_a_day_and_is_accepted_for_another() {
        let (ring, _folder) = ring().await;
        add(&ring, 1, DAY_MS - 60_000).await;
        let (first, of_first) = signed(&ring);
        ring.refresh().await.expect("it is read");
        assert_eq!((first, signed(&ring).0), (1, 1), "a key of less than a day signs");

        add(&ring, 2, DAY_MS - 60_000).await;
        let (second, of_second) = signed(&ring);
        assert_eq!(second, 2);
        assert!(ring.verify(&of_first).await.is_ok(), "the key before is accepted");

        add(&ring, 3, DAY_MS).await;
        let (newest, of_newest) = signed(&ring);
        assert_eq!(newest, 4, "a key of a day is replaced");
        assert!(ring.verify(&of_newest).await.is_ok());
        for old in [of_first, of_second] {
            assert_eq!(ring.verify(&old).await.err(), Some(Refusal::Invalid), "two generations are accepted");
        }
    }

    #[tokio::test]
    async fn a_token_of_a_key_that_another_replica_made_is_accepted() {
        let (ring, folder) = ring().await;
        add(&ring, 1, DAY_MS - 60_000).await;
        let url = format!("sqlite:{}", folder.path().join("data.db").display());
        let replica = KeyRing::new(store::open(&url).expect("the database"));
        add(&replica, 2, 0).await;
        let (generation, token) = signed(&replica);
        assert_eq!(generation, 2);
        assert!(ring.verify(&token).await.is_ok());
    }
}
