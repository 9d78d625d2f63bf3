//! Reference plugin: which tools a tenant may use.
