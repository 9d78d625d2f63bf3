//! Reference plugin: writes what agents do as JSON lines.
