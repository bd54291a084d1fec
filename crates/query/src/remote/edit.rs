//! The encoding of edits.

use datum::{Datum, Object};
use reql::codec::{Codec, Packer, UnpackError, Unpacker};
use reql::{Closure, EvalError};

use crate::edit::{Conflict, Edit, Patch};

impl Codec for Edit {
    fn pack(&self, out: &mut Packer) {
        match self {
            Edit::Insert { row, conflict } => {
                out.byte(0);
                row.pack(out);
                conflict.pack(out);
            }
            Edit::Update(patch) => {
                out.byte(1);
                patch.pack(out);
            }
            Edit::Replace(patch) => {
                out.byte(2);
                patch.pack(out);
            }
            Edit::Delete => out.byte(3),
        }
    }

    fn unpack(from: &mut Unpacker) -> Result<Self, UnpackError> {
        Ok(match from.byte()? {
            0 => Edit::Insert { row: Object::unpack(from)?, conflict: Conflict::unpack(from)? },
            1 => Edit::Update(Patch::unpack(from)?),
            2 => Edit::Replace(Patch::unpack(from)?),
            3 => Edit::Delete,
            _ => return Err(from.invalid("an edit")),
        })
    }
}

impl Codec for Patch {
    fn pack(&self, out: &mut Packer) {
        match self {
            Patch::Func(closure) => {
                out.byte(0);
                closure.pack(out);
            }
            Patch::Constant(value) => {
                out.byte(1);
                value.pack(out);
            }
            Patch::Fails(error) => {
                out.byte(2);
                error.pack(out);
            }
        }
    }

    fn unpack(from: &mut Unpacker) -> Result<Self, UnpackError> {
        Ok(match from.byte()? {
            0 => Patch::Func(Closure::unpack(from)?),
            1 => Patch::Constant(Datum::unpack(from)?),
            2 => Patch::Fails(EvalError::unpack(from)?),
            _ => return Err(from.invalid("a patch")),
        })
    }
}

impl Codec for Conflict {
    fn pack(&self, out: &mut Packer) {
        match self {
            Conflict::Error => out.byte(0),
            Conflict::Replace => out.byte(1),
            Conflict::Update => out.byte(2),
            Conflict::Func(closure) => {
                out.byte(3);
                closure.pack(out);
            }
        }
    }

    fn unpack(from: &mut Unpacker) -> Result<Self, UnpackError> {
        Ok(match from.byte()? {
            0 => Conflict::Error,
            1 => Conflict::Replace,
            2 => Conflict::Update,
            3 => Conflict::Func(Closure::unpack(from)?),
            _ => return Err(from.invalid("a conflict")),
        })
    }
}
