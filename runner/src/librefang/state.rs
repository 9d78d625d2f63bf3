//! Calls that may change one agent's state file take turns.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use tokio::sync::{Mutex as TurnMutex, OwnedMutexGuard};

/// How many agents are remembered before those without a call are forgotten.
const MAX_IDLE_AGENTS: usize = 1024;

/// The turns of all tenants' agents.
#[derive(Debug, Default)]
pub(crate) struct StateTurns(Mutex<HashMap<AgentKey, Weak<TurnMutex<()>>>>);

/// A tenant and an agent.
type AgentKey = (String, String);

impl StateTurns {
    /// Waits until no other call of the agent has its turn.
    pub(crate) async fn take(&self, tenant: &str, agent: &str) -> OwnedMutexGuard<()> {
        self.turn(tenant, agent).lock_owned().await
    }

    fn turn(&self, tenant: &str, agent: &str) -> Arc<TurnMutex<()>> {
        let mut agents = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if agents.len() > MAX_IDLE_AGENTS {
            agents.retain(|_, turn| turn.strong_count() > 0);
        }
        let turn = agents.entry((tenant.to_owned(), agent.to_owned())).or_default();
        turn.upgrade().unwrap_or_else(|| {
            let fresh = Arc::new(TurnMutex::new(()));
            *turn = Arc::downgrade(&fresh);
            fresh
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn calls_of_one_agent_take_turns_and_those_of_others_do_not_wait() {
        let turns = StateTurns::default();
        let held = turns.take("acme", "a").await;
        let _other = turns.take("globex", "a").await;
        assert!(turns.turn("acme", "a").try_lock().is_err());
        drop(held);
        assert!(turns.turn("acme", "a").try_lock().is_ok());
    }
}
