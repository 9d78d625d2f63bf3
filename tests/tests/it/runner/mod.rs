//! Tests `hookgate runner stdio`: programs that speak JSON lines, behind a real gateway.

mod ends;
mod forks;
mod hooks;
mod kaged;
mod librefang;
mod limits;
mod replies;
mod request_ids;
mod support;
mod tenants;
