//! Encodes and decodes primitives: numbers, bytes, text, lists.

use std::collections::HashMap;

use datum::{Bytes, Text, cancel};
use io::ReadFields as _;
use io::memory::{self, Account, OverBudget};

use crate::error::EvalError;

/// Most bytes that are written. With the framing of a link they fit into one message.
pub const BYTES_MAX: usize = 255 << 20;
/// Bytes written between two checks for cancellation and memory.
const CHECK_INTERVAL_BYTES: usize = 1 << 20;

/// Bytes that cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} cannot be read at byte {at}")]
pub struct UnpackError {
    /// The value that could not be read.
    pub what: &'static str,
    /// Position in the input.
    pub at: usize,
}

/// A value that can be sent to another node.
pub trait Codec: Sized {
    /// Appends the value.
    fn pack(&self, out: &mut Packer);

    /// Reads the value. Fails if the bytes are not such a value.
    fn unpack(from: &mut Unpacker) -> Result<Self, UnpackError>;
}

/// Why a value was not written completely.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PackError {
    /// It exceeds [`BYTES_MAX`].
    #[error("it has more than {BYTES_MAX} bytes")]
    TooLarge,
    /// There is not enough memory.
    #[error("there is no memory for it")]
    NoMemory(#[from] OverBudget),
    /// The query that this thread works for is cancelled.
    #[error("it was cancelled")]
    Cancelled,
}

impl PackError {
    /// The error for the client. `what` is the subject of the sentence, in the plural.
    #[must_use]
    pub fn error(self, what: &str) -> EvalError {
        match self {
            PackError::TooLarge => EvalError::resource(format!(
                "{what} are too large to be sent to another server (limit {} MiB).",
                BYTES_MAX >> 20
            )),
            PackError::NoMemory(over) => EvalError::memory(over),
            PackError::Cancelled => EvalError::cancelled(),
        }
    }
}

/// A buffer for encoded values. Values share their parts, so a small one may be enormous when encoded: writing
/// stops if it is too large, runs out of memory or is cancelled, and [`Packer::finish`] reports that.
pub struct Packer {
    bytes: Vec<u8>,
    /// The length at which the next check is due.
    check_at: usize,
    fault: Option<PackError>,
    /// For a digest: the numbers of variables, in the order in which they occur.
    variables: Option<HashMap<i64, i64>>,
}

impl Default for Packer {
    fn default() -> Packer {
        Packer::with_capacity(0)
    }
}

impl Packer {
    /// An empty buffer with room for `capacity` bytes.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Packer {
        let bytes = Vec::with_capacity(capacity);
        Packer { bytes, check_at: CHECK_INTERVAL_BYTES, fault: None, variables: None }
    }

    /// An empty buffer for bytes that only tell terms from others: they are the same for functions that differ in the numbers of
    /// their variables, which a driver may choose anew each time, or in their place in the query.
    #[must_use]
    pub fn for_digest() -> Packer {
        Packer { variables: Some(HashMap::new()), ..Packer::default() }
    }

    /// Whether the bytes are only for a digest.
    #[must_use]
    pub fn is_for_digest(&self) -> bool {
        self.variables.is_some()
    }

    /// The number of a variable.
    pub(super) fn variable(&mut self, id: i64) {
        let number = match &mut self.variables {
            None => id,
            Some(known) => {
                let next = known.len() as i64;
                *known.entry(id).or_insert(next)
            }
        };
        number.pack(self);
    }

    /// The bytes. Fails if not everything was written.
    pub fn finish(self) -> Result<Bytes, PackError> {
        match self.fault {
            None => Ok(Bytes::from(self.bytes)),
            Some(fault) => Err(fault),
        }
    }

    /// The number of bytes written.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether writing has stopped: walks through large values should end.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.fault.is_some()
    }

    pub fn byte(&mut self, byte: u8) {
        if self.has_room(1) {
            self.bytes.push(byte);
        }
    }

    /// Bytes whose length the reader knows.
    pub fn raw(&mut self, bytes: &[u8]) {
        if self.has_room(bytes.len()) {
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// An unsigned number in few bytes if it is small: seven bits per byte, lowest first.
    pub fn count(&mut self, mut count: u64) {
        while count >= 0x80 {
            self.byte((count as u8) | 0x80);
            count >>= 7;
        }
        self.byte(count as u8);
    }

    /// Bytes, preceded by their length.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len() as u64);
        self.raw(bytes);
    }

    /// Several values, preceded by their number.
    pub fn list<'a, T: Codec + 'a>(&mut self, items: impl ExactSizeIterator<Item = &'a T>) {
        self.count(items.len() as u64);
        for item in items {
            if self.is_over() {
                break;
            }
            item.pack(self);
        }
    }

    /// Whether `more` bytes can be written.
    #[inline]
    fn has_room(&mut self, more: usize) -> bool {
        let len = self.bytes.len().saturating_add(more);
        len <= self.check_at || self.checks_pass(len)
    }

    /// The slow path of `has_room`: runs the checks. After the first error it is called every time.
    #[cold]
    fn checks_pass(&mut self, len: usize) -> bool {
        if self.fault.is_none() {
            self.fault = self.check(len).err();
        }
        self.check_at = if self.is_over() { 0 } else { len.saturating_add(CHECK_INTERVAL_BYTES) };
        !self.is_over()
    }

    fn check(&self, len: usize) -> Result<(), PackError> {
        if len > BYTES_MAX {
            return Err(PackError::TooLarge);
        }
        if cancel::current().is_some_and(|token| token.is_cancelled()) {
            return Err(PackError::Cancelled);
        }
        memory::check()?;
        let capacity = self.bytes.capacity();
        if let (true, Some(account)) = (len + CHECK_INTERVAL_BYTES > capacity, Account::current()) {
            // Growing the buffer needs the new and the old memory at the same time.
            account.check_room((2 * capacity).max(len) as u64)?;
        }
        Ok(())
    }
}

/// Encoded values being read. Decoded values share their memory.
pub struct Unpacker {
    /// The bytes that were not read yet.
    left: Bytes,
    /// The number of all bytes.
    total: usize,
}

impl Unpacker {
    /// Reads `bytes` from the start.
    #[must_use]
    pub fn new(bytes: Bytes) -> Unpacker {
        Unpacker { total: bytes.len(), left: bytes }
    }

    /// The error that `what` cannot be read at this position.
    #[must_use]
    pub fn invalid(&self, what: &'static str) -> UnpackError {
        UnpackError { what, at: self.total - self.left.len() }
    }

    /// The number of bytes left.
    #[must_use]
    pub fn left(&self) -> usize {
        self.left.len()
    }

    /// Fails unless everything was read.
    pub fn end(&self) -> Result<(), UnpackError> {
        if self.left() == 0 { Ok(()) } else { Err(self.invalid("the end")) }
    }

    /// Fails at the end of the bytes.
    pub fn byte(&mut self) -> Result<u8, UnpackError> {
        self.left.read_u8().ok_or_else(|| self.invalid("a byte"))
    }

    /// The next `count` bytes, not copied; fails if fewer are left.
    pub fn raw(&mut self, count: usize) -> Result<Bytes, UnpackError> {
        self.left.read_bytes(count).ok_or_else(|| self.invalid("bytes"))
    }

    /// `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], UnpackError> {
        self.left.read_array().ok_or_else(|| self.invalid("bytes"))
    }

    /// Reads a number written by [`Packer::count`].
    pub fn count(&mut self) -> Result<u64, UnpackError> {
        let mut count = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(self.invalid("a number"));
            }
            count |= bits << shift;
            if byte < 0x80 {
                return Ok(count);
            }
        }
        Err(self.invalid("a number"))
    }

    /// Reads a number that fits into a `usize`.
    pub fn size(&mut self) -> Result<usize, UnpackError> {
        let count = self.count()?;
        usize::try_from(count).map_err(|_| self.invalid("a size"))
    }

    /// Reads bytes written by [`Packer::bytes`].
    pub fn bytes(&mut self) -> Result<Bytes, UnpackError> {
        let count = self.size()?;
        self.raw(count)
    }

    /// Reads several values, preceded by their number.
    pub fn list<T>(
        &mut self,
        mut item: impl FnMut(&mut Unpacker) -> Result<T, UnpackError>,
    ) -> Result<Vec<T>, UnpackError> {
        let count = self.size()?;
        // Each value takes at least one byte, so that a false number cannot allocate much memory.
        let mut items = Vec::with_capacity(count.min(self.left()).min(1024));
        for _ in 0..count {
            if self.left() == 0 {
                return Err(self.invalid("an item"));
            }
            items.push(item(self)?);
        }
        Ok(items)
    }
}

impl Codec for u64 {
    fn pack(&self, out: &mut Packer) {
        out.count(*self);
    }
    fn unpack(from: &mut Unpacker) -> Result<Self, UnpackError> {
        from.count()
    }
}

impl Codec for usize {
    fn pack(&self, out: &mut Packer) {
        out.count(*self as u64);
    }
    fn unpack(from: &mut Unpacker) -> Result<Self, UnpackError> {
        from.size()
    }
}

/// Signed numbers, in few bytes if their magnitude is small.
impl Codec for i64 {
    fn pack(&self, out: &mut Packer) {
        out.count(((self << 1) ^ (self >> 63)) as u64);
    }
    fn unpack(from: &mut Unpacker) -> Result<Self, UnpackError> {
        let folded = from.count()?;
        Ok((folded >> 1) as i64 ^ -((folded & 1) as i64))
    }
}

/// All bits of the number.
impl Codec for f64 {
    fn pack(&self, out: &mut Packer) {
        out.raw(&self.to_le_bytes());
    }
    fn unpack(from: &mut Unpacker) -> Result<Self, UnpackError> {
        let number = f64::from_le_bytes(from.array()?);
        if number.is_finite() { Ok(number) } else { Err(from.invalid("a finite number")) }
    }
}

impl Codec for bool {
    fn pack(&self, out: &mut Packer) {
        out.byte(u8::from(*self));
    }
    fn unpack(from: &mut Unpacker) -> Result<Self, UnpackError> {
        match from.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(from.invalid("a truth value")),
        }
    }
}

impl Codec for Text {
    fn pack(&self, out: &mut Packer) {
        out.bytes(self.as_bytes());
    }
    fn unpack(from: &mut Unpacker) -> Result<Self, UnpackError> {
        Text::try_from(from.bytes()?).map_err(|_| from.invalid("a text"))
    }
}

impl Codec for Bytes {
    fn pack(&self, out: &mut Packer) {
        out.bytes(self);
    }
    fn unpack(from: &mut Unpacker) -> Result<Self, UnpackError> {
        from.bytes()
    }
}

impl<T: Codec> Codec for Option<T> {
    fn pack(&self, out: &mut Packer) {
        out.byte(u8::from(self.is_some()));
        self.iter().for_each(|value| value.pack(out));
    }
    fn unpack(from: &mut Unpacker) -> Result<Self, UnpackError> {
        Ok(if bool::unpack(from)? { Some(T::unpack(from)?) } else { None })
    }
}

impl<T: Codec> Codec for Vec<T> {
    fn pack(&self, out: &mut Packer) {
        out.list(self.iter());
    }
    fn unpack(from: &mut Unpacker) -> Result<Self, UnpackError> {
        from.list(T::unpack)
    }
}

impl<A: Codec, B: Codec> Codec for (A, B) {
    fn pack(&self, out: &mut Packer) {
        self.0.pack(out);
        self.1.pack(out);
    }
    fn unpack(from: &mut Unpacker) -> Result<Self, UnpackError> {
        Ok((A::unpack(from)?, B::unpack(from)?))
    }
}
