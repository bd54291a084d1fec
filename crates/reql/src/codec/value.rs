//! Datums, without any loss: stored rows as their bytes, other values part by part.

use datum::{Datum, Object, Text, Time, pseudo, row};

use super::{Codec, Packer, UnpackError, Unpacker};
use crate::deep;

const NULL: u8 = 0;
const FALSE: u8 = 1;
const TRUE: u8 = 2;
const NUMBER: u8 = 3;
const STRING: u8 = 4;
const ARRAY: u8 = 5;
const OBJECT: u8 = 6;
const ROW: u8 = 7;
const BINARY: u8 = 8;
const TIME: u8 = 9;
const GEOMETRY: u8 = 10;
const MINVAL: u8 = 11;
const MAXVAL: u8 = 12;

/// Largest offset of a zone from UTC, in minutes: 24:59.
const OFFSET_MINUTES_MAX: i64 = 24 * 60 + 59;

impl Codec for Datum {
    fn pack(&self, out: &mut Packer) {
        match self {
            Datum::Null => out.byte(NULL),
            Datum::Bool(false) => out.byte(FALSE),
            Datum::Bool(true) => out.byte(TRUE),
            Datum::Number(number) => {
                out.byte(NUMBER);
                number.pack(out);
            }
            Datum::String(text) => {
                out.byte(STRING);
                text.pack(out);
            }
            Datum::Array(items) => {
                out.byte(ARRAY);
                deep::level(|| out.list(items.iter()));
            }
            Datum::Object(object) => object.pack(out),
            Datum::Binary(bytes) => {
                out.byte(BINARY);
                bytes.pack(out);
            }
            Datum::Time(time) => {
                out.byte(TIME);
                time.pack(out);
            }
            Datum::Geometry(_) => {
                out.byte(GEOMETRY);
                pseudo::to_object(self).unwrap_or_default().pack(out);
            }
            Datum::MinVal => out.byte(MINVAL),
            Datum::MaxVal => out.byte(MAXVAL),
        }
    }

    fn unpack(from: &mut Unpacker) -> Result<Self, UnpackError> {
        Ok(match from.byte()? {
            NULL => Datum::Null,
            FALSE => Datum::Bool(false),
            TRUE => Datum::Bool(true),
            NUMBER => Datum::Number(f64::unpack(from)?),
            STRING => Datum::String(Text::unpack(from)?),
            ARRAY => Datum::from(deep::level(|| from.list(Datum::unpack))?),
            OBJECT => Datum::Object(members(from)?),
            ROW => Datum::Object(stored(from)?),
            BINARY => Datum::Binary(from.bytes()?),
            TIME => Datum::Time(Time::unpack(from)?),
            GEOMETRY => match pseudo::from_object(Object::unpack(from)?) {
                Ok(shape @ Datum::Geometry(_)) => shape,
                _ => return Err(from.invalid("a shape")),
            },
            MINVAL => Datum::MinVal,
            MAXVAL => Datum::MaxVal,
            _ => return Err(from.invalid("a datum")),
        })
    }
}

impl Codec for Object {
    fn pack(&self, out: &mut Packer) {
        if let Some(bytes) = row::stored(self) {
            out.byte(ROW);
            return bytes.pack(out);
        }
        out.byte(OBJECT);
        out.count(self.len() as u64);
        deep::level(|| {
            for (key, value) in self.iter() {
                if out.is_over() {
                    break;
                }
                key.pack(out);
                value.pack(out);
            }
        });
    }

    fn unpack(from: &mut Unpacker) -> Result<Self, UnpackError> {
        match from.byte()? {
            OBJECT => members(from),
            ROW => stored(from),
            _ => Err(from.invalid("an object")),
        }
    }
}

fn members(from: &mut Unpacker) -> Result<Object, UnpackError> {
    let members = deep::level(|| from.list(<(Text, Datum)>::unpack))?;
    let count = members.len();
    let object: Object = members.into_iter().collect();
    if object.len() == count { Ok(object) } else { Err(from.invalid("an object of different keys")) }
}

fn stored(from: &mut Unpacker) -> Result<Object, UnpackError> {
    let bytes = from.bytes()?;
    row::decode(bytes).map_err(|_| from.invalid("a stored row"))
}

impl Codec for Time {
    fn pack(&self, out: &mut Packer) {
        self.epoch_seconds.pack(out);
        i64::from(self.offset_minutes).pack(out);
    }

    fn unpack(from: &mut Unpacker) -> Result<Self, UnpackError> {
        let (epoch_seconds, minutes) = (f64::unpack(from)?, i64::unpack(from)?);
        let offset_minutes = i16::try_from(minutes).ok().filter(|_| minutes.abs() <= OFFSET_MINUTES_MAX);
        let offset_minutes = offset_minutes.ok_or_else(|| from.invalid("a zone"))?;
        Ok(Time { epoch_seconds, offset_minutes })
    }
}
