//! Positions in the papers' 32-bit form: an IPv4 address is the upper half of a position.

use bearing_types::{Block, Position};
use std::net::Ipv4Addr;

/// A block as `a.b.c.d/len`, if its prefix has at most 32 bits.
pub fn dotted(block: Block) -> Option<String> {
    let address = Ipv4Addr::from((block.start().0 >> 32) as u32);
    (block.prefix_bits() <= 32).then(|| format!("{address}/{}", block.prefix_bits()))
}

/// The block that `a.b.c.d/len` (0 to 32 bits) names; bits beyond the prefix must be 0.
pub fn block_of_dotted(text: &str) -> Option<Block> {
    let (address, bits) = text.split_once('/')?;
    let (address, bits) = (address.parse::<Ipv4Addr>().ok()?, bits.parse::<u8>().ok()?);
    let start = Position(u64::from(u32::from(address)) << 32);
    (bits <= 32).then(|| Block::around(start, bits)).filter(|block| block.start() == start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dotted_blocks_lead_back() {
        for text in ["0.0.0.0/0", "96.0.0.0/3", "192.168.100.192/26", "255.255.255.255/32"] {
            assert_eq!(dotted(block_of_dotted(text).unwrap()).as_deref(), Some(text));
        }
        for text in ["96.0.0.0", "96.0.0.0/2", "96.0.0.0/33", "96.0.0/3", "x/1"] {
            assert_eq!(block_of_dotted(text), None, "{text}");
        }
        assert_eq!(dotted(Block::around(Position(0), 33)), None);
    }
}
