//! Numbers, places and both directions of numbered trees. Functions of a real RethinkDB are in the tests of `stored`.

use super::read::TreeError;
use super::*;
use crate::backtrace::Frame;

fn path(frames: &[Frame]) -> TermPath {
    let mut frames = frames.iter().cloned();
    let first = TermPath::new(None, frames.next().expect("a frame"));
    frames.fold(first, |outer, frame| TermPath::new(Some(outer.into()), frame))
}

#[track_caller]
fn check(query: &str, frames: &[Frame], expected: Option<(u32, Vec<Vec<i64>>)>) {
    let found = place_in_query(query, &path(frames));
    let functions = |functions: Vec<Vec<VarId>>| {
        functions.into_iter().map(|params| params.into_iter().map(|id| id.0).collect()).collect()
    };
    assert_eq!(found.map(|place| (place.number, functions(place.functions))), expected, "{query}");
}

#[test]
fn terms_are_numbered_in_the_order_of_visits() {
    let query = r#"[1,[39,[[15,["t"]],[69,[[2,[1]],{"a":5,"b":[13]}]]],{"default":[12]}],{"db":[14,["x"]]}]"#;
    check(query, &[Frame::from(0)], Some((1, Vec::new())));
    check(query, &[Frame::from(1)], Some((3, Vec::new())));
    check(query, &[Frame::from(1), Frame::from(0)], Some((4, Vec::new())));
    check(query, &[Frame::from(1), Frame::from(1)], Some((6, vec![vec![1]])));
    check(query, &[Frame::from(1), Frame::from(1), Frame::from("b")], Some((8, vec![vec![1]])));
    check(query, &[Frame::from("default")], Some((9, Vec::new())));
    check(query, &[Frame::from(2)], None);
    check(query, &[Frame::from("a")], None);
    check("[1]", &[Frame::from(0)], None);
    check("[", &[Frame::from(0)], None);
}

#[test]
fn a_function_is_written_as_it_was_sent() {
    let query = r#"[1,[75,["t","i",[69,[[2,[1]],[30,[{"z":1.0,"a":[13]},[1,{"k":[1,1e2]}],[1,[-0]],10000000000000000001],{}]]]]]]"#;
    let found = func_of_query(query, &path(&[Frame::from(2)]), usize::MAX).expect("a function");
    assert_eq!(found.params, [VarId(1)]);
    assert_eq!(found.number, 6);
    assert_eq!(
        found.tree,
        r#"[30,[[3,{"z":[1,1.0,8],"a":[13,9]},7],[1,{"k":[1,100.0]},10],[1,[[1,0,12]],11],[1,10000000000000000001,13]],{},6]"#
    );
    let too_large = func_of_query(query, &path(&[Frame::from(2)]), 50).map(|found| found.tree);
    assert_eq!(too_large, Err(NoFunc::TooLarge));
    let missing = func_of_query(query, &path(&[Frame::from(1)]), 50).map(|found| found.tree);
    assert_eq!(missing, Err(NoFunc::Missing));
}

#[test]
fn free_variables_are_those_that_no_function_binds() {
    let free = |text: &str| func_of_text(text, usize::MAX).expect("a function").free;
    let of = |ids: &[i64], row| FreeVariables { ids: ids.iter().map(|id| VarId(*id)).collect(), row };
    assert_eq!(free("[69,[[2,[1]],[2,[[10,[1]],[13],[10,[3]],[10,[2]]]]]]"), of(&[2, 3], false));
    assert_eq!(free("[69,[[2,[-1]],[2,[[10,[-1]],[13]]]]]"), of(&[], true));
    assert_eq!(free("[69,[[2,[1,2]],[69,[[2,[3]],[13]]]]]"), of(&[], false));
    assert_eq!(free("[69,[[2,[1,2]],[2,[[69,[[2,[3]],[10,[3]]]],[10,[3]]]]]]"), of(&[3], false));
}

#[test]
fn numbered_trees_become_terms() {
    for (tree, expected) in [
        ("[1,5,0]", Ok("5")),
        ("[10,[[1,-19,0]],7]", Ok("[10,[-19]]")),
        ("[13,8]", Ok("[13]")),
        ("[13,[],8]", Ok("[13,[]]")),
        (r#"[39,[[13,1]],{"default":[1,true,2]},3]"#, Ok(r#"[39,[[13]],{"default":true}]"#)),
        (r#"[3,{"k":[1,null,1]},3]"#, Ok(r#"{"k":null}"#)),
        ("[3,5]", Ok("{}")),
        ("[3,[],{},5]", Ok("[3,[],{}]")),
        (r#"[1,{"k":[1,"é"]},3]"#, Ok(r#"{"k":[2,[1,"é"]]}"#)),
        ("[1,[[1,1,10],[1,2,11]],9]", Ok("[2,[[2,[1,1,10]],[2,[1,2,11]]]]")),
        ("[1,18446744073709551615,4294967295]", Ok("18446744073709553000.0")),
        ("[1,5,4294967296]", Err(TreeError::NoNumber)),
        ("[1,5,-1]", Err(TreeError::NoNumber)),
        ("[1,5,0.5]", Err(TreeError::NoNumber)),
        ("[1,5]", Err(TreeError::NotATerm)),
        ("[1,5,6,7]", Err(TreeError::NotATerm)),
        ("[13,[],{},[],8]", Err(TreeError::NotATerm)),
        ("[13,5,8]", Err(TreeError::NotATerm)),
        ("[13,[5],8]", Err(TreeError::NotATerm)),
        ("[]", Err(TreeError::NotATerm)),
        ("5", Err(TreeError::NotATerm)),
        ("[13,8", Err(TreeError::NotJson)),
    ] {
        assert_eq!(wire_form(tree).as_deref(), expected.as_ref().copied(), "{tree}");
    }
}

#[test]
fn numbers_are_written_as_rapidjson_writes_them() {
    for (text, expected) in [
        ("5", "5"),
        ("-0", "0"),
        ("-0.0", "-0.0"),
        ("0.0", "0.0"),
        ("5.0", "5.0"),
        ("5e0", "5.0"),
        ("9223372036854775808", "9223372036854775808"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("-9223372036854775809", "-9223372036854776000.0"),
        ("18446744073709551615", "18446744073709551615"),
        ("18446744073709551616", "18446744073709553000.0"),
        ("100000000000000000000", "100000000000000000000.0"),
        ("1E+22", "1e22"),
        ("0.0000001", "1e-7"),
        ("0.33333333333333331", "0.3333333333333333"),
    ] {
        assert_eq!(json_text(text).as_deref(), Some(expected));
    }
    assert_eq!(json_text("[1, {\"a\" : \"\\u001f\\/\"}]").as_deref(), Some(r#"[1,{"a":"\u001F/"}]"#));
    assert_eq!(json_text("[1"), None);
}
