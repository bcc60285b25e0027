//! The addresses of this host.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The addresses of all interfaces; none if the kernel does not say.
pub fn own_addresses() -> Vec<IpAddr> {
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: the kernel's list is read only below, and given back once.
    if unsafe { libc::getifaddrs(&mut first) } != 0 {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut next = first;
    while !next.is_null() {
        // SAFETY: `next` points into the list, which is not given back yet.
        let interface = unsafe { &*next };
        // SAFETY: an address in the list is null or as long as its family says.
        found.extend(unsafe { address(interface.ifa_addr) });
        next = interface.ifa_next;
    }
    // SAFETY: the list came from getifaddrs, and nothing of it is used any more.
    unsafe { libc::freeifaddrs(first) };
    found.sort_unstable();
    found.dedup();
    found
}

/// # Safety
///
/// What it points at is null or a whole address of its family.
unsafe fn address(given: *const libc::sockaddr) -> Option<IpAddr> {
    if given.is_null() {
        return None;
    }
    // SAFETY: by the caller; the casts are to the types that the families name.
    unsafe {
        match i32::from((*given).sa_family) {
            libc::AF_INET => {
                let v4 = (*given.cast::<libc::sockaddr_in>()).sin_addr.s_addr;
                Some(Ipv4Addr::from(u32::from_be(v4)).into())
            }
            libc::AF_INET6 => {
                Some(Ipv6Addr::from((*given.cast::<libc::sockaddr_in6>()).sin6_addr.s6_addr).into())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_has_a_loopback() {
        assert!(own_addresses().contains(&IpAddr::V4(Ipv4Addr::LOCALHOST)));
    }
}
