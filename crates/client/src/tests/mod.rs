//! Tests of the whole machine against a scripted world.
