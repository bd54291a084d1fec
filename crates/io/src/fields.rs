//! Fields of messages and records: little-endian numbers and byte strings.

use bytes::{Buf, Bytes};

/// Reads fields from the front of a buffer, which then begins behind the field. A method returns `None`, and leaves the
/// buffer as it is, if fewer bytes are left than the field needs.
pub trait ReadFields {
    /// A part of the buffer: it shares the memory of the buffer.
    type Part;

    /// `N` bytes.
    fn read_array<const N: usize>(&mut self) -> Option<[u8; N]>;

    /// The next `count` bytes; `None` if fewer are left.
    fn read_bytes(&mut self, count: usize) -> Option<Self::Part>;

    /// One byte.
    fn read_u8(&mut self) -> Option<u8> {
        self.read_array().map(u8::from_le_bytes)
    }

    /// A number of four bytes, the least significant first.
    fn read_u32(&mut self) -> Option<u32> {
        self.read_array().map(u32::from_le_bytes)
    }

    /// A number of eight bytes, the least significant first.
    fn read_u64(&mut self) -> Option<u64> {
        self.read_array().map(u64::from_le_bytes)
    }
}

impl ReadFields for Bytes {
    type Part = Bytes;

    fn read_array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let array = *self.first_chunk()?;
        self.advance(N);
        Some(array)
    }

    fn read_bytes(&mut self, count: usize) -> Option<Bytes> {
        (count <= self.len()).then(|| self.split_to(count))
    }
}

impl<'a> ReadFields for &'a [u8] {
    type Part = &'a [u8];

    fn read_array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.split_first_chunk()?;
        *self = rest;
        Some(*array)
    }

    fn read_bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (part, rest) = self.split_at_checked(count)?;
        *self = rest;
        Some(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: [u8; 15] = [7, 4, 3, 2, 1, 8, 7, 6, 5, 4, 3, 2, 1, b'o', b'k'];

    fn check<R: ReadFields<Part: AsRef<[u8]>> + AsRef<[u8]>>(mut buffer: R) {
        assert_eq!(buffer.read_u8(), Some(7));
        assert_eq!(buffer.read_u32(), Some(0x0102_0304));
        assert_eq!(buffer.read_u64(), Some(0x0102_0304_0506_0708));
        assert_eq!((buffer.read_u32(), buffer.read_u64()), (None, None));
        assert!(buffer.read_bytes(3).is_none());
        assert_eq!(buffer.as_ref(), b"ok", "a field that is too long leaves the buffer as it is");
        assert_eq!(buffer.read_bytes(1).unwrap().as_ref(), b"o");
        assert_eq!(buffer.read_array(), Some([b'k']));
        assert_eq!(buffer.read_u8(), None);
        assert_eq!(buffer.read_array(), Some([]));
        assert!(buffer.read_bytes(0).unwrap().as_ref().is_empty());
    }

    #[test]
    fn fields_are_read_one_after_another() {
        check(Bytes::from_static(&FIELDS));
        check(&FIELDS[..]);
    }
}
