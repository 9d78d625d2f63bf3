//! Reference plugin: redacts and truncates what a user is shown.
