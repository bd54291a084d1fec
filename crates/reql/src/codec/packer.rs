//! Writing and reading the plainest parts: numbers, bytes, text, lists.

use datum::{Bytes, Text, cancel};
use io::memory::{self, Account, OverBudget};

use crate::error::EvalError;

/// Most bytes that are packed: with what a link puts around them they are a message that it takes.
pub const BYTES_MAX: usize = 255 << 20;
/// After so many bytes more it is asked whether somebody waits for them, and whether there is memory.
const CHECK_INTERVAL_BYTES: usize = 1 << 20;

/// Bytes that are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} cannot be read at byte {at}")]
pub struct UnpackError {
    /// What was to be read.
    pub what: &'static str,
    /// Where, counted from the start.
    pub at: usize,
}

/// A value that can travel.
pub trait Codec: Sized {
    /// Appends the value.
    fn pack(&self, out: &mut Packer);

    /// Takes the value off the front. Fails when the bytes are no such value.
    fn unpack(from: &mut Unpacker) -> Result<Self, UnpackError>;
}

/// Why something was not packed to its end.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PackError {
    /// It has more bytes than [`BYTES_MAX`].
    #[error("it has more than {BYTES_MAX} bytes")]
    TooLarge,
    /// There is no memory for it.
    #[error("there is no memory for it")]
    NoMemory(#[from] OverBudget),
    /// The query that this thread works for is cancelled.
    #[error("it was cancelled")]
    Cancelled,
}

impl PackError {
    /// What a client is told of it; `what` is the subject of the sentence, in the plural.
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

/// Bytes being written. Values share their parts, so that a small one may be enormous as bytes: what is too
/// large, has no memory or is not wanted any more is not written any further, and [`Packer::finish`] says so.
pub struct Packer {
    bytes: Vec<u8>,
    /// The number of bytes at which to look whether to go on.
    check_at: usize,
    fault: Option<PackError>,
}

impl Default for Packer {
    fn default() -> Packer {
        Packer::with_capacity(0)
    }
}

impl Packer {
    /// Nothing written yet, room for `capacity` bytes.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Packer {
        Packer { bytes: Vec::with_capacity(capacity), check_at: CHECK_INTERVAL_BYTES, fault: None }
    }

    /// The bytes. Fails when not everything was written.
    pub fn finish(self) -> Result<Bytes, PackError> {
        match self.fault {
            None => Ok(Bytes::from(self.bytes)),
            Some(fault) => Err(fault),
        }
    }

    /// The number of bytes so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing was written yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether nothing more is written: who walks through something large ends then.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.fault.is_some()
    }

    /// One byte.
    pub fn byte(&mut self, byte: u8) {
        if self.takes(1) {
            self.bytes.push(byte);
        }
    }

    /// Bytes of a length that is known.
    pub fn raw(&mut self, bytes: &[u8]) {
        if self.takes(bytes.len()) {
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// A number, small ones in few bytes: seven bits a byte, the lowest first.
    pub fn count(&mut self, mut count: u64) {
        while count >= 0x80 {
            self.byte((count as u8) | 0x80);
            count >>= 7;
        }
        self.byte(count as u8);
    }

    /// Bytes with their length before them.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len() as u64);
        self.raw(bytes);
    }

    /// Several values with their number before them.
    pub fn list<'a, T: Codec + 'a>(&mut self, items: impl ExactSizeIterator<Item = &'a T>) {
        self.count(items.len() as u64);
        for item in items {
            if self.is_over() {
                break;
            }
            item.pack(self);
        }
    }

    /// Whether so many bytes more are written.
    #[inline]
    fn takes(&mut self, more: usize) -> bool {
        let len = self.bytes.len().saturating_add(more);
        len <= self.check_at || self.looks_good(len)
    }

    /// [`Packer::takes`] as often as it is looked closely. From the first fault on it is asked each time.
    #[cold]
    fn looks_good(&mut self, len: usize) -> bool {
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
            // The bytes move to a place twice as large before this one is given back.
            account.check_room((2 * capacity).max(len) as u64)?;
        }
        Ok(())
    }
}

/// Bytes being read. What is read shares their memory.
pub struct Unpacker {
    bytes: Bytes,
    at: usize,
}

impl Unpacker {
    /// From the first byte on.
    #[must_use]
    pub fn new(bytes: Bytes) -> Unpacker {
        Unpacker { bytes, at: 0 }
    }

    /// That `what` cannot be read here.
    #[must_use]
    pub fn invalid(&self, what: &'static str) -> UnpackError {
        UnpackError { what, at: self.at }
    }

    /// The number of bytes left.
    #[must_use]
    pub fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Fails unless everything was read.
    pub fn end(&self) -> Result<(), UnpackError> {
        if self.left() == 0 { Ok(()) } else { Err(self.invalid("the end")) }
    }

    /// One byte.
    pub fn byte(&mut self) -> Result<u8, UnpackError> {
        let byte = self.bytes.get(self.at).copied().ok_or_else(|| self.invalid("a byte"))?;
        self.at += 1;
        Ok(byte)
    }

    /// `count` bytes.
    pub fn raw(&mut self, count: usize) -> Result<Bytes, UnpackError> {
        if count > self.left() {
            return Err(self.invalid("bytes"));
        }
        let bytes = self.bytes.slice(self.at..self.at + count);
        self.at += count;
        Ok(bytes)
    }

    /// Eight bytes, or as many as `N`.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], UnpackError> {
        let found = self.bytes.get(self.at..).and_then(|rest| rest.first_chunk::<N>()).copied();
        let found = found.ok_or_else(|| self.invalid("bytes"))?;
        self.at += N;
        Ok(found)
    }

    /// What [`Packer::count`] wrote.
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

    /// A number of things in memory.
    pub fn size(&mut self) -> Result<usize, UnpackError> {
        let count = self.count()?;
        usize::try_from(count).map_err(|_| self.invalid("a size"))
    }

    /// What [`Packer::bytes`] wrote.
    pub fn bytes(&mut self) -> Result<Bytes, UnpackError> {
        let count = self.size()?;
        self.raw(count)
    }

    /// As many values as the number before them says.
    pub fn list<T>(
        &mut self,
        mut item: impl FnMut(&mut Unpacker) -> Result<T, UnpackError>,
    ) -> Result<Vec<T>, UnpackError> {
        let count = self.size()?;
        // Each takes a byte at least, so that a false number does not take memory.
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

/// Signed numbers, small magnitudes in few bytes.
impl Codec for i64 {
    fn pack(&self, out: &mut Packer) {
        out.count(((self << 1) ^ (self >> 63)) as u64);
    }
    fn unpack(from: &mut Unpacker) -> Result<Self, UnpackError> {
        let folded = from.count()?;
        Ok((folded >> 1) as i64 ^ -((folded & 1) as i64))
    }
}

/// All bits of it.
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
