//! What the data plane and the admin API share of a request, over HTTP and gRPC: its metadata, its body, admission, and
//! the response. Knows neither of the two.

pub mod admission;
pub mod body;
pub mod common_services;
pub mod header;
pub mod request_meta;
pub mod response;
