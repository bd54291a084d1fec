//! A function in RethinkDB's serialisation.
//!
//! Source: RethinkDB 2.4, rdb_protocol/wire_func.cc and rdb_protocol/var_types.cc.

use datum::{Datum, Text};

use super::reader::{Fault, Reader};
use super::{protobuf, value};
use crate::term::VarId;

const REQL: u8 = 0;
const JAVASCRIPT: u8 = 1;

/// A function as RethinkDB stores it.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::stored) struct Function {
    /// The variables of enclosing functions that it uses, in ascending order, with their values.
    pub captured: Vec<(VarId, Datum)>,
    /// The number of enclosing functions that give `r.row` a meaning.
    pub rows_around: u32,
    /// The value of `r.row` of the only such function, if this function uses it.
    pub row: Option<Datum>,
    pub params: Vec<VarId>,
    /// The numbered tree of its body, as JSON.
    pub tree: Text,
    /// The number of its body.
    pub number: u32,
}

/// The form of the term tree and the backtrace, which depends on the release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TreeForm {
    /// Until 2.0: both are messages of Protocol Buffers.
    Protobuf,
    /// 2.1: the tree is a message, the backtrace a number.
    ProtobufNumbered,
    /// Since 2.2: the tree is JSON.
    Json,
}

/// Why a function cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum FunctionError {
    #[error(transparent)]
    Fault(#[from] Fault),
    #[error("it is a function in JavaScript")]
    JavaScript,
    /// Its tree is not one, for this reason.
    #[error("{0}")]
    Tree(&'static str),
}

impl Function {
    pub(super) fn read(reader: &mut Reader<'_>, form: TreeForm) -> Result<Function, FunctionError> {
        match reader.u8()? {
            REQL => {}
            JAVASCRIPT => return Err(skip_javascript(reader, form)),
            _ => return Err(Fault::Range.into()),
        }
        let captured = captured(reader)?;
        let rows_around = reader.u32()?;
        let row = match rows_around == 1 && reader.bool()? {
            true => Some(value::read(reader)?),
            false => None,
        };
        let params = params(reader)?;
        let tree = match form {
            TreeForm::Json => json_tree(reader)?,
            TreeForm::Protobuf | TreeForm::ProtobufNumbered => {
                protobuf::tree(tree_bytes(reader)?).map_err(FunctionError::Tree)?
            }
        };
        let number = match form {
            TreeForm::Json | TreeForm::ProtobufNumbered => reader.u32()?,
            // An older release wrote it, for error messages only.
            TreeForm::Protobuf => tree_bytes(reader).map(|_| 0)?,
        };
        Ok(Function { captured, rows_around, row, params, tree, number })
    }

    /// The bytes of the function, as RethinkDB 2.4 writes them; `None` if there are more than `bytes_max`.
    pub(in crate::stored) fn write(&self, bytes_max: usize) -> Option<Vec<u8>> {
        let tree_bytes = i32::try_from(self.tree.len() + 1).ok()?;
        let mut out = vec![REQL];
        value::write_varint(self.captured.len() as u64, &mut out);
        for (id, value) in &self.captured {
            out.extend(id.0.to_le_bytes());
            value::write(value, bytes_max.checked_sub(out.len())?, &mut out)?;
        }
        out.extend(self.rows_around.to_le_bytes());
        if self.rows_around == 1 {
            out.push(u8::from(self.row.is_some()));
            if let Some(row) = &self.row {
                value::write(row, bytes_max.checked_sub(out.len())?, &mut out)?;
            }
        }
        value::write_varint(self.params.len() as u64, &mut out);
        self.params.iter().for_each(|id| out.extend(id.0.to_le_bytes()));
        out.extend(tree_bytes.to_le_bytes());
        out.extend_from_slice(self.tree.as_bytes());
        out.push(0);
        out.extend(self.number.to_le_bytes());
        (out.len() <= bytes_max).then_some(out)
    }
}

/// Reads the rest of a function in JavaScript: an error there comes first.
fn skip_javascript(reader: &mut Reader<'_>, form: TreeForm) -> FunctionError {
    let mut skip = || {
        reader.counted()?;
        reader.u64()?;
        match form {
            TreeForm::Protobuf => tree_bytes(reader).map(|_| ()),
            TreeForm::ProtobufNumbered | TreeForm::Json => reader.u32().map(|_| ()),
        }
    };
    skip().map_or_else(FunctionError::Fault, |()| FunctionError::JavaScript)
}

fn captured(reader: &mut Reader<'_>) -> Result<Vec<(VarId, Datum)>, Fault> {
    let mut captured = Vec::new();
    for _ in 0..reader.varint()? {
        let id = VarId(reader.i64()?);
        captured.push((id, value::read(reader)?));
    }
    captured.sort_by_key(|(id, _)| *id);
    match captured.windows(2).any(|pair| pair[0].0 == pair[1].0) {
        true => Err(Fault::Range),
        false => Ok(captured),
    }
}

fn params(reader: &mut Reader<'_>) -> Result<Vec<VarId>, Fault> {
    let mut params = Vec::new();
    for _ in 0..reader.varint()? {
        params.push(VarId(reader.i64()?));
    }
    Ok(params)
}

/// The bytes of a tree, behind their number.
fn tree_bytes<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], Fault> {
    let count = usize::try_from(reader.i32()?).map_err(|_| Fault::Range)?;
    reader.take(count).map_err(|_| Fault::Cut)
}

fn json_tree(reader: &mut Reader<'_>) -> Result<Text, FunctionError> {
    let text = tree_bytes(reader)?.split_last().filter(|(last, _)| **last == 0).map(|(_, text)| text);
    let text = text.ok_or(FunctionError::Tree("its term tree does not end with a zero byte"))?;
    let text = std::str::from_utf8(text).map_err(|_| FunctionError::Tree("its term tree is not UTF-8"))?;
    Ok(Text::from(text))
}
