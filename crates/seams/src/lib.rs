//! seams
