//! The built server under load.
