//! The LLM proxy over real sockets: clients of OpenAI's and of Anthropic's API, a provider, plugins.

mod answers;
mod clients;
mod history;
mod messages_answers;
mod messages_callers;
mod messages_history;
mod messages_matrix;
mod messages_requests;
mod messages_streams;
mod messages_support;
mod requests;
mod streams;
mod support;
mod upstreams;
