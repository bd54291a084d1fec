//! Expressions that RE2 accepts, and its messages for rejected ones.

use super::*;

#[track_caller]
fn finds(expression: &str, text: &str, expected: Option<&str>) {
    let translated = translate(expression).unwrap_or_else(|fault| panic!("{}", fault.text()));
    let regex = regex::Regex::new(&translated).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(regex.find(text).map(|found| found.as_str()), expected, "{translated}");
}

#[test]
fn expressions_match_as_in_re2() {
    finds("a(b.e)|b(c.e)", "abcdefg", Some("bcde"));
    finds(r"\d+", "١٢ 34", Some("34"));
    finds(r"\w+", "é_a1", Some("_a1"));
    finds(r"\bb", "éb", Some("b"));
    finds(r"\Bb", "éb", None);
    finds(r"\Bb", "ab", Some("b"));
    finds(r"[\w.]+", "é a.b", Some("a.b"));
    finds(r"[^\d]+", "12ab", Some("ab"));
    finds(r"\s", "a\u{b}b", None);
    finds(r"\Qa.b*\E+", "a.b**", Some("a.b**"));
    finds(r"\Qa.b", "xa.b", Some("a.b"));
    finds("a{,2}", "xa{,2}", Some("a{,2}"));
    finds("a{", "a{", Some("a{"));
    finds("a{2}", "aaa", Some("aa"));
    finds("a{02}", "a{02}", Some("a{02}"));
    finds("a}]", "a}]", Some("a}]"));
    finds(r"\101\x42\x{43}\0", "xABC\0", Some("ABC\0"));
    finds("[a&&b~~[d]+", "[d&&~x", Some("[d&&~"));
    finds("[]a-]+", "x]a-", Some("]a-"));
    finds("[^]a]", "]ab", Some("b"));
    finds("[a-c-e]+", "b-ed", Some("b-e"));
    finds("[[:alpha:][:^ascii:]]+", "1aé2", Some("aé"));
    finds("[[:x]+", "a[:x", Some("[:x"));
    finds(r"\p{Greek}+\pN\P{Greek}\p{^Greek}", "xαβ1yz", Some("αβ1yz"));
    finds("(?i)STRASSE(?-i:x)", "strassex", Some("strassex"));
    finds("(?P<n>a)(?P<n>b)", "ab", Some("ab"));
    finds(r"\_\<\>[\_-]", "_<>-", Some("_<>-"));
    finds(r"[[a]--[b]]", "x[--b]", Some("[--b]"));
    finds(r"\pC\p{Any}\P{Cs}", "\u{378}\u{1}\n\n", Some("\u{1}\n\n"));
    finds(r"a\p{Cs}?[\p{Cs}b]", "ab", Some("ab"));
    finds("(a{10}b{2}){50}|(c*){1000}", "ccc", Some("ccc"));
    finds("(?s).", "\n", Some("\n"));
    finds(".", "\n", None);
    finds("(?U)a+", "aaa", Some("a"));
    finds("(?)a", "a", Some("a"));
    finds("a(?i)+b(c(?i))", "aaBcC", Some("aaBc"));
    finds("ab$", "ab\n", None);
    finds("(?m)^b$", "a\nb\nc", Some("b"));
    finds("#a b", "x#a b", Some("#a b"));
}

#[test]
fn errors_match_re2() {
    for (expression, portion, text) in [
        (r"ab\9", r"\9", r"invalid escape sequence: \9"),
        (r"a\", "", r"trailing \"),
        (r"(a)\1", r"\1", r"invalid escape sequence: \1"),
        (r"\Z", r"\Z", r"invalid escape sequence: \Z"),
        (r"\é", r"\é", r"invalid escape sequence: \é"),
        (r"\x{110000}", r"\x{110000", r"invalid escape sequence: \x{110000"),
        (r"\x{4g}", r"\x{4g", r"invalid escape sequence: \x{4g"),
        (r"\x{}", r"\x{}", r"invalid escape sequence: \x{}"),
        (r"\x{41", r"\x{41", r"invalid escape sequence: \x{41"),
        (r"\x{", "", "invalid UTF-8"),
        (r"\xé1", r"\xé1", r"invalid escape sequence: \xé1"),
        (r"\x4", r"\x4", r"invalid escape sequence: \x4"),
        (r"\u{41}", r"\u", r"invalid escape sequence: \u"),
        (r"\xg0", r"\xg0", r"invalid escape sequence: \xg0"),
        ("(abc", "(abc", "missing ): (abc"),
        ("abc)", "abc)", "missing ): abc)"),
        ("x[abc", "[abc", "missing ]: [abc"),
        ("x[", "[", "missing ]: ["),
        ("[z-a]", "z-a", "invalid character class range: z-a"),
        ("[[:foo:]]", "[:foo:]", "invalid character class range: [:foo:]"),
        (r"\pX", r"\pX", r"invalid character class range: \pX"),
        (r"\p{Nope}", r"\p{Nope}", r"invalid character class range: \p{Nope}"),
        (r"\p{greek}", r"\p{greek}", r"invalid character class range: \p{greek}"),
        (r"\p{Letter}", r"\p{Letter}", r"invalid character class range: \p{Letter}"),
        (r"[\pl]", r"\pl", r"invalid character class range: \pl"),
        ("*a", "*", "no argument for repetition operator: *"),
        ("(+?)", "+?", "no argument for repetition operator: +?"),
        ("a|{2}", "{2}", "no argument for repetition operator: {2}"),
        ("a**", "**", "bad repetition operator: **"),
        ("a+?{2}", "+?{2}", "bad repetition operator: +?{2}"),
        ("a{1001}", "{1001}", "invalid repetition size: {1001}"),
        ("a{1001}?", "{1001}?", "invalid repetition size: {1001}?"),
        ("{1001}", "{1001}", "invalid repetition size: {1001}"),
        ("((a{2})*b{20}){51}", "{51}", "invalid repetition size: {51}"),
        ("(?:a|(b{30})c){40}", "{40}", "invalid repetition size: {40}"),
        ("a{3,2}", "{3,2}", "invalid repetition size: {3,2}"),
        ("(?x)a", "(?x", "invalid perl operator: (?x"),
        ("(?=a)", "(?=", "invalid perl operator: (?="),
        ("(?<n>a)", "(?<", "invalid perl operator: (?<"),
        ("(?<=a)", "(?<", "invalid perl operator: (?<"),
        ("(?P", "(?P", "invalid perl operator: (?P"),
        ("(?P<", "(?P", "invalid perl operator: (?P"),
        ("(?P=n)", "(?P", "invalid perl operator: (?P"),
        ("(?R)", "(?R", "invalid perl operator: (?R"),
        ("(?u)a", "(?u", "invalid perl operator: (?u"),
        ("(?i-)a", "(?i-)", "invalid perl operator: (?i-)"),
        ("a(?i", "(?i", "invalid perl operator: (?i"),
        ("(?P<n", "(?P<n", "invalid named capture group: (?P<n"),
        ("(?P<n m>a)", "(?P<n m>", "invalid named capture group: (?P<n m>"),
        ("(?P<>a)", "(?P<>", "invalid named capture group: (?P<>"),
    ] {
        let fault = translate(expression).expect_err(expression);
        assert_eq!((fault.portion.as_str(), fault.text().as_str()), (portion, text));
    }
}

#[test]
fn accepted_expressions_compile() {
    const PARTS: [&str; 44] = [
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        "*",
        "+",
        "?",
        "|",
        "^",
        "$",
        ".",
        "\\",
        r"\Q",
        r"\E",
        r"\pL",
        r"\P{Greek}",
        r"\x{41}",
        r"\b",
        r"\B",
        r"\W",
        r"\1",
        r"\07",
        "-",
        ",",
        ":",
        "<",
        "P",
        "=",
        "i",
        "0",
        "a",
        "é",
        "[:",
        ":]",
        "[:alpha:]",
        "(?P<n>",
        "(?i)",
        "(?:",
        "{2}",
        "{2,3}",
        "&&",
        "~~",
    ];
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for _ in 0..4_000 {
        let mut expression = String::new();
        for _ in 0..8 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            expression.push_str(PARTS[(state >> 33) as usize % PARTS.len()]);
        }
        if let Ok(translated) = translate(&expression) {
            let compiled = regex::Regex::new(&translated);
            assert!(compiled.is_ok(), "{expression} as {translated}: {compiled:?}");
        }
    }
}
