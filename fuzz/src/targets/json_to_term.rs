//! Query JSON to terms.

use reql::{Term, wire};

use super::{Outcome, Target};

pub struct JsonToTerm;

impl Target for JsonToTerm {
    fn name(&self) -> &'static str {
        "json_to_term"
    }

    fn seeds(&self) -> Vec<Vec<u8>> {
        [
            r#"[1,[16,[[15,[[14,["test"]],"t"]],"key"]],{"db":[14,["test"]],"read_mode":"outdated"}]"#,
            r#"[1,[56,[[15,["t"]],{"id":1,"a":[2,[1,2,{"b":null}]]}],{"conflict":"replace","durability":"soft"}]]"#,
            r#"[1,[38,[[15,["t"]],[69,[[2,[1]],[24,[[170,[[10,[1]],"a"]],1.5]]]]]]]"#,
            r#"[1,[53,[[16,[[15,["t"]],1]],[69,[[2,[3]],{"n":[24,[[31,[[10,[3]],"n"]],1]]}]]],{"return_changes":"always"}]]"#,
            r#"[1,[182,[[15,["t"]],[180],[181]],{"index":"i","left_bound":"open"}],{}]"#,
            r#"[1,[64,[[69,[[2,[1,2]],[20,[[10,[1]],[10,[2]]]]]],{"$reql_type$":"TIME","epoch_time":1,"timezone":"Z"},"\u00e9"]]]"#,
            r#"[1,[68,[[15,["t"]],[69,[[2,[5]],[56,[[15,["u"]],[10,[5]]]]]]]]]"#,
            r#"[1,[41,[[15,["t"]],[74,["a"]]],{"index":[73,["b"]]}],{"array_limit":5}]"#,
            r#"[1,[92,[[12,["no"]],[154,[[2,[]]]]]]]"#,
            "[2]",
            "[5]",
        ]
        .map(|text| text.as_bytes().to_vec())
        .to_vec()
    }

    fn dictionary(&self) -> &'static [&'static [u8]] {
        &[
            b"[1,",
            b"[2,[",
            b"[69,[[2,[1]],",
            b"[10,[1]]",
            b"[13,[]]",
            b"[154,[[2,[]]]]",
            b"[15,[\"t\"]]",
            b"[64,[",
            b"[56,[",
            b"[53,[",
            b"[38,[",
            b"[68,[",
            b"[92,[",
            b"[3,[],{",
            b"[1]",
            b"[]",
            b"{}",
            b"{\"a\":",
            b"]]",
            b"]}",
            b",{\"index\":\"i\"}",
            b",{\"array_limit\":1}",
            b"\"$reql_type$\":\"BINARY\",\"data\":\"AA==\"",
            b"[65,[",
            b"1e308",
            b"-0.0",
            b"9007199254740993",
            b"null",
            b"true",
            b"\"\\ud800\"",
            b"\"\\u0000\"",
            b" ",
            b",",
            b"[",
            b"]",
            b"{",
            b"}",
            b":",
            b"[152,[",
            b"[43,[",
            b"[11,[\"1\"]]",
            b"[153,[\"u\"]]",
            b"[171,[]]",
        ]
    }

    fn check(&self, input: &[u8]) -> Outcome {
        let query = match wire::parse_query(input) {
            Ok(query) => query,
            Err(error) => return Outcome::of_message(&error.to_string()),
        };
        if let Some(term) = &query.term {
            check_writing(term);
        }
        Outcome::of((format!("{:?}", query.kind), query.optargs.len(), query.term.as_ref().map(outline)))
    }
}

/// A written term can be read, and is then written the same. (The first writing may differ: with the query's array
/// limit, arrays are left to be built when the query runs.)
fn check_writing(term: &Term) {
    let again = |bytes: &[u8]| match wire::parse_term(bytes) {
        Ok(term) => written(&term),
        Err(error) => panic!("{} is not read: {error}", String::from_utf8_lossy(bytes)),
    };
    let first = again(&written(term));
    assert_eq!(again(&first), first, "a term is read back as it was written");
}

/// The operations at the top of a term.
fn outline(term: &Term) -> String {
    match term {
        Term::Datum(value) => value.kind().name().to_owned(),
        Term::Var(_) => "VAR".to_owned(),
        Term::Func(func) => format!("FUNC {}", func.params.len()),
        Term::Call(call) => {
            let first = call.args.first().map(|arg| match arg {
                Term::Call(call) => format!("{:?}", call.op),
                Term::Datum(value) => value.kind().name().to_owned(),
                Term::Var(_) => "VAR".to_owned(),
                Term::Func(_) => "FUNC".to_owned(),
            });
            format!("{:?} {first:?} {} {}", call.op, call.args.len().min(4), call.optargs.len().min(4))
        }
    }
}

fn written(term: &Term) -> Vec<u8> {
    wire::write_term(term, usize::MAX).expect("without a limit")
}
