//! The LLM proxy over real sockets: a client of OpenAI's API, a provider, plugins.

mod answers;
mod clients;
mod history;
mod requests;
mod streams;
mod support;
mod upstreams;
