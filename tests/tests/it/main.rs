//! Integration tests, a file per behaviour.
#![allow(clippy::unwrap_used)] // helpers of tests: what fails here fails the test

mod auth_jwks;
mod auth_keys;
mod auth_tokens;
mod chain_caller;
mod chain_flow;
mod chain_observers;
mod chain_poison;
mod chain_start;
mod demo;
mod docs;
mod e2e;
mod edge_blocks;
mod edge_callers;
mod edge_detail;
mod edge_drain;
mod edge_errors;
mod edge_errors_page;
mod edge_http1;
mod edge_isolation;
mod edge_limits;
mod edge_loop;
mod edge_probes;
mod edge_requests;
mod edge_support;
mod failure_matrix;
mod failure_matrix_cells;
mod failure_matrix_rig;
mod fake;
mod layout;
mod plugins_builtin;
mod plugins_run;
mod refused_config;
mod rows;
