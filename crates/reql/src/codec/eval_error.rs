//! Errors of evaluation: class, text and the path to the term that failed.

use std::sync::Arc;

use datum::Text;

use super::{Codec, Packer, UnpackError, Unpacker};
use crate::backtrace::{Frame, TermPath};
use crate::error::{ErrorClass, EvalError};

/// The classes in the order of their numbers, which must not change.
const CLASSES: [ErrorClass; 8] = [
    ErrorClass::Internal,
    ErrorClass::ResourceLimit,
    ErrorClass::QueryLogic,
    ErrorClass::NonExistence,
    ErrorClass::OpFailed,
    ErrorClass::OpIndeterminate,
    ErrorClass::User,
    ErrorClass::Permission,
];

impl Codec for EvalError {
    fn pack(&self, out: &mut Packer) {
        let class = CLASSES.iter().position(|class| *class == self.class()).unwrap_or_default();
        out.byte(class as u8);
        self.is_empty_error().pack(out);
        out.bytes(self.message().as_bytes());
        out.list(self.backtrace().inner_first().iter());
        self.backtrace().anchored().cloned().pack(out);
    }

    fn unpack(from: &mut Unpacker) -> Result<Self, UnpackError> {
        let class = CLASSES.get(usize::from(from.byte()?)).copied();
        let class = class.ok_or_else(|| from.invalid("a class of errors"))?;
        let empty = bool::unpack(from)?;
        let text = Text::unpack(from)?.to_string();
        let error = if empty { EvalError::empty_error() } else { EvalError::new(class, text) };
        let error = from.list(Frame::unpack)?.into_iter().fold(error, EvalError::at);
        Ok(error.anchored(Option::unpack(from)?.as_ref()))
    }
}

impl Codec for Arc<TermPath> {
    fn pack(&self, out: &mut Packer) {
        let frames: Vec<&Frame> = self.outwards().collect();
        out.list(frames.into_iter().rev());
    }

    fn unpack(from: &mut Unpacker) -> Result<Self, UnpackError> {
        extended(None, from.list(Frame::unpack)?).ok_or_else(|| from.invalid("the path to a function"))
    }
}

pub(super) fn extended(outer: Option<Arc<TermPath>>, frames: Vec<Frame>) -> Option<Arc<TermPath>> {
    frames.into_iter().fold(outer, |outer, frame| Some(Arc::new(TermPath::new(outer, frame))))
}

impl Codec for Frame {
    fn pack(&self, out: &mut Packer) {
        match self {
            Frame::Argument(index) => {
                out.byte(0);
                out.count(u64::from(*index));
            }
            Frame::Optional(name) => {
                out.byte(1);
                name.pack(out);
            }
        }
    }

    fn unpack(from: &mut Unpacker) -> Result<Self, UnpackError> {
        match from.byte()? {
            0 => {
                let index = u32::try_from(from.count()?);
                Ok(Frame::Argument(index.map_err(|_| from.invalid("an argument's number"))?))
            }
            1 => Text::unpack(from).map(Frame::Optional),
            _ => Err(from.invalid("a frame")),
        }
    }
}
