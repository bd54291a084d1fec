//! The binary forms of stored functions, which `index_status` and `get_write_hook` give to clients.
//!
//! The forms of RethinkDB 1.16 to 2.4 are read, and the one of 2.4 is written, so that functions move in both directions. A
//! form of earlier versions of ours, with the text of the function, is read as well.
//!
//! Source: RethinkDB 2.4, rdb_protocol/terms/sindex.cc, rdb_protocol/btree.cc and rdb_protocol/terms/write_hook.cc.

mod function;
mod protobuf;
mod reader;
#[cfg(test)]
mod tests;
mod value;

use datum::Bytes;

use crate::error::EvalError;
use function::{FunctionError, TreeForm};
use reader::{Fault, Reader};

pub(super) use function::Function;

const INDEX_PREFIX: &[u8] = b"$reql_index_function$";
const HOOK_PREFIX: &[u8] = b"$reql_write_hook_function$";

/// Behind the prefix of an index in our earlier form: its mark and version, then flags, then the text.
const EARLIER_INDEX: &[u8] = b"rekindle\x01";
const EARLIER_MULTI: u8 = 1;
const EARLIER_GEO: u8 = 2;

/// The serialisations and the versions of the language of RethinkDB: 1.14 is the first whose index functions have this form, 2.4
/// the last.
const CLUSTER_1_14: i8 = 2;
const CLUSTER_2_1: i8 = 6;
const CLUSTER_2_2: i8 = 7;
const CLUSTER_2_4: i8 = 9;
const REQL_1_13: i8 = 0;
const REQL_1_14: i8 = 1;
const REQL_1_16: i8 = 2;
const REQL_2_4: i8 = 7;

/// The content of a binary.
pub(super) enum Content<'a> {
    Function(Function),
    /// A function in JavaScript, which is never deterministic.
    JavaScript,
    /// The text of a function, in our earlier form.
    Text(&'a [u8]),
}

/// Whether an index has many entries for a row, and whether it is geospatial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexFlags {
    pub multi: bool,
    pub geo: bool,
}

/// The function and the flags of an index.
pub(super) fn read_index(blob: &[u8]) -> Result<(Content<'_>, IndexFlags), EvalError> {
    let content = blob.strip_prefix(INDEX_PREFIX).ok_or_else(|| {
        EvalError::logic(
            "Cannot create an sindex except from a reql_index_function returned from `index_status` in the field \
             `function`.",
        )
    })?;
    if let Some(earlier) = content.strip_prefix(EARLIER_INDEX) {
        return read_earlier_index(earlier);
    }
    let mut reader = Reader::new(content);
    let cluster = cluster_version(&mut reader)?;
    check_reql_versions(&mut reader)?;
    let form = match cluster {
        ..CLUSTER_2_1 => TreeForm::Protobuf,
        CLUSTER_2_1 => TreeForm::ProtobufNumbered,
        CLUSTER_2_2.. => TreeForm::Json,
    };
    let content = match Function::read(&mut reader, form) {
        Ok(function) => Content::Function(function),
        Err(FunctionError::JavaScript) => Content::JavaScript,
        Err(FunctionError::Fault(fault)) => return Err(undecodable(DESCRIPTION, fault)),
        Err(FunctionError::Tree(why)) => return Err(insane(why)),
    };
    let mut flag = || reader.bool().map_err(|fault| undecodable(DESCRIPTION, fault));
    let (multi, geo) = (flag()?, cluster > CLUSTER_1_14 && flag()?);
    match reader.left() {
        0 => Ok((content, IndexFlags { multi, geo })),
        // RethinkDB stops here.
        more => Err(uninterpretable(&format!("Bytes after the sindex description: {more}."))),
    }
}

/// The function of a write hook. Bytes behind it are ignored, as in RethinkDB.
pub(super) fn read_hook(blob: &[u8]) -> Result<Content<'_>, EvalError> {
    let content = blob.strip_prefix(HOOK_PREFIX).ok_or_else(not_a_hook)?;
    // The first byte of RethinkDB's form is 0 or 1.
    if content.first().is_some_and(|first| *first > 1) {
        return Ok(Content::Text(content));
    }
    match Function::read(&mut Reader::new(content), TreeForm::Json) {
        Ok(function) => Ok(Content::Function(function)),
        Err(FunctionError::JavaScript) => Ok(Content::JavaScript),
        Err(FunctionError::Tree(why)) => Err(insane(why)),
        Err(FunctionError::Fault(fault)) => {
            let why = format!("[func.has()], as the write hook function cannot be read ({fault}).");
            Err(EvalError::internal(format!("SANITY CHECK FAILED: {why}")))
        }
    }
}

/// The error for a binary that is not a write hook.
pub(super) fn not_a_hook() -> EvalError {
    EvalError::logic(
        "Cannot create a write hook except from a reql_write_hook_function returned from `get_write_hook`.",
    )
}

/// The error for an invalid term tree: in RethinkDB a consistency check of the server fails.
pub(super) fn insane(why: impl std::fmt::Display) -> EvalError {
    EvalError::internal(format!("SANITY CHECK FAILED: the function cannot be read: {why}."))
}

/// The error for an index that cannot be read for this reason, a sentence.
pub(super) fn uninterpretable(why: &str) -> EvalError {
    EvalError::logic(format!(
        "Binary blob passed to index create could not be interpreted as a reql_index_function ({why})."
    ))
}

pub(super) fn write_index(function: &[u8], flags: IndexFlags) -> Bytes {
    let versions = [CLUSTER_2_4, REQL_2_4, REQL_2_4, REQL_2_4].map(i8::cast_unsigned);
    let flags = [u8::from(flags.multi), u8::from(flags.geo)];
    Bytes::from([INDEX_PREFIX, &versions, function, &flags].concat())
}

pub(super) fn write_hook(function: &[u8]) -> Bytes {
    Bytes::from([HOOK_PREFIX, function].concat())
}

fn read_earlier_index(content: &[u8]) -> Result<(Content<'_>, IndexFlags), EvalError> {
    let (flags, text) = content.split_first().ok_or_else(|| uninterpretable("it is cut"))?;
    if flags & !(EARLIER_MULTI | EARLIER_GEO) != 0 {
        return Err(uninterpretable("unknown flags"));
    }
    let flags = IndexFlags { multi: flags & EARLIER_MULTI != 0, geo: flags & EARLIER_GEO != 0 };
    Ok((Content::Text(text), flags))
}

/// The part of an index that RethinkDB names in its errors.
const DESCRIPTION: &str = "sindex description";

fn undecodable(part: &str, fault: Fault) -> EvalError {
    uninterpretable(&format!("Deserialization of {part} failed with error {fault}."))
}

fn cluster_version(reader: &mut Reader<'_>) -> Result<i8, EvalError> {
    match reader.i8().map_err(|fault| undecodable(DESCRIPTION, fault))? {
        0 | 1 => Err(of_1_13()),
        version @ CLUSTER_1_14..=CLUSTER_2_4 => Ok(version),
        _ => Err(EvalError::internal("Unrecognized secondary index version, secondary index not created.")),
    }
}

/// Checks the version of the language of the index, the latest one that is compatible, and the latest that was checked. An index
/// gets the newest version when it is created.
fn check_reql_versions(reader: &mut Reader<'_>) -> Result<(), EvalError> {
    let mut version = |part| match reader.i8() {
        Ok(version @ (REQL_1_13 | REQL_1_14 | REQL_1_16..=REQL_2_4)) => Ok(version),
        Ok(_) => Err(undecodable(part, Fault::Range)),
        Err(fault) => Err(undecodable(part, fault)),
    };
    match version("original_reql_version")? {
        REQL_1_13 => return Err(of_1_13()),
        REQL_1_14 => {
            return Err(EvalError::logic(
                "Attempted to import a secondary index from before RethinkDB 1.16, which is no longer supported.  This \
                 secondary index may be updated by importing into RethinkDB 2.1.",
            ));
        }
        _ => {}
    }
    for part in ["latest_compatible_reql_version", "latest_checked_reql_version"] {
        if version(part)? < REQL_1_16 {
            return Err(undecodable(part, Fault::Range));
        }
    }
    Ok(())
}

fn of_1_13() -> EvalError {
    EvalError::logic(
        "Attempted to import a RethinkDB 1.13 secondary index, which is no longer supported.  This secondary index may \
         be updated by importing into RethinkDB 2.0.",
    )
}

/// The function in the bytes of [`Function::write`].
pub(super) fn read_function(bytes: &[u8]) -> Option<Function> {
    Function::read(&mut Reader::new(bytes), TreeForm::Json).ok()
}

/// Whether a function, in the bytes of [`Function::write`], has captured variables: their number follows the type.
pub(super) fn has_captured(function: &[u8]) -> bool {
    function.get(1).is_some_and(|count| *count > 0)
}
