//! W3C Trace Context: extracts it from an agent's headers, carries it through a call, and injects it into a
//! plugin's headers. Without a collector nothing is traced here, and the agent's `traceparent` is passed on
//! unchanged.

use std::{
    pin::Pin,
    task::{Poll, ready},
};

use http::HeaderMap;
use opentelemetry::{Context, propagation::TextMapPropagator as _, trace::TraceContextExt as _};
use opentelemetry_http::{HeaderExtractor, HeaderInjector};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use pin_project_lite::pin_project;

/// The context in the caller's headers; empty if they have no valid one.
pub(super) fn extract(headers: &HeaderMap) -> Context {
    TraceContextPropagator::new().extract_with_context(&Context::new(), &HeaderExtractor(headers))
}

pub(super) fn inject(context: &Context, headers: &mut HeaderMap) {
    TraceContextPropagator::new().inject_context(context, &mut HeaderInjector(headers));
}

/// Headers that make a call part of the current trace. Empty if there is none.
pub(crate) fn current_trace_headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    inject(&Context::current(), &mut headers);
    headers
}

/// The trace that something belongs to.
#[derive(Clone)]
pub struct Parent(Context);

impl Parent {
    /// The trace that is current now.
    pub fn current() -> Self {
        Parent(Context::current())
    }

    /// The trace that a caller's headers name, if they do.
    pub(crate) fn from_headers(headers: &HeaderMap) -> Self {
        Parent(extract(headers))
    }

    /// Runs `future` within this trace, also if it is spawned.
    pub(crate) fn wrap<F: Future>(self, future: F) -> InContext<F> {
        InContext::new(self.0, future)
    }

    pub(super) fn context(&self) -> &Context {
        &self.0
    }
}

/// The id of the trace, if there is one.
pub(crate) fn id(context: &Context) -> Option<String> {
    let span = context.span();
    let context = span.span_context();
    context.is_valid().then(|| context.trace_id().to_string())
}

pin_project! {
    /// A future that is polled and dropped with a given context as the current one. This way, what a
    /// cancelled call still does belongs to its trace too.
    pub struct InContext<F> {
        #[pin]
        future: Option<F>,
        context: Context,
    }

    impl<F> PinnedDrop for InContext<F> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            let _current = this.context.clone().attach();
            this.future.set(None);
        }
    }
}

/// A future that runs, wherever it is driven, in the trace in which it is made.
pub(crate) fn in_request<F: Future>(future: F) -> InContext<F> {
    InContext::new(Context::current(), future)
}

impl<F: Future> InContext<F> {
    pub(super) fn new(context: Context, future: F) -> Self {
        InContext { future: Some(future), context }
    }
}

impl<F: Future> Future for InContext<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, task: &mut std::task::Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let _current = this.context.clone().attach();
        let future = this.future.as_pin_mut().expect("the future is there until this is dropped");
        Poll::Ready(ready!(future.poll(task)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn headers(parent: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("traceparent", parent.parse().expect("a header value"));
        headers.insert("tracestate", "vendor=1".parse().expect("a header value"));
        headers
    }

    #[test]
    fn trace_context_is_passed_on_as_it_came() {
        let mut sent = HeaderMap::new();
        inject(&extract(&headers(PARENT)), &mut sent);
        assert_eq!(sent, headers(PARENT));
    }

    #[test]
    fn what_is_no_trace_context_is_not_passed_on() {
        for bad in ["", "00-0-0-0", "00-00000000000000000000000000000000-b7ad6b7169203331-01"] {
            let context = extract(&headers(bad));
            let mut sent = HeaderMap::new();
            inject(&context, &mut sent);
            assert!(!sent.contains_key("traceparent"), "{bad}");
            assert_eq!(id(&context), None, "{bad}");
        }
    }

    #[tokio::test]
    async fn what_is_dropped_sees_the_context_too() {
        struct AtDrop(std::sync::Arc<std::sync::Mutex<Option<String>>>);
        impl Drop for AtDrop {
            fn drop(&mut self) {
                *self.0.lock().expect("nobody panics") = id(&Context::current());
            }
        }
        let seen = std::sync::Arc::default();
        let at_drop = AtDrop(std::sync::Arc::clone(&seen));
        let future = InContext::new(extract(&headers(PARENT)), async move {
            let _at_drop = at_drop;
            std::future::pending::<()>().await;
        });
        let mut future = Box::pin(future);
        assert!(futures::poll!(&mut future).is_pending());
        drop(future);
        assert_eq!(seen.lock().expect("nobody panics").as_deref(), Some("0af7651916cd43dd8448eb211c80319c"));
    }
}
