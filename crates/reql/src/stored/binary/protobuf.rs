//! Term trees of the releases until 2.1: messages of Protocol Buffers, which become the JSON of later ones.
//!
//! Source: RethinkDB 2.1, rdb_protocol/ql2.proto; RethinkDB 2.4, rdb_protocol/term_storage.cc.

use datum::Text;
use prost::Message;

use crate::wire::numbered;

/// Types of terms that have a form of their own.
const DATUM: i32 = 1;
const MAKE_OBJ: i32 = 3;

/// Types of datums.
const NULL: i32 = 1;
const BOOL: i32 = 2;
const NUMBER: i32 = 3;
const STRING: i32 = 4;
const ARRAY: i32 = 5;
const OBJECT: i32 = 6;
const JSON: i32 = 7;

/// A message with a missing or unknown part.
struct Incomplete;

#[derive(Clone, PartialEq, Message)]
struct Term {
    #[prost(int32, optional, tag = "1")]
    kind: Option<i32>,
    #[prost(message, optional, tag = "2")]
    datum: Option<Datum>,
    #[prost(message, repeated, tag = "3")]
    args: Vec<Term>,
    #[prost(message, repeated, tag = "4")]
    optargs: Vec<Optarg>,
}

#[derive(Clone, PartialEq, Message)]
struct Optarg {
    #[prost(string, optional, tag = "1")]
    name: Option<String>,
    #[prost(message, optional, tag = "2")]
    value: Option<Term>,
}

#[derive(Clone, PartialEq, Message)]
struct Datum {
    #[prost(int32, optional, tag = "1")]
    kind: Option<i32>,
    #[prost(bool, optional, tag = "2")]
    flag: Option<bool>,
    #[prost(double, optional, tag = "3")]
    number: Option<f64>,
    #[prost(string, optional, tag = "4")]
    text: Option<String>,
    #[prost(message, repeated, tag = "5")]
    items: Vec<Datum>,
    #[prost(message, repeated, tag = "6")]
    members: Vec<Member>,
}

#[derive(Clone, PartialEq, Message)]
struct Member {
    #[prost(string, optional, tag = "1")]
    name: Option<String>,
    #[prost(message, optional, tag = "2")]
    value: Option<Datum>,
}

/// The numbered tree of a term, with zero as all numbers. Fails with the reason.
pub(super) fn tree(message: &[u8]) -> Result<Text, &'static str> {
    let term = Term::decode(message).map_err(|_| "its term tree is not a message of Protocol Buffers")?;
    let mut out = String::new();
    write_term(&term, &mut out).map_err(|Incomplete| "its term tree lacks a part")?;
    Ok(Text::from(out))
}

// The decoder bounds the depth of a message.

fn write_term(term: &Term, out: &mut String) -> Result<(), Incomplete> {
    let kind = term.kind.ok_or(Incomplete)?;
    out.push_str(&format!("[{kind}"));
    match kind {
        DATUM => {
            out.push(',');
            write_datum(term.datum.as_ref().ok_or(Incomplete)?, out)?;
        }
        MAKE_OBJ => {
            out.push(',');
            write_optargs(&term.optargs, out)?;
        }
        _ => {
            if !term.args.is_empty() {
                out.push_str(",[");
                write_list(&term.args, out, write_term)?;
                out.push(']');
            }
            if !term.optargs.is_empty() {
                out.push(',');
                write_optargs(&term.optargs, out)?;
            }
        }
    }
    out.push_str(",0]");
    Ok(())
}

fn write_optargs(optargs: &[Optarg], out: &mut String) -> Result<(), Incomplete> {
    out.push('{');
    write_list(optargs, out, |optarg, out| {
        write_name(optarg.name.as_ref(), out)?;
        write_term(optarg.value.as_ref().ok_or(Incomplete)?, out)
    })?;
    out.push('}');
    Ok(())
}

fn write_datum(datum: &Datum, out: &mut String) -> Result<(), Incomplete> {
    match datum.kind.ok_or(Incomplete)? {
        NULL => out.push_str("null"),
        BOOL => out.push_str(if datum.flag.ok_or(Incomplete)? { "true" } else { "false" }),
        NUMBER => {
            let number = datum.number.filter(|number| number.is_finite()).ok_or(Incomplete)?;
            out.push_str(&numbered::double_text(number));
        }
        STRING => out.push_str(&quoted(datum.text.as_ref().ok_or(Incomplete)?)),
        ARRAY => {
            out.push('[');
            write_list(&datum.items, out, write_datum)?;
            out.push(']');
        }
        OBJECT => {
            out.push('{');
            write_list(&datum.members, out, |member, out| {
                write_name(member.name.as_ref(), out)?;
                write_datum(member.value.as_ref().ok_or(Incomplete)?, out)
            })?;
            out.push('}');
        }
        JSON => {
            let text = datum.text.as_ref().ok_or(Incomplete)?;
            out.push_str(&numbered::json_text(text).ok_or(Incomplete)?);
        }
        _ => return Err(Incomplete),
    }
    Ok(())
}

fn write_name(name: Option<&String>, out: &mut String) -> Result<(), Incomplete> {
    out.push_str(&quoted(name.ok_or(Incomplete)?));
    out.push(':');
    Ok(())
}

fn write_list<T>(
    items: &[T],
    out: &mut String,
    write: impl Fn(&T, &mut String) -> Result<(), Incomplete>,
) -> Result<(), Incomplete> {
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        write(item, out)?;
    }
    Ok(())
}

fn quoted(text: &str) -> String {
    datum::Datum::from(text).to_json_string()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The term `var1["a"]`.
    pub(in super::super) fn bracket() -> impl Message {
        let var = Term { args: vec![constant(number(1.0))], ..of(10) };
        Term { args: vec![var, constant(text(STRING, "a"))], ..of(170) }
    }

    fn of(kind: i32) -> Term {
        Term { kind: Some(kind), ..Term::default() }
    }

    fn constant(datum: Datum) -> Term {
        Term { datum: Some(datum), ..of(DATUM) }
    }

    fn number(number: f64) -> Datum {
        Datum { kind: Some(NUMBER), number: Some(number), ..Datum::default() }
    }

    fn text(kind: i32, text: &str) -> Datum {
        Datum { kind: Some(kind), text: Some(text.to_owned()), ..Datum::default() }
    }

    #[track_caller]
    fn check(term: &Term, expected: Result<&str, &str>) {
        let found = tree(&term.encode_to_vec());
        assert_eq!(found.as_deref(), expected.as_ref().copied());
    }

    #[test]
    fn terms_become_numbered_trees() {
        let var = Term { args: vec![constant(number(1.0))], ..of(10) };
        check(&var, Ok("[10,[[1,1.0,0]],0]"));
        let bound =
            Optarg { name: Some("left_bound".to_owned()), value: Some(constant(text(STRING, "op\"en"))) };
        let slice = Term { args: vec![var.clone()], optargs: vec![bound.clone()], ..of(30) };
        check(&slice, Ok(r#"[30,[[10,[[1,1.0,0]],0]],{"left_bound":[1,"op\"en",0]},0]"#));
        check(&Term { optargs: vec![bound], ..of(MAKE_OBJ) }, Ok(r#"[3,{"left_bound":[1,"op\"en",0]},0]"#));
        check(&of(MAKE_OBJ), Ok("[3,{},0]"));
        check(&of(13), Ok("[13,0]"));
    }

    #[test]
    fn datums_become_json() {
        let items = vec![number(-0.0), number(1e22), text(JSON, " [1, 1.50, {\"a\":null}] ")];
        let array = Datum { kind: Some(ARRAY), items, ..Datum::default() };
        let member = Member { name: Some("é".to_owned()), value: Some(array) };
        let object = Datum { kind: Some(OBJECT), members: vec![member], ..Datum::default() };
        check(&constant(object), Ok(r#"[1,{"é":[-0.0,1e22,[1,1.5,{"a":null}]]},0]"#));
        let flag = Datum { kind: Some(BOOL), flag: Some(true), ..Datum::default() };
        check(&constant(flag), Ok("[1,true,0]"));
        check(&constant(Datum { kind: Some(NULL), ..Datum::default() }), Ok("[1,null,0]"));
    }

    #[test]
    fn incomplete_messages_are_refused() {
        check(&Term::default(), Err("its term tree lacks a part"));
        check(&of(DATUM), Err("its term tree lacks a part"));
        check(&constant(Datum::default()), Err("its term tree lacks a part"));
        check(&constant(text(JSON, "[")), Err("its term tree lacks a part"));
        check(&constant(text(8, "")), Err("its term tree lacks a part"));
        assert_eq!(tree(b"\x08"), Err("its term tree is not a message of Protocol Buffers"));
        let deep = (0..200).fold(of(13), |term, _| Term { args: vec![term], ..of(23) });
        assert_eq!(tree(&deep.encode_to_vec()), Err("its term tree is not a message of Protocol Buffers"));
    }
}
