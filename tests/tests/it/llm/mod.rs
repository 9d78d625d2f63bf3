//! The LLM proxy over real sockets: clients of OpenAI's and of Anthropic's API, a provider, plugins.

mod answers;
mod clients;
mod embeddings;
mod history;
mod messages_answers;
mod messages_callers;
mod messages_history;
mod messages_matrix;
mod messages_requests;
mod messages_streams;
mod messages_support;
mod registry;
mod requests;
mod responses_answers;
mod responses_callers;
mod responses_history;
mod responses_matrix;
mod responses_refused;
mod responses_requests;
mod responses_streams;
mod responses_support;
mod streams;
mod support;
mod upstreams;
mod windows;
