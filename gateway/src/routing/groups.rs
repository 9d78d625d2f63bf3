//! Groups of neighbouring steps whose plugins are called at the same time (docs/protocol.md, section 3,
//! Order). Formed when a plan is built, so that a call only reads them.

use crate::{
    core::step::Mode,
    routing::{Access, SideEffects, Step},
};

/// The maximum number of calls of a group.
const MAX_GROUP_CALLS: usize = 8;

/// Sets [`Step::group_len`] of each step.
pub(crate) fn form_groups(steps: &mut [Step]) {
    let mut first = 0;
    while first < steps.len() {
        let len = group_len(&steps[first..]);
        steps[first].group_len = len;
        first += usize::from(len);
    }
}

/// Makes one group of all `steps`, which are those of a hook: none of them changes what another sees. A failure with
/// `on_error: fail` breaks off the calls behind it, whatever their effects.
pub(crate) fn form_one_group(steps: &mut [Step]) {
    let len = u16::try_from(steps.len()).unwrap_or(u16::MAX);
    if let Some(first) = steps.first_mut() {
        first.group_len = len;
    }
}

/// The groups of `steps`, in order. A step that runs alone is a group of one.
pub fn groups(mut steps: &[Step]) -> impl Iterator<Item = &[Step]> {
    std::iter::from_fn(move || {
        let len = usize::from(steps.first()?.group_len).clamp(1, steps.len());
        let (group, later) = steps.split_at(len);
        steps = later;
        Some(group)
    })
}

/// The number of steps in the group that begins with the first of `steps`.
fn group_len(steps: &[Step]) -> u16 {
    let (mut len, mut plugins) = (1, Vec::new());
    for (number, step) in (1..=u16::MAX).zip(steps) {
        if step.mode == Mode::Observe {
            // It only takes the payload at its place. But a group neither begins nor ends with one.
            if plugins.is_empty() {
                return 1;
            }
            continue;
        }
        // Two calls of one plugin could fill its limit of concurrent calls, which one after the other don't.
        if !may_run_beside_others(step) || plugins.contains(&step.plugin) || plugins.len() == MAX_GROUP_CALLS
        {
            break;
        }
        plugins.push(step.plugin);
        len = number;
    }
    len
}

/// Whether a call of the step can neither change what later steps see, nor do harm if it turns out that an
/// earlier step has ended the chain. A step that fails without a call may end the chain, so it has no part
/// in a group: the calls behind it would be for nothing.
fn may_run_beside_others(step: &Step) -> bool {
    const READS: (Access, SideEffects) = (Access::Read, SideEffects::None);
    step.offer.is_some_and(|offer| (offer.access, offer.side_effects) == READS) && step.flaw().is_none()
}
