//! Replicas of one plugin.

mod manifest;
mod outage;
mod rollout;
mod sdk;
mod support;
