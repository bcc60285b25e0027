//! Real randomness, from the operating system.

/// Fills an array with random bytes.
///
/// # Panics
/// If the operating system has no randomness to give: without it neither keys nor session ids are safe, so
/// nothing should run.
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    bytes
}

/// A random number, as a seed or a session id.
pub fn random_u64() -> u64 {
    u64::from_le_bytes(random_bytes())
}
