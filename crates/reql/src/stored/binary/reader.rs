//! Reads numbers and text of RethinkDB's serialisation.

/// Why bytes cannot be read, as RethinkDB names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    /// They end early.
    #[error("archive_result_t::SOCK_EOF")]
    Eof,
    /// They end inside a term tree.
    #[error("archive_result_t::SOCK_ERROR")]
    Cut,
    /// A value is none of those allowed.
    #[error("archive_result_t::RANGE_ERROR")]
    Range,
}

/// Bytes that are read from the front.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader(bytes)
    }

    /// The number of bytes left.
    pub(super) fn left(&self) -> usize {
        self.0.len()
    }

    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], Fault> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Fault::Eof)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Fault::Eof)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(super) fn u8(&mut self) -> Result<u8, Fault> {
        self.array().map(u8::from_le_bytes)
    }

    pub(super) fn i8(&mut self) -> Result<i8, Fault> {
        self.array().map(i8::from_le_bytes)
    }

    pub(super) fn i32(&mut self) -> Result<i32, Fault> {
        self.array().map(i32::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Fault> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Fault> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn i64(&mut self) -> Result<i64, Fault> {
        self.array().map(i64::from_le_bytes)
    }

    pub(super) fn f64(&mut self) -> Result<f64, Fault> {
        self.array().map(f64::from_le_bytes)
    }

    pub(super) fn bool(&mut self) -> Result<bool, Fault> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Fault::Range),
        }
    }

    /// A number of up to 64 bits, seven in each byte, the least significant first.
    pub(super) fn varint(&mut self) -> Result<u64, Fault> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return Err(Fault::Range);
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Fault::Range)
    }

    /// Bytes behind their number.
    pub(super) fn counted(&mut self) -> Result<&'a [u8], Fault> {
        let count = self.varint()?;
        self.take(usize::try_from(count).map_err(|_| Fault::Eof)?)
    }

    /// Text behind the number of its bytes.
    pub(super) fn text(&mut self) -> Result<&'a str, Fault> {
        std::str::from_utf8(self.counted()?).map_err(|_| Fault::Range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_up_to_64_bits_are_read() {
        for (bytes, number) in [
            (&[0][..], Ok(0)),
            (&[0x7f], Ok(127)),
            (&[0x80, 1], Ok(128)),
            (&[0xff; 9], Err(Fault::Eof)),
            (&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], Ok(u64::MAX)),
            (&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2], Err(Fault::Range)),
            (&[0x80; 11], Err(Fault::Range)),
            (&[], Err(Fault::Eof)),
        ] {
            assert_eq!(Reader::new(bytes).varint(), number, "{bytes:?}");
        }
    }
}
