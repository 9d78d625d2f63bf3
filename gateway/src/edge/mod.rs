//! What requests to the data plane and to the admin API have in common, over HTTP and gRPC: metadata, body,
//! admission, and the response. Knows neither of the two.

pub mod admission;
pub mod body;
pub mod common_services;
pub mod header;
pub mod request_meta;
pub mod response;
