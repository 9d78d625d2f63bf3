//! Reference plugin: limits and redacts what goes to a model.
