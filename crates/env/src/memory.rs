//! How the allocator of this process deals with large buffers.

/// Buffers up to this size are taken from memory that the process holds already: the most that glibc allows.
const REUSED_BYTES_MAX: i32 = 32 << 20;
/// Beyond so much unused memory at the end of a heap the rest is given back to the system.
const UNUSED_BYTES_MAX: i32 = 256 << 20;

/// Has freed buffers be used again. By itself glibc maps each large one anew and gives it back when it is
/// freed: the kernel then clears every page of every frame that goes through, which costs more than copying
/// it.
pub fn reuse_freed_buffers() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the calls take plain numbers and change how memory is got, not what was got before.
    unsafe {
        // Refused values leave the defaults, which are slower and nothing else.
        libc::mallopt(libc::M_MMAP_THRESHOLD, REUSED_BYTES_MAX);
        libc::mallopt(libc::M_TRIM_THRESHOLD, UNUSED_BYTES_MAX);
    }
}
