//! Datums in RethinkDB's serialisation: the values of captured variables.
//!
//! Source: RethinkDB 2.4, rdb_protocol/serialize_datum.cc.

use datum::{Bytes, Datum, ObjectBuilder, Text, pseudo};

use super::reader::{Fault, Reader};
use crate::deep;

/// Arrays and objects of releases before 1.16, without offsets.
const PLAIN_ARRAY: u8 = 1;
const PLAIN_OBJECT: u8 = 5;
const BOOL: u8 = 2;
const NULL: u8 = 3;
const DOUBLE: u8 = 4;
const STRING: u8 = 6;
const INT_NEGATIVE: u8 = 7;
const INT_POSITIVE: u8 = 8;
const BINARY: u8 = 9;
const ARRAY: u8 = 10;
const OBJECT: u8 = 11;
const MINVAL: u8 = 13;
const MAXVAL: u8 = 14;

/// Largest magnitude that is written as an integer.
const INTEGER_MAX: u64 = 1 << 53;

pub(super) fn read(reader: &mut Reader<'_>) -> Result<Datum, Fault> {
    deep::level(|| match reader.u8()? {
        PLAIN_ARRAY => plain_array(reader),
        PLAIN_OBJECT => plain_object(reader),
        BOOL => reader.bool().map(Datum::Bool),
        NULL => Ok(Datum::Null),
        DOUBLE => reader.f64().and_then(|number| match number.is_finite() {
            true => Ok(Datum::Number(number)),
            false => Err(Fault::Range),
        }),
        STRING => Ok(Datum::from(reader.text()?)),
        INT_NEGATIVE => Ok(Datum::Number(-integer(reader)?)),
        INT_POSITIVE => integer(reader).map(Datum::Number),
        BINARY => Ok(Datum::Binary(Bytes::copy_from_slice(reader.counted()?))),
        ARRAY => {
            let elements = elements(reader.counted()?, read)?;
            Ok(Datum::from(elements))
        }
        OBJECT => object(elements(reader.counted()?, member)?),
        MINVAL => Ok(Datum::MinVal),
        MAXVAL => Ok(Datum::MaxVal),
        _ => Err(Fault::Range),
    })
}

fn integer(reader: &mut Reader<'_>) -> Result<f64, Fault> {
    match reader.varint()? {
        // Exact up to this magnitude.
        number if number <= INTEGER_MAX => Ok(number as f64),
        _ => Err(Fault::Range),
    }
}

fn member(reader: &mut Reader<'_>) -> Result<(Text, Datum), Fault> {
    Ok((Text::from(reader.text()?), read(reader)?))
}

fn object(members: Vec<(Text, Datum)>) -> Result<Datum, Fault> {
    let mut object = ObjectBuilder::new();
    for (name, value) in members {
        if object.insert(name, value).is_some() {
            return Err(Fault::Range);
        }
    }
    pseudo::from_object(object.build()).map_err(|_| Fault::Range)
}

fn plain_array(reader: &mut Reader<'_>) -> Result<Datum, Fault> {
    let count = reader.varint()?;
    let items: Result<Vec<Datum>, Fault> = (0..count).map(|_| read(reader)).collect();
    items.map(Datum::from)
}

fn plain_object(reader: &mut Reader<'_>) -> Result<Datum, Fault> {
    let count = reader.varint()?;
    let members: Result<Vec<_>, Fault> = (0..count).map(|_| member(reader)).collect();
    object(members?)
}

/// The elements of an array or object: their number, a table of their offsets, and the elements. Fails if anything is
/// left.
fn elements<T>(inner: &[u8], read: fn(&mut Reader<'_>) -> Result<T, Fault>) -> Result<Vec<T>, Fault> {
    let mut reader = Reader::new(inner);
    let count = reader.varint()?;
    let width = width_of(inner.len());
    let offsets_bytes = count.saturating_sub(1).checked_mul(width as u64).ok_or(Fault::Eof)?;
    let offsets = reader.take(usize::try_from(offsets_bytes).map_err(|_| Fault::Eof)?)?;
    let first = reader.left();
    let mut offsets = offsets.chunks_exact(width);
    let mut elements = Vec::new();
    for i in 0..count {
        let offset = (first - reader.left()).to_le_bytes();
        if i > 0 && offsets.next() != offset.get(..width) {
            return Err(Fault::Range);
        }
        elements.push(read(&mut reader)?);
    }
    if reader.left() > 0 { Err(Fault::Range) } else { Ok(elements) }
}

/// The bytes of an offset in a table for an array or object with this inner size.
fn width_of(inner_bytes: usize) -> usize {
    match inner_bytes {
        0..=0xff => 1,
        0x100..=0xffff => 2,
        0x1_0000..=0xffff_ffff => 4,
        _ => 8,
    }
}

/// Appends a datum; `None` if there would be more than `bytes_max` bytes.
pub(super) fn write(datum: &Datum, bytes_max: usize, out: &mut Vec<u8>) -> Option<()> {
    let mut backwards = Backwards { bytes: Vec::new(), bytes_max };
    backwards.datum(datum);
    if backwards.is_over() {
        return None;
    }
    out.extend(backwards.bytes.into_iter().rev());
    Some(())
}

/// Appends a number in groups of seven bits.
pub(super) fn write_varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Bytes that are written from the last to the first: sizes and offsets are then known when their turn comes.
struct Backwards {
    /// The last byte first.
    bytes: Vec<u8>,
    bytes_max: usize,
}

impl Backwards {
    fn is_over(&self) -> bool {
        self.bytes.len() > self.bytes_max
    }

    /// Writes `bytes` before those written so far.
    fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes.iter().rev());
    }

    fn varint(&mut self, number: u64) {
        let mut bytes = Vec::with_capacity(10);
        write_varint(number, &mut bytes);
        self.put(&bytes);
    }

    fn counted(&mut self, bytes: &[u8]) {
        self.put(bytes);
        self.varint(bytes.len() as u64);
    }

    fn datum(&mut self, datum: &Datum) {
        if self.is_over() {
            return;
        }
        match datum {
            Datum::MinVal => self.put(&[MINVAL]),
            Datum::MaxVal => self.put(&[MAXVAL]),
            Datum::Null => self.put(&[NULL]),
            Datum::Bool(flag) => self.put(&[BOOL, u8::from(*flag)]),
            Datum::Number(number) => self.number(*number),
            Datum::String(text) => {
                self.counted(text.as_bytes());
                self.put(&[STRING]);
            }
            Datum::Binary(bytes) => {
                self.counted(bytes);
                self.put(&[BINARY]);
            }
            Datum::Array(items) => deep::level(|| {
                self.elements(items.iter().rev(), Backwards::datum);
                self.put(&[ARRAY]);
            }),
            Datum::Object(_) | Datum::Time(_) | Datum::Geometry(_) => deep::level(|| {
                let members: Vec<_> =
                    pseudo::to_object(datum).iter().flat_map(|object| object.iter()).collect();
                self.elements(members.iter().rev(), |out, (name, value)| {
                    out.datum(value);
                    out.counted(name.as_bytes());
                });
                self.put(&[OBJECT]);
            }),
        }
    }

    fn number(&mut self, number: f64) {
        if number.fract() == 0.0 && number.abs() <= INTEGER_MAX as f64 {
            self.varint(number.abs() as u64);
            self.put(&[if number.is_sign_negative() { INT_NEGATIVE } else { INT_POSITIVE }]);
        } else {
            self.put(&number.to_le_bytes());
            self.put(&[DOUBLE]);
        }
    }

    /// Writes the elements, of which `last_first` begins with the last, with their table and their size.
    fn elements<T>(
        &mut self,
        last_first: impl ExactSizeIterator<Item = T>,
        write: impl Fn(&mut Backwards, T),
    ) {
        let (end, count) = (self.bytes.len(), last_first.len());
        // The distance of the beginning of each element from the end of all that is written.
        let mut starts = Vec::new();
        for element in last_first {
            write(self, element);
            starts.push(self.bytes.len());
            if self.is_over() {
                return;
            }
        }
        let first = self.bytes.len();
        let mut size = Vec::with_capacity(10);
        write_varint(count as u64, &mut size);
        let table = count.saturating_sub(1);
        let inner = |width: usize| first - end + size.len() + table * width;
        let width = [1, 2, 4].into_iter().find(|width| width_of(inner(*width)) <= *width).unwrap_or(8);
        for start in starts.into_iter().take(table) {
            self.put(&(first - start).to_le_bytes()[..width]);
        }
        self.put(&size);
        self.varint((self.bytes.len() - end) as u64);
    }
}
