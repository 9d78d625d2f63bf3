//! Limits one tenant's part of a shared limit with a dynamic threshold (Choudhury and Hahne, "Dynamic Queue
//! Length Thresholds for Shared-Memory Packet Switches", 1998). The more is free, the more a tenant may hold.
//! So a lone tenant gets most of the limit, but something always stays free for a tenant that holds nothing.

/// A tenant may hold this many times what is free. With 3, a lone tenant gets three quarters of the limit,
/// and each of ten greedy tenants gets a tenth of nearly all of it.
const FREE_MULTIPLIER: usize = 3;

/// Whether a tenant that holds `held` may take more while `free` is left. One that holds nothing always may.
pub(crate) fn may_take(held: usize, free: usize) -> bool {
    held == 0 || held < free.saturating_mul(FREE_MULTIPLIER)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What each of `tenants` holds if all take as much of `limit` as they can, one unit at a time.
    fn greedy(tenants: usize, limit: usize) -> Vec<usize> {
        let (mut held, mut free) = (vec![0; tenants], limit);
        loop {
            let before = free;
            for held in &mut held {
                if free > 0 && may_take(*held, free) {
                    (*held, free) = (*held + 1, free - 1);
                }
            }
            if free == before {
                return held;
            }
        }
    }

    #[test]
    fn a_lone_tenant_gets_three_quarters_and_everything_of_a_small_limit() {
        for (limit, share) in [(1, 1), (2, 2), (3, 3), (4, 3), (8, 6), (64, 48), (1_000, 750)] {
            assert_eq!(greedy(1, limit), [share], "{limit}");
        }
    }

    proptest! {
        #[test]
        fn greedy_tenants_leave_something_for_one_more_and_get_equal_parts(
            tenants in 1_usize..12,
            limit in 64_usize..512,
        ) {
            let held = greedy(tenants, limit);
            let (least, most) = (held.iter().min(), held.iter().max());
            prop_assert!(held.iter().sum::<usize>() < limit, "{held:?} of {limit}");
            prop_assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1), "{held:?}");
        }
    }
}
