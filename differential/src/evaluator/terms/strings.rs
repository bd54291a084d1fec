//! Text: matching, splitting, cases, templates.

use std::cell::RefCell;
use std::collections::HashMap;

use serde_json::json;

use super::{coerce, datum};
use crate::evaluator::args::Args;
use crate::evaluator::term_value::TermValue;
use crate::fault::{Fault, Out};
use crate::value::Val;

pub(super) fn eval(args: &Args<'_>) -> Out<TermValue> {
    match args.id {
        97 => matched(args, &args.text(0)?, &args.text(1)?),
        149 => split(args),
        141 => datum(Val::Text(args.text(0)?.to_ascii_uppercase())),
        142 => datum(Val::Text(args.text(0)?.to_ascii_lowercase())),
        _ => format(&args.text(0)?, &args.datum(1)?),
    }
}

thread_local! {
    static PATTERNS: RefCell<HashMap<String, regex::Regex>> = RefCell::default();
}

/// A regular expression, from the cache if possible.
pub(super) fn regex_of(pattern: &str) -> Out<regex::Regex> {
    PATTERNS.with_borrow_mut(|known| {
        if let Some(regex) = known.get(pattern) {
            return Ok(regex.clone());
        }
        let regex = regex::Regex::new(pattern).map_err(|_| Fault::logic("not a regular expression"))?;
        known.insert(pattern.to_owned(), regex.clone());
        Ok(regex)
    })
}

fn matched(args: &Args<'_>, text: &str, pattern: &str) -> Out<TermValue> {
    let regex = regex_of(pattern)?;
    let Some(found) = regex.captures(text) else { return datum(Val::Null) };
    let shown =
        |part: regex::Match<'_>| json!({"str": part.as_str(), "start": part.start(), "end": part.end()});
    let groups: Vec<_> = found.iter().skip(1).map(|part| part.map(shown)).collect();
    args.evaluator.fits(groups.len())?;
    let whole = found.get(0).map(shown).unwrap_or_default();
    let all = json!({"str": whole["str"], "start": whole["start"], "end": whole["end"], "groups": groups});
    datum(Val::of_json(&all))
}

/// `split`: at white space, between characters, or at a separator; the text behind `most` parts stays together.
fn split(args: &Args<'_>) -> Out<TermValue> {
    let text = args.text(0)?;
    let separator = match args.len() {
        1 => None,
        _ => match args.datum(1)? {
            Val::Null => None,
            Val::Text(separator) => Some(separator),
            other => return Err(Fault::expected("STRING", &other)),
        },
    };
    let most = if args.len() > 2 { args.whole(2)? } else { -1 };
    let limit = i64::try_from(args.evaluator.array_limit()).unwrap_or(i64::MAX);
    if !(-1..limit).contains(&most) {
        return Err(Fault::logic("size out of range"));
    }
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let parts = match separator.as_deref() {
        None => at_space(&text, most),
        Some("") => characters(&text, most),
        Some(separator) => text.splitn(most.saturating_add(1), separator).map(str::to_owned).collect(),
    };
    args.evaluator.array(parts.into_iter().map(Val::Text).collect()).and_then(datum)
}

fn at_space(text: &str, most: usize) -> Vec<String> {
    let mut parts = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let end = if parts.len() == most {
            rest.len()
        } else {
            rest.find(char::is_whitespace).unwrap_or(rest.len())
        };
        parts.push(rest[..end].to_owned());
        rest = rest[end..].trim_start();
    }
    parts
}

fn characters(text: &str, most: usize) -> Vec<String> {
    let mut parts: Vec<String> = text.chars().take(most).map(String::from).collect();
    let rest: String = text.chars().skip(most).collect();
    parts.extend((!rest.is_empty()).then_some(rest));
    parts
}

fn format(template: &str, values: &Val) -> Out<TermValue> {
    let mut out = String::new();
    let mut rest = template;
    while let Some(at) = rest.find(['{', '}']) {
        out.push_str(&rest[..at]);
        if rest[at..].starts_with('}') {
            return Err(Fault::logic("no parameter tags to close"));
        }
        let Some(end) = rest[at + 1..].find(['{', ',', '\\', '}']) else {
            return Err(Fault::logic("parameter tag must be closed"));
        };
        let name = &rest[at + 1..][..end];
        if !rest[at + 1 + end..].starts_with('}') {
            return Err(Fault::logic("an illegal parameter name"));
        }
        let value = match values {
            Val::Object(members) => members.get(name).ok_or_else(|| Fault::missing("no such parameter"))?,
            other => return Err(Fault::expected("OBJECT", other)),
        };
        out.push_str(&coerce::to_text(value)?);
        rest = &rest[at + end + 2..];
    }
    out.push_str(rest);
    datum(Val::Text(out))
}
