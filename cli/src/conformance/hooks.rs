//! Checks of lifecycle hooks.

use hookgate_proto::HookName;

use crate::conformance::{calls, check::CheckVerdict, session::Session};
use hookgate::core::call_site::CallSite;

/// A hook that no plugin offers.
const OTHER_HOOK: &str = "hook_of_hookgate_conformance";

/// An ordinary call is answered with a valid reply at each hook of the manifest, and is UNIMPLEMENTED at any other
/// hook, also in a plugin without hooks.
pub(super) async fn hooks(session: &mut Session) -> CheckVerdict {
    let hooks = session.offered_sites().into_iter().filter(|site| site.hook().is_some()).collect();
    calls::answered_at(session, hooks).await?;
    let other = CallSite::Hook(HookName::new(OTHER_HOOK).expect("it has the form of a hook's name"));
    let fix = "offer the hook in the manifest, or answer UNIMPLEMENTED at hooks that it doesn't name";
    calls::unimplemented_at(session, &other, fix).await?;
    Ok(())
}
