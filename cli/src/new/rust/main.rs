//! Serves the plugin at an address: `unix:///absolute/path` or `http://host:port`.

mod plugin;

use hookgate_sdk::{ServeError, serve};

/// The address if neither an argument nor HOOKGATE_PLUGIN_LISTEN gives one.
const DEFAULT_ADDRESS: &str = "unix:///tmp/@NAME@.sock";

#[tokio::main]
async fn main() -> Result<(), ServeError> {
    let variable = || std::env::var("HOOKGATE_PLUGIN_LISTEN").ok();
    let given = std::env::args().nth(1).or_else(variable);
    serve::<plugin::ToolGuard>(given.as_deref().unwrap_or(DEFAULT_ADDRESS)).await
}
