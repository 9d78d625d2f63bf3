//! The documentation: what it says and what it shows.

mod names;
mod openapi;
mod operators;
pub(crate) mod pages;
mod plugins;
mod readme;
mod sidecar;
mod sidecar_image;
mod story;
