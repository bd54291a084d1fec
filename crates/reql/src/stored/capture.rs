//! Stored functions in RethinkDB's form: made from a query or from a text, and the variables around them.

use datum::{Datum, Text};

use super::binary::Function;
use super::{TEXT_BYTES_MAX, too_large};
use crate::backtrace::TermPath;
use crate::closure::Closure;
use crate::error::EvalError;
use crate::term::VarId;
use crate::wire::numbered::{self, NoFunc, Place};

/// The parameter of the function of an index that is created without one.
const FIELD_PARAM: VarId = VarId(-19);

/// Variables that no text can name. They stand for a row that is `r.row`, and keep a function with one captured variable from
/// giving `r.row` a meaning.
const ROW: VarId = VarId(i64::MAX);
const UNNAMED: [VarId; 2] = [VarId(i64::MIN), VarId(i64::MIN + 1)];

/// The function `closure` at `path` in a query with this text; `None` if it is not there. Fails if it is too large.
pub(super) fn function(
    closure: &Closure,
    query: &str,
    path: &TermPath,
) -> Result<Option<Function>, EvalError> {
    let found = match numbered::func_of_query(query, path, TEXT_BYTES_MAX) {
        Ok(found) if found.params == closure.func.params => found,
        Ok(_) | Err(NoFunc::Missing) => return Ok(None),
        Err(NoFunc::TooLarge) => return Err(too_large()),
    };
    let value = |id: VarId| {
        let captured = closure.captured.iter().find(|(name, _)| *name == id);
        captured.map(|(_, value)| value.clone())
    };
    let captured = found.free.ids.iter().map(|id| Some((*id, value(*id)?))).collect::<Option<Vec<_>>>();
    let (rows_around, around) = found.place.rows_around();
    let row = around.filter(|_| rows_around == 1 && found.free.row).and_then(value);
    let of = |captured| Function {
        captured,
        rows_around,
        row,
        params: found.params,
        tree: found.tree,
        number: found.number,
    };
    Ok(captured.map(of))
}

/// The function of an index that is created without one, by a term at this place.
pub(super) fn field(name: &Text, place: Place) -> Function {
    let number = place.number;
    let name = Datum::String(name.clone()).to_json_string();
    let var = format!("[10,[[1,{},{number}]],{number}]", FIELD_PARAM.0);
    Function {
        captured: Vec::new(),
        rows_around: place.rows_around().0,
        row: None,
        params: vec![FIELD_PARAM],
        tree: format!("[31,[{var},[1,{name},{number}]],{number}]").into(),
        number,
    }
}

/// The function with this text, which has no free variables. `None` if there is none.
pub(super) fn of_text(text: &str) -> Option<Function> {
    let found = numbered::func_of_text(text, i32::MAX as usize).ok()?;
    Some(Function {
        captured: Vec::new(),
        rows_around: 0,
        row: None,
        params: found.params,
        tree: found.tree,
        number: found.number,
    })
}

/// The parameters of functions around `function`, outermost first, and the known values among them.
pub(super) fn scope(function: &Function) -> (Vec<Vec<VarId>>, Vec<(VarId, Datum)>) {
    let mut values = function.captured.clone();
    let captured = values.iter().map(|(id, _)| *id).chain(UNNAMED).collect();
    let mut around = vec![captured];
    // Inside two functions of one row, `r.row` means neither.
    around.extend((0..function.rows_around.min(2)).map(|_| vec![ROW]));
    values.extend(function.row.clone().map(|row| (ROW, row)));
    (around, values)
}
