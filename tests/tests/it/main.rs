//! Integration tests: a folder for each part of the gateway, a file for each behaviour.
#![allow(clippy::unwrap_used)] // helpers of tests: what fails here fails the test

mod admin;
mod agents;
mod auth;
mod chain;
mod cli;
mod deploy;
mod docs;
mod drain;
mod e2e;
mod edge;
mod failure_matrix;
mod fake;
mod host;
mod layout;
mod llm;
mod plugins;
mod proxy;
mod registry;
mod reload;
mod replicas;
mod rows;
mod runner;
mod sdk;
mod store;
mod telemetry;
mod tls;
