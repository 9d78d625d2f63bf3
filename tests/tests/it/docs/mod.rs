//! Tests the documentation: its statements and examples.

mod names;
mod openapi;
mod operators;
pub(crate) mod pages;
pub(crate) mod plugins;
mod readme;
mod sidecar;
mod sidecar_image;
mod story;
