//! Shows a plugin an answer in windows, as a gateway does while a model writes it (docs/protocol.md, Answers in windows).

use hookgate_proto::{ConsumedError, MAX_REST_BYTES, WindowedText, rest_of_window};
use tonic::Status;

use super::TestPlugin;
use crate::{
    BeforeResponsePatch, BeforeResponsePayload, Cancel, Notice, Plugin, Reply, ResponseWindow,
    wire::BeforeResponse,
};

/// What became of an answer that a plugin was shown in windows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WindowedAnswer {
    /// The text that the user gets.
    pub text: String,
    /// The reasoning that the user gets; `None` if the plugin leaves it as it is.
    pub reasoning: Option<String>,
    /// Why the answer ends there, if the plugin cancelled it.
    pub cancel: Option<Cancel>,
    /// All remarks, in order.
    pub notices: Vec<Notice>,
}

impl<P: Plugin> TestPlugin<P> {
    /// Calls it at `before_response` with one window of an answer.
    ///
    /// # Errors
    /// The plugin's error; INTERNAL for a reply that a gateway would reject.
    pub async fn before_response_window(
        &self,
        payload: BeforeResponsePayload,
        window: ResponseWindow,
    ) -> Result<Reply<BeforeResponsePatch>, Status> {
        let (content, is_last) = (payload.content.clone(), window.last);
        let mut request = self.point_request::<BeforeResponse>(payload);
        if let Some(call) = &mut request.get_mut().call {
            call.window = Some(window);
        }
        let response = self.client.clone().before_response(request).await?.into_inner();
        let reply = Self::reply::<BeforeResponse>(response)?;
        if reply.cancelled().is_none() {
            rest_of_window(&content, reply.consumed, is_last).map_err(invalid)?;
        }
        Ok(reply)
    }

    /// Sends an answer that the model writes in these pieces through the plugin, as a gateway does: each call shows what the plugin
    /// has kept back and the next piece. The last piece is in the last window.
    ///
    /// # Errors
    /// As of [`before_response_window`](Self::before_response_window).
    pub async fn answer_in_windows<T: AsRef<str>>(&self, pieces: &[T]) -> Result<WindowedAnswer, Status> {
        self.answer_with_reasoning_in_windows(pieces, None).await
    }

    /// Like [`answer_in_windows`](Self::answer_in_windows), with reasoning in the first window.
    ///
    /// # Errors
    /// As of [`before_response_window`](Self::before_response_window).
    pub async fn answer_with_reasoning_in_windows<T: AsRef<str>>(
        &self,
        pieces: &[T],
        reasoning: Option<&str>,
    ) -> Result<WindowedAnswer, Status> {
        let (mut answer, mut text) = (WindowedAnswer::default(), WindowedText::default());
        let last = pieces.len().saturating_sub(1);
        for seq in 0..=last {
            text.grow(pieces.get(seq).map_or("", AsRef::as_ref), seq == last);
            let payload = BeforeResponsePayload {
                content: text.content().to_owned(),
                reasoning: reasoning.filter(|_| seq == 0).map(str::to_owned),
                ..Default::default()
            };
            let reply = self.before_response_window(payload, text.window().clone()).await?;
            answer.notices.extend(reply.notices.iter().cloned());
            if let Some(cancel) = reply.cancelled() {
                answer.cancel = Some(cancel.clone());
                return Ok(answer);
            }
            let consumed = text.consume(reply.consumed).map_err(invalid)?;
            let patch = reply.modify.unwrap_or_default();
            answer.text.push_str(patch.content.as_deref().unwrap_or(&consumed));
            answer.reasoning = answer.reasoning.or(patch.reasoning);
        }
        Ok(answer)
    }
}

/// The error for a reply that a gateway would reject.
fn invalid(error: ConsumedError) -> Status {
    Status::internal(match error {
        ConsumedError::TooMany { consumed, characters } => {
            format!("the reply consumes {consumed} characters of a window of {characters}")
        }
        ConsumedError::NotAll { consumed, characters } => {
            format!("the reply consumes {consumed} of the last {characters} characters")
        }
        ConsumedError::RestTooLarge { bytes, .. } => {
            format!("the reply keeps back {bytes} bytes; {MAX_REST_BYTES} are allowed")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Answer, Context, Host, InitError, NoConfig, Offer, Point};

    /// Says what it is shown, and follows the directions that the text itself gives: `!` is a cancel, and a digit at the window's
    /// beginning says how many characters of it the plugin is done with.
    struct Obedient;

    impl Plugin for Obedient {
        const NAME: &'static str = "obedient";
        const VERSION: &'static str = "1.0.0";
        type Config = NoConfig;
        type TenantConfig = NoConfig;

        fn points() -> Vec<Offer> {
            vec![Point::BeforeResponse.modify().in_windows()]
        }

        async fn initialize(_: NoConfig, _: Host) -> Result<Self, InitError> {
            Ok(Obedient)
        }

        async fn before_response(
            &self,
            ctx: &Context,
            _: &NoConfig,
            response: BeforeResponsePayload,
        ) -> Answer<BeforeResponsePatch> {
            let content = response.content;
            let Some(window) = ctx.window() else { return Ok(Reply::proceed()) };
            if content.starts_with('!') {
                return Ok(Reply::cancel("STOP", "no more"));
            }
            let ResponseWindow { seq, before, offset, last } = window;
            let reply = Reply::proceed().content(format!("[{seq} {before}|{content} {offset} {last}]"));
            Ok(match content.chars().next().and_then(|first| first.to_digit(10)) {
                Some(digit) => reply.consumed(digit as usize),
                None => reply,
            })
        }
    }

    async fn shown(pieces: &[&str]) -> Result<WindowedAnswer, Status> {
        TestPlugin::<Obedient>::start(&NoConfig {}).await?.answer_in_windows(pieces).await
    }

    #[tokio::test]
    async fn a_plugin_is_shown_what_it_has_kept_back_and_what_it_is_done_with() {
        let answer = shown(&["1é日", "x", "", "!"]).await.unwrap();
        assert_eq!(answer.text, "[0 |1é日 0 false][1 1|é日x 1 false][2 1é日x| 4 false]");
        assert_eq!(answer.cancel.unwrap().code(), "STOP");
        assert_eq!(shown(&[]).await.unwrap().text, "[0 | 0 true]");
        let long = format!("a{}", "é".repeat(1024));
        let answer = shown(&[&long, "x"]).await.unwrap();
        assert!(answer.text.ends_with(&format!("[1 {}|x 1025 true]", &long[1..])));
    }

    #[tokio::test]
    async fn replies_that_a_gateway_rejects_are_errors() {
        let (too_much, too_little) = (["5 of".to_owned()], ["1 of it".to_owned()]);
        let too_long = ["0".repeat(MAX_REST_BYTES + 1), String::new()];
        for (pieces, message) in [
            (&too_much[..], "the reply consumes 5 characters of a window of 4"),
            (&too_little, "the reply consumes 1 of the last 7 characters"),
            (&too_long, "the reply keeps back 65537 bytes; 65536 are allowed"),
        ] {
            let plugin = TestPlugin::<Obedient>::start(&NoConfig {}).await.unwrap();
            assert_eq!(plugin.answer_in_windows(pieces).await.unwrap_err().message(), message);
        }
    }
}
