//! Bloom filters: bits that say "perhaps" or "no".
//!
//! Invariants: what was put in is never denied. Filters of one shape can be united and compared. The encoding
//! is stable: its version is its first byte.
//!
//! ```text
//! byte 0      version, 1
//! byte 1      hashes
//! bytes 2-3   zero
//! bytes 4-7   bits, little-endian
//! bytes 8-15  seed, little-endian
//! bytes 16-   the bits, bit i in byte i/8 at 1 << i%8; unused ones zero
//! ```

use crate::query::FileKey;
use bearing_types::{ParameterError, within};
use std::fmt;

/// Bytes before the bits.
const HEADER_BYTES: usize = 16;
const VERSION: u8 = 1;

/// How a filter is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bits (or counters). 8 to 2^32 - 1.
    pub bits: u32,
    /// How many of them each key sets. 1 to 32.
    pub hashes: u8,
    /// Where the hashes begin: filters with different seeds err about different keys.
    pub seed: u64,
}

impl Shape {
    /// The shape that errs least for so many keys: `hashes` = bits per key * ln 2, rounded (G-HBA section
    /// 3.4). Refused with the bound if there are no keys, no bits, or too many.
    pub fn for_keys(keys: u64, bits_per_key: f64, seed: u64) -> Result<Shape, ParameterError> {
        let bits = keys as f64 * bits_per_key;
        within("keys", keys, keys > 0, "1 or more")?;
        within("bits_per_key", bits_per_key, (1.0..=46.0).contains(&bits_per_key), "1 to 46")?;
        within("keys", keys, bits < f64::from(u32::MAX), "fewer, so that keys * bits_per_key is below 2^32")?;
        let hashes = (bits_per_key * std::f64::consts::LN_2).round().max(1.0) as u8;
        let shape = Shape { bits: (bits.ceil() as u32).max(8), hashes, seed };
        shape.check()?;
        Ok(shape)
    }

    /// Whether all is within bounds.
    pub fn check(&self) -> Result<(), ParameterError> {
        within("bits", self.bits, self.bits >= 8, "8 or more")?;
        within("hashes", self.hashes, (1..=32).contains(&self.hashes), "1 to 32")
    }

    /// Bytes of a filter of this shape, encoded.
    pub fn encoded_bytes(&self) -> usize {
        HEADER_BYTES + self.bits.div_ceil(8) as usize
    }

    /// Bytes of a counting filter of this shape: 4 bits a counter.
    pub fn counting_bytes(&self) -> usize {
        HEADER_BYTES + self.bits.div_ceil(2) as usize
    }

    pub(crate) fn places(self, probe: Probe) -> impl Iterator<Item = usize> {
        let (bits, hashes) = (u128::from(self.bits), u64::from(self.hashes));
        (0..hashes).map(move |turn| {
            let point = probe.base.wrapping_add(turn.wrapping_mul(probe.step));
            ((u128::from(point) * bits) >> 64) as usize
        })
    }
}

/// A key, hashed once for all filters of one seed, whatever their number of bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    base: u64,
    step: u64,
}

impl Probe {
    /// Double hashing: the places of a key are base + i * step, scaled to the number of bits.
    pub fn of(file: FileKey, seed: u64) -> Probe {
        let hash = xxhash_rust::xxh3::xxh3_128_with_seed(&file.0.to_le_bytes(), seed);
        Probe { base: hash as u64, step: (hash >> 64) as u64 | 1 }
    }
}

/// A Bloom filter.
#[derive(Clone, PartialEq, Eq)]
pub struct Bloom {
    shape: Shape,
    words: Box<[u64]>,
}

impl fmt::Debug for Bloom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bloom({:?}, {} set)", self.shape, self.ones())
    }
}

/// Two filters cannot be put side by side: their shapes differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShapesDiffer(pub Shape, pub Shape);

impl fmt::Display for ShapesDiffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "filters of shapes {:?} and {:?} cannot be compared; give all servers one shape",
            self.0, self.1
        )
    }
}

impl std::error::Error for ShapesDiffer {}

/// Bytes that are no filter.
#[derive(Clone, Debug, PartialEq)]
pub enum DecodeError {
    /// Fewer than the header takes, or not as many as it says.
    Length {
        /// What came.
        found: usize,
        /// What was to come.
        wanted: usize,
    },
    /// Of a version that is not known here.
    Version(u8),
    /// Bits that must be zero are not.
    Unused,
    /// A shape out of its bounds.
    Shape(ParameterError),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Length { found, wanted } => {
                write!(f, "decode filter: {found} bytes came, not {wanted}; ask for it again")
            }
            DecodeError::Version(version) => write!(
                f,
                "decode filter: version {version} came, only {VERSION} is known here; use a newer release"
            ),
            DecodeError::Unused => {
                write!(f, "decode filter: bits are set that mean nothing; ask for it again")
            }
            DecodeError::Shape(error) => write!(f, "decode filter: {error}"),
        }
    }
}

impl std::error::Error for DecodeError {}

impl Bloom {
    /// An empty filter.
    pub fn new(shape: Shape) -> Result<Bloom, ParameterError> {
        shape.check()?;
        Ok(Bloom::empty(shape))
    }

    /// An empty filter of a shape that was checked.
    pub(crate) fn empty(shape: Shape) -> Bloom {
        Bloom { shape, words: vec![0; shape.bits.div_ceil(64) as usize].into() }
    }

    /// Its shape.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Puts a key in.
    pub fn insert(&mut self, file: FileKey) {
        self.shape.places(Probe::of(file, self.shape.seed)).for_each(|place| self.set(place));
    }

    pub(crate) fn set(&mut self, place: usize) {
        self.words[place / 64] |= 1 << (place % 64);
    }

    pub(crate) fn clear(&mut self, place: usize) {
        self.words[place / 64] &= !(1 << (place % 64));
    }

    /// Whether a key may have been put in; `false` is certain.
    pub fn may_hold(&self, file: FileKey) -> bool {
        self.may_hold_probe(Probe::of(file, self.shape.seed))
    }

    /// The same with a key hashed under this filter's seed.
    pub fn may_hold_probe(&self, probe: Probe) -> bool {
        self.shape.places(probe).all(|place| self.words[place / 64] >> (place % 64) & 1 == 1)
    }

    /// How many bits are set.
    pub fn ones(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }

    /// How many bits differ (G-HBA section 3.4: the XOR that says how stale a replica is).
    pub fn distance(&self, other: &Bloom) -> Result<u32, ShapesDiffer> {
        self.same_shape(other)?;
        Ok(self.words.iter().zip(&other.words).map(|(a, b)| (a ^ b).count_ones()).sum())
    }

    /// The filter of what is in either (G-HBA section 3.4, property 1).
    pub fn union(&self, other: &Bloom) -> Result<Bloom, ShapesDiffer> {
        self.same_shape(other)?;
        let words = self.words.iter().zip(&other.words).map(|(a, b)| a | b).collect();
        Ok(Bloom { shape: self.shape, words })
    }

    fn same_shape(&self, other: &Bloom) -> Result<(), ShapesDiffer> {
        if self.shape == other.shape { Ok(()) } else { Err(ShapesDiffer(self.shape, other.shape)) }
    }

    /// The bytes of it, as the module says.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.shape.encoded_bytes());
        bytes.extend([VERSION, self.shape.hashes, 0, 0]);
        bytes.extend(self.shape.bits.to_le_bytes());
        bytes.extend(self.shape.seed.to_le_bytes());
        bytes.extend(self.words.iter().flat_map(|word| word.to_le_bytes()));
        bytes.truncate(self.shape.encoded_bytes());
        bytes
    }

    /// A filter from bytes that may come from anybody.
    pub fn decode(bytes: &[u8]) -> Result<Bloom, DecodeError> {
        let length = |wanted| DecodeError::Length { found: bytes.len(), wanted };
        let (header, body) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or(length(HEADER_BYTES))?;
        if header[0] != VERSION {
            return Err(DecodeError::Version(header[0]));
        }
        let [_, hashes, 0, 0, b0, b1, b2, b3, seed @ ..] = *header else {
            return Err(DecodeError::Unused);
        };
        let shape =
            Shape { bits: u32::from_le_bytes([b0, b1, b2, b3]), hashes, seed: u64::from_le_bytes(seed) };
        shape.check().map_err(DecodeError::Shape)?;
        if bytes.len() != shape.encoded_bytes() {
            return Err(length(shape.encoded_bytes()));
        }
        let mut filter = Bloom::empty(shape);
        for (index, byte) in body.iter().enumerate() {
            filter.words[index / 8] |= u64::from(*byte) << (8 * (index % 8));
        }
        let used = shape.bits % 64;
        let beyond = if used == 0 { 0 } else { filter.words.last().map_or(0, |word| word >> used) };
        if beyond == 0 { Ok(filter) } else { Err(DecodeError::Unused) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    pub(crate) fn shapes() -> impl Strategy<Value = Shape> {
        (8u32..4000, 1u8..9, any::<u64>()).prop_map(|(bits, hashes, seed)| Shape { bits, hashes, seed })
    }

    fn filled(shape: Shape, keys: &[u64]) -> Bloom {
        let mut filter = Bloom::new(shape).unwrap();
        keys.iter().for_each(|key| filter.insert(FileKey(*key)));
        filter
    }

    proptest! {
        #[test]
        fn what_was_put_in_is_never_denied(shape in shapes(), keys: Vec<u64>) {
            let filter = filled(shape, &keys);
            prop_assert!(keys.iter().all(|key| filter.may_hold(FileKey(*key))));
        }

        #[test]
        fn bytes_lead_back_to_the_filter(shape in shapes(), keys: Vec<u64>) {
            let filter = filled(shape, &keys);
            let bytes = filter.encode();
            prop_assert_eq!(bytes.len(), shape.encoded_bytes());
            prop_assert_eq!(Bloom::decode(&bytes), Ok(filter));
        }

        #[test]
        fn no_bytes_panic_and_what_is_accepted_is_canonical(bytes: Vec<u8>, shape in shapes(), cut in 0usize..600, flip: u8) {
            let _ = Bloom::decode(&bytes);
            let mut bytes = filled(shape, &[1, 2, 3]).encode();
            let place = cut.min(bytes.len() - 1);
            bytes[place] ^= flip;
            if let Ok(filter) = Bloom::decode(&bytes) {
                prop_assert_eq!(filter.encode(), bytes);
            }
        }

        #[test]
        fn union_and_distance_agree_with_sets_of_bits(shape in shapes(), left: Vec<u64>, right: Vec<u64>) {
            // The slow oracle: the places themselves.
            let places = |keys: &[u64]| -> BTreeSet<usize> {
                keys.iter().flat_map(|key| shape.places(Probe::of(FileKey(*key), shape.seed))).collect()
            };
            let (a, b) = (filled(shape, &left), filled(shape, &right));
            let (of_a, of_b) = (places(&left), places(&right));
            prop_assert_eq!(a.ones() as usize, of_a.len());
            prop_assert_eq!(a.distance(&b).unwrap() as usize, of_a.symmetric_difference(&of_b).count());
            let both: Vec<u64> = left.iter().chain(&right).copied().collect();
            prop_assert_eq!(a.union(&b).unwrap(), filled(shape, &both));
        }
    }

    #[test]
    fn shapes_out_of_bounds_are_refused_with_the_bound() {
        let said = |shape: Shape| Bloom::new(shape).unwrap_err().to_string();
        assert_eq!(said(Shape { bits: 0, hashes: 1, seed: 0 }), "bits may not be 0; give 8 or more");
        assert_eq!(said(Shape { bits: 64, hashes: 0, seed: 0 }), "hashes may not be 0; give 1 to 32");
        assert_eq!(said(Shape { bits: 64, hashes: 33, seed: 0 }), "hashes may not be 33; give 1 to 32");
        let said = |keys, bits| Shape::for_keys(keys, bits, 0).unwrap_err().to_string();
        assert_eq!(said(0, 8.0), "keys may not be 0; give 1 or more");
        assert_eq!(said(9, 0.0), "bits_per_key may not be 0; give 1 to 46");
        assert_eq!(said(9, f64::NAN), "bits_per_key may not be NaN; give 1 to 46");
        assert!(said(1 << 40, 8.0).contains("below 2^32"));
    }

    #[test]
    fn filters_of_different_shapes_are_not_compared() {
        let filter = |seed| Bloom::new(Shape { bits: 64, hashes: 2, seed }).unwrap();
        assert!(filter(1).distance(&filter(2)).is_err());
        assert!(filter(1).union(&filter(2)).is_err());
    }

    #[test]
    fn the_encoding_is_the_one_of_version_1() {
        let filter = filled(Shape { bits: 20, hashes: 2, seed: 3 }, &[7]);
        assert_eq!(filter.encode()[..16], [1, 2, 0, 0, 20, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(filter.encode()[16..], PINNED);
    }

    /// What key 7 sets, as another implementation of XXH3 says too: a change of the hashes would make every
    /// stored filter lie.
    const PINNED: [u8; 3] = [0, 8, 2];
}
