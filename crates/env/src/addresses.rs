//! The addresses of this host.

use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// Reserves an address, if nobody uses or has reserved it, as long as this process lives. A server of this
/// machine, which may listen where others only have a name, gets it all the same.
pub fn reserve(address: SocketAddr) -> io::Result<()> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // In this order: it fails where another has reserved, and does not keep the server out, nor disturb it by
    // a look at its datagrams.
    socket.bind(&SockAddr::from(address))?;
    socket.set_reuse_address(true)?;
    UdpSocket::bind(address)?;
    std::mem::forget(socket);
    Ok(())
}

/// The addresses of all interfaces; none if the kernel does not say.
pub fn own_addresses() -> Vec<IpAddr> {
    let mut found: Vec<IpAddr> = interfaces().into_iter().map(|(_, address)| address).collect();
    found.sort_unstable();
    found.dedup();
    found
}

fn interfaces() -> Vec<(String, IpAddr)> {
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
        // SAFETY: a name in the list ends in a NUL.
        let name = unsafe { CStr::from_ptr(interface.ifa_name) }.to_string_lossy().into_owned();
        // SAFETY: an address in the list is null or as long as its family says.
        found.extend(unsafe { address(interface.ifa_addr) }.map(|address| (name, address)));
        next = interface.ifa_next;
    }
    // SAFETY: the list came from getifaddrs, and nothing of it is used any more.
    unsafe { libc::freeifaddrs(first) };
    found
}

/// The name of the interface that has an address.
pub fn interface_of(address: IpAddr) -> Option<String> {
    interfaces().into_iter().find(|(_, own)| *own == address).map(|(name, _)| name)
}

/// What an interface has received and sent, in bytes; of this process's network namespace.
pub fn carried_by(interface: &str) -> Option<(u64, u64)> {
    carried_in(&std::fs::read_to_string("/proc/self/net/dev").ok()?, interface)
}

fn carried_in(table: &str, interface: &str) -> Option<(u64, u64)> {
    let row = table.lines().find_map(|line| line.trim_start().strip_prefix(interface)?.strip_prefix(':'))?;
    let counts: Vec<u64> = row.split_whitespace().map_while(|count| count.parse().ok()).collect();
    // Eight of what was received, then eight of what was sent (proc(5)).
    Some((*counts.first()?, *counts.get(8)?))
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
    fn what_an_interface_carried_is_found_in_the_kernels_table() {
        let table = "Inter-|   Receive |  Transmit\n face |bytes packets\n    lo: 5 1 0 0 0 0 0 0 6 1 0 0 0 0 0 0\n\
                     eth0:70 9 0 0 0 0 0 0 800 9 0 0 0 0 0 0\n  eth01: 1 1\n";
        assert_eq!(carried_in(table, "lo"), Some((5, 6)));
        assert_eq!(carried_in(table, "eth0"), Some((70, 800)));
        assert_eq!([carried_in(table, "eth01"), carried_in(table, "eth")], [None, None]);
    }

    #[test]
    fn every_host_has_a_loopback() {
        assert!(own_addresses().contains(&IpAddr::V4(Ipv4Addr::LOCALHOST)));
        assert!(carried_by(&interface_of(IpAddr::V4(Ipv4Addr::LOCALHOST)).unwrap()).is_some());
    }
}
