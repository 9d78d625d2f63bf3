//! Divides what is scarce between tenants: permits, places in queues, and the processor time of large payloads.

pub(crate) mod bulkhead;
pub(crate) mod compute_pool;
pub(crate) mod fair_queue;
