//! engines-local
