//! Tests that a plugin which calls the gateway back is stopped by the call depth, not by the budget.

use std::sync::{Mutex, OnceLock};

use hookgate_sdk::{
    Answer, BeforeToolCallPatch, BeforeToolCallPayload, Context, Host, InitError, NoConfig, Offer, Plugin,
    Point, Reply,
    agent::{Agent, AgentError, Token},
};
use hookgate_tests::token::token;

use crate::edge::support::{POINT, gateway_with, payload};

/// The gateway's address; known once it listens.
static GATEWAY: OnceLock<String> = OnceLock::new();
/// The error codes of its own calls.
static ERRORS: Mutex<Vec<(Option<String>, String)>> = Mutex::new(Vec::new());

/// A plugin that makes the same call that it is asked about.
struct Caller;

impl Plugin for Caller {
    const NAME: &'static str = "caller";
    const VERSION: &'static str = "1.0.0";
    type Config = NoConfig;
    type TenantConfig = NoConfig;

    fn points() -> Vec<Offer> {
        vec![Point::BeforeToolCall.modify()]
    }

    async fn initialize(_: NoConfig, _: Host) -> Result<Self, InitError> {
        Ok(Caller)
    }

    async fn before_tool_call(
        &self,
        ctx: &Context,
        _: &NoConfig,
        payload: BeforeToolCallPayload,
    ) -> Answer<BeforeToolCallPatch> {
        let token = Token::fixed(&token(ctx.tenant())).expect("a token is ASCII");
        let gateway = GATEWAY.get().expect("no call precedes the listener");
        let agent = Agent::new(gateway, token).expect("an address makes a URL").with_caller(ctx);
        match agent.before_tool_call(payload).await {
            Ok(_) => {}
            Err(AgentError::NoDecision(outage)) => {
                ERRORS.lock().unwrap().push((outage.error.code, outage.error.message));
            }
            Err(AgentError::Blocked(block)) => panic!("no plugin blocks: {block:?}"),
        }
        Ok(Reply::proceed())
    }
}

#[tokio::test]
async fn a_plugin_that_calls_the_gateway_back_is_refused_as_a_loop() {
    let (gateway, serving) = gateway_with::<Caller>().await;
    GATEWAY.set(format!("http://{}", gateway.data_addr())).expect("it is set once");

    let answer = gateway.http(&token("acme")).call(POINT, payload()).await;
    assert_eq!(answer.status, 200, "the innermost call alone is refused: {answer:?}");
    let errors = ERRORS.lock().unwrap().clone();
    assert_eq!(errors.len(), 1, "{errors:?}");
    let (code, message) = &errors[0];
    assert_eq!(code.as_deref(), Some("LOOP"), "{message}");
    assert!(message.contains("a plugin calls the gateway"), "{message}");
    serving.abort();
}
