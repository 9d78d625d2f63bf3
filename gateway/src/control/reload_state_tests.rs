//! The transitions of a reload.

use std::{future, time::Duration};

use serde_json::json;
use tokio::time::{sleep, timeout};

use super::*;
use crate::{
    config::from_text,
    control::{
        desired_config::ReloadTrigger,
        generation::{ConfigBasis, RuntimeBuilder},
    },
    telemetry::Telemetry,
};

fn generation() -> Arc<Generation> {
    let text = json!({
        "auth": { "issuers": [{ "issuer": "i", "audience": "a", "jwks_url": "https://id/keys", "tenants": "*" }] },
        "tenants": { "unknown": "accept" },
    });
    let loaded = from_text("f.yaml".into(), &text.to_string(), []).expect("it is right");
    let workshop = RuntimeBuilder::new(&loaded.config, Telemetry::unseen());
    let basis = ConfigBasis::from_file(&loaded);
    Arc::new(workshop.build(loaded, basis, &[]).unwrap_or_else(|problems| panic!("{problems}")).generation)
}

fn pending(before: Option<PendingConfig>) -> PendingConfig {
    PendingConfig::new(generation(), ReloadSpan::new(ReloadTrigger::File), before, &generation())
}

#[tokio::test(start_paused = true)]
async fn a_load_keeps_what_was_pending_and_leads_back_to_it() {
    let mut state = ReloadState::default();
    assert!(state.loaded().await.is_none(), "nothing is being loaded");
    state.set_pending(pending(None));
    state.start_load(tokio::spawn(sleep(Duration::from_secs(2))));
    let early = timeout(Duration::from_secs(1), state.loaded()).await;
    assert!(early.is_err() && state.is_loading(), "the state stays until the load has ended");
    assert!(state.pending().is_some(), "it may become active meanwhile");
    assert!(state.loaded().await.is_some_and(|loaded| loaded.is_ok()));
    assert!(matches!(state, ReloadState::Pending(_)));
}

#[tokio::test]
async fn what_becomes_active_during_a_load_is_no_longer_pending_after_it() {
    let mut state = ReloadState::default();
    state.start_load(tokio::spawn(future::ready(())));
    state.set_pending(pending(None));
    assert!(state.is_loading(), "the load goes on");
    assert!(state.take_pending().is_some() && state.is_loading(), "the load goes on");
    assert!(state.loaded().await.is_some_and(|loaded| loaded.is_ok()));
    assert!(matches!(state, ReloadState::Idle));
}

#[tokio::test(start_paused = true)]
async fn a_configuration_in_the_place_of_a_pending_one_goes_on_with_its_wait() {
    let mut state = ReloadState::<()>::default();
    state.set_pending(pending(None));
    sleep(Duration::from_secs(3)).await;
    let before = state.take_pending();
    state.set_pending(pending(before));
    assert!(state.pending().is_some_and(|pending| pending.wait.is_late(Duration::from_secs(3))));
}
