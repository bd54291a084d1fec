//! `match`: regular expressions with RE2's syntax and messages.

use std::cell::RefCell;
use std::rc::Rc;

use datum::{Datum, Object, ObjectBuilder, Text};
use regex::{Captures, Match, Regex, RegexBuilder};

use super::re2;
use crate::EvalError;
use crate::args::Args;

/// Compiled expressions that each thread caches.
const CACHED_MAX: usize = 32;
/// Deepest nesting of groups.
const DEPTH_MAX: u32 = 1_000;
/// Most memory of one compiled expression.
const COMPILED_BYTES_MAX: usize = 8 << 20;

thread_local! {
    /// The most recently used expressions, newest last: a query uses the same expression once per row. They are
    /// shared instead of cloned, because every clone starts without scratch memory.
    static COMPILED: RefCell<Vec<(Text, Rc<Regex>)>> = const { RefCell::new(Vec::new()) };
}

/// `match`: the position of the first match in the string, with its groups, or null. Offsets count bytes.
pub fn matches(args: &Args<'_>) -> Result<Datum, EvalError> {
    let text = args.string(0)?;
    let expression = args.string(1)?;
    let regex = compiled(expression)?;
    Ok(match regex.captures(text) {
        None => Datum::Null,
        Some(captures) => {
            args.env.check_array(captures.len() - 1)?;
            Datum::Object(describe(text, &captures))
        }
    })
}

fn describe(text: &Text, captures: &Captures<'_>) -> Object {
    let groups = captures.iter().skip(1).map(|group| match group {
        None => Datum::Null,
        Some(group) => Datum::Object(place(text, group).build()),
    });
    let groups: Vec<Datum> = groups.collect();
    let mut answer = match captures.get(0) {
        Some(whole) => place(text, whole),
        None => ObjectBuilder::new(),
    };
    answer.insert(Text::from_static("groups"), Datum::from(groups));
    answer.build()
}

fn place(text: &Text, found: Match<'_>) -> ObjectBuilder {
    let mut place = ObjectBuilder::new();
    place.insert(Text::from_static("str"), Datum::String(text.slice_ref(found.as_str())));
    place.insert(Text::from_static("start"), Datum::Number(found.start() as f64));
    place.insert(Text::from_static("end"), Datum::Number(found.end() as f64));
    place
}

/// Compiles the expression, or takes it from this thread's cache.
fn compiled(expression: &Text) -> Result<Rc<Regex>, EvalError> {
    let known = COMPILED.with_borrow_mut(|cache| {
        let position = cache.iter().rposition(|(known, _)| known == expression)?;
        if position + 1 < cache.len() {
            let entry = cache.remove(position);
            cache.push(entry);
        }
        cache.last().map(|(_, regex)| Rc::clone(regex))
    });
    if let Some(regex) = known {
        return Ok(regex);
    }
    let regex = Rc::new(compile(expression)?);
    COMPILED.with_borrow_mut(|cache| {
        if cache.len() == CACHED_MAX {
            cache.remove(0);
        }
        cache.push((expression.clone(), Rc::clone(&regex)));
    });
    Ok(regex)
}

fn compile(expression: &str) -> Result<Regex, EvalError> {
    let refused = |portion: &str, text: &str| {
        EvalError::logic(format!("Error in regexp `{expression}` (portion `{portion}`): {text}"))
    };
    let translated = re2::translate(expression).map_err(|fault| refused(&fault.portion, &fault.text()))?;
    RegexBuilder::new(&translated).nest_limit(DEPTH_MAX).size_limit(COMPILED_BYTES_MAX).build().map_err(
        |error| match error {
            regex::Error::CompiledTooBig(_) => refused("", "pattern too large - compile failed"),
            _ => refused("", "unexpected error"),
        },
    )
}
