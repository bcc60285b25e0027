//! Socket addresses between Rust and the system calls, the two families on one socket, and which of this
//! machine's addresses a datagram came to or leaves from.

use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// An address in the form of the system calls.
#[derive(Clone, Copy)]
pub struct RawAddress {
    /// Room for any family.
    pub storage: libc::sockaddr_storage,
    /// How many bytes of it are used.
    pub length: libc::socklen_t,
}

impl RawAddress {
    /// Room for an address to be received.
    pub fn empty() -> RawAddress {
        // SAFETY: sockaddr_storage is plain integers, for which all zeros is a valid value.
        let storage = unsafe { mem::zeroed() };
        RawAddress { storage, length: mem::size_of::<libc::sockaddr_storage>() as libc::socklen_t }
    }

    /// An address to be sent to.
    pub fn new(address: SocketAddr) -> RawAddress {
        let mut raw = RawAddress::empty();
        match address {
            SocketAddr::V4(address) => {
                let form = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: address.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
                    sin_zero: [0; 8],
                };
                raw.put(form);
            }
            SocketAddr::V6(address) => {
                let form = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: address.port().to_be(),
                    sin6_flowinfo: address.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                    sin6_scope_id: address.scope_id(),
                };
                raw.put(form);
            }
        }
        raw
    }

    fn put<T: Copy>(&mut self, form: T) {
        const { assert!(mem::size_of::<T>() <= mem::size_of::<libc::sockaddr_storage>()) };
        // SAFETY: sockaddr_storage is at least as large as every address form and aligned for all of them.
        unsafe { (&raw mut self.storage).cast::<T>().write(form) };
        self.length = mem::size_of::<T>() as libc::socklen_t;
    }

    /// The address, or `None` if it is of another family.
    pub fn get(&self) -> Option<SocketAddr> {
        match libc::c_int::from(self.storage.ss_family) {
            libc::AF_INET => {
                // SAFETY: the family says that the storage holds a sockaddr_in; size and alignment suffice.
                let form = unsafe { *(&raw const self.storage).cast::<libc::sockaddr_in>() };
                let ip = Ipv4Addr::from(form.sin_addr.s_addr.to_ne_bytes());
                Some(SocketAddr::new(IpAddr::V4(ip), u16::from_be(form.sin_port)))
            }
            libc::AF_INET6 => {
                // SAFETY: the family says that the storage holds a sockaddr_in6; size and alignment suffice.
                let form = unsafe { *(&raw const self.storage).cast::<libc::sockaddr_in6>() };
                let ip = Ipv6Addr::from(form.sin6_addr.s6_addr);
                let port = u16::from_be(form.sin6_port);
                Some(SocketAddr::V6(SocketAddrV6::new(ip, port, form.sin6_flowinfo, form.sin6_scope_id)))
            }
            _ => None,
        }
    }
}

const LOCAL_BYTES: usize =
    // SAFETY: CMSG_SPACE only computes.
    unsafe { libc::CMSG_SPACE(mem::size_of::<libc::in6_pktinfo>() as libc::c_uint) as usize };

/// An address of this machine as a control message of one datagram (IPV6_PKTINFO, RFC 3542).
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub struct LocalAddress([u8; LOCAL_BYTES]);

impl LocalAddress {
    /// Room for one to be received.
    pub fn empty() -> LocalAddress {
        LocalAddress([0; LOCAL_BYTES])
    }

    /// The one that a datagram shall leave from.
    pub fn new(address: Ipv6Addr) -> LocalAddress {
        let mut local = LocalAddress::empty();
        // SAFETY: msghdr is plain integers and pointers, for which all zeros (null) is a valid value.
        let mut header: libc::msghdr = unsafe { mem::zeroed() };
        local.attach(&mut header);
        // The interface is the system's choice (0).
        let info =
            libc::in6_pktinfo { ipi6_addr: libc::in6_addr { s6_addr: address.octets() }, ipi6_ifindex: 0 };
        // SAFETY: the header's control bytes are those of `local`, which have room for exactly one message
        // with an in6_pktinfo, and are aligned as control messages are.
        unsafe {
            let message = libc::CMSG_FIRSTHDR(&raw const header);
            (*message).cmsg_level = libc::IPPROTO_IPV6;
            (*message).cmsg_type = libc::IPV6_PKTINFO;
            (*message).cmsg_len =
                libc::CMSG_LEN(mem::size_of::<libc::in6_pktinfo>() as libc::c_uint) as libc::size_t;
            libc::CMSG_DATA(message).cast::<libc::in6_pktinfo>().write_unaligned(info);
        }
        local
    }

    /// Has a system call read it, or write it: it must not move until then.
    pub fn attach(&mut self, header: &mut libc::msghdr) {
        header.msg_control = (&raw mut self.0).cast();
        header.msg_controllen = LOCAL_BYTES as libc::size_t;
    }

    /// What the system has said of a datagram: `header` has one attached, which did not move.
    pub fn of(header: &libc::msghdr) -> Option<Ipv6Addr> {
        // SAFETY: the header's control bytes are those that were attached, and the system wrote whole
        // messages there, as long as it says.
        unsafe {
            let message = libc::CMSG_FIRSTHDR(header);
            if message.is_null()
                || (*message).cmsg_level != libc::IPPROTO_IPV6
                || (*message).cmsg_type != libc::IPV6_PKTINFO
            {
                return None;
            }
            let info = libc::CMSG_DATA(message).cast::<libc::in6_pktinfo>().read_unaligned();
            Some(Ipv6Addr::from(info.ipi6_addr.s6_addr))
        }
    }
}

/// An address as a socket of the given family must be told it: an IPv6 socket reaches IPv4 hosts by mapped
/// addresses. `None`: an IPv4 socket cannot reach IPv6.
pub fn for_family(address: SocketAddr, socket_is_v6: bool) -> Option<SocketAddr> {
    match address {
        SocketAddr::V4(v4) if socket_is_v6 => {
            Some(SocketAddr::new(IpAddr::V6(v4.ip().to_ipv6_mapped()), v4.port()))
        }
        SocketAddr::V6(_) if !socket_is_v6 => None,
        same => Some(same),
    }
}

/// An address as people write it: mapped IPv4 addresses become IPv4 again.
pub fn plain(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) => match v6.ip().to_ipv4_mapped() {
            Some(ip) => SocketAddr::new(IpAddr::V4(ip), v6.port()),
            None => address,
        },
        SocketAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_addresses_give_back_what_they_were_made_from() {
        for text in ["127.0.0.1:9000", "[::1]:80", "[fd00::1:2:3:4]:65535", "255.255.255.255:0"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(RawAddress::new(address).get(), Some(address));
        }
        assert_eq!(RawAddress::empty().get(), None);
    }

    #[test]
    fn mapped_addresses_exist_only_inside() {
        let v4: SocketAddr = "10.1.2.3:5".parse().unwrap();
        let mapped = for_family(v4, true).unwrap();
        assert_eq!(mapped.to_string(), "[::ffff:10.1.2.3]:5");
        assert_eq!(plain(mapped), v4);
        assert_eq!(for_family("[::1]:5".parse().unwrap(), false), None);
    }
}
