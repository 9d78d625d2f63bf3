//! Integration tests through the built binary, and what they share.
