//! RE2's dialect of regular expressions, rewritten for the `regex` crate.
//!
//! Both engines run in linear time and agree on what an expression means; they differ in
//! spelling. Here an expression is read as RE2 reads it: what RE2 refuses is refused with its
//! words, and what the crate would read differently (`\d` beyond ASCII, `\Q…\E`, octal escapes,
//! braces that are no repetition, set operators inside classes) is spelled out.

mod class;
mod escape;

pub use escape::Fault;

use escape::{Escape, escape, push_literal};

/// The most often a part of an expression may be repeated.
const REPEAT_MAX: u32 = 1_000;

/// The same expression in the dialect of the `regex` crate.
pub fn translate(expression: &str) -> Result<String, Fault> {
    let mut translator = Translator {
        whole: expression,
        rest: expression,
        out: String::with_capacity(expression.len() + 16),
        flags: String::new(),
        open_groups: 0,
        names: Vec::new(),
        has_operand: false,
        last_repeat: None,
    };
    while !translator.rest.is_empty() {
        translator.step()?;
    }
    if translator.open_groups > 0 {
        return Err(Fault::new("missing )", expression));
    }
    Ok(translator.out)
}

struct Translator<'e> {
    whole: &'e str,
    rest: &'e str,
    out: String,
    /// Flags that were set just before this place. A repetition still means what is before them.
    flags: String,
    open_groups: usize,
    names: Vec<&'e str>,
    /// Whether there is something a repetition can repeat.
    has_operand: bool,
    /// Where the repetition just before this place begins.
    last_repeat: Option<&'e str>,
}

impl<'e> Translator<'e> {
    fn step(&mut self) -> Result<(), Fault> {
        let before = self.last_repeat.take();
        let Some(next) = self.rest.chars().next() else { return Ok(()) };
        match (next, counted(self.rest)) {
            ('*' | '+' | '?', _) => return self.repeat(1, before),
            ('{', Some(counted)) => return self.repeat_counted(counted, before),
            // It may be more flags.
            ('(', _) if self.rest.starts_with("(?") => {}
            _ => self.write_flags(),
        }
        match next {
            '(' => return self.open_group(),
            ')' => return self.close_group(),
            '|' => {
                self.take(1);
                self.has_operand = false;
                return Ok(());
            }
            '[' => {
                let length = class::translate(self.rest, &mut self.out)?;
                self.skip(length);
                return self.operand();
            }
            '\\' => return self.backslash(),
            '{' | '}' | ']' => {
                self.out.push('\\');
                self.out.push(next);
            }
            other => self.out.push(other),
        }
        self.skip(next.len_utf8());
        self.operand()
    }

    fn write_flags(&mut self) {
        self.out.push_str(&self.flags);
        self.flags.clear();
    }

    fn operand(&mut self) -> Result<(), Fault> {
        self.has_operand = true;
        Ok(())
    }

    /// Moves `length` bytes over as they are.
    fn take(&mut self, length: usize) {
        self.out.push_str(&self.rest[..length]);
        self.skip(length);
    }

    fn skip(&mut self, length: usize) {
        self.rest = &self.rest[length..];
    }

    /// A repetition whose operator is `length` bytes, and which may be lazy.
    fn repeat(&mut self, length: usize, before: Option<&'e str>) -> Result<(), Fault> {
        let start = self.rest;
        let lazy = self.rest[length..].starts_with('?');
        self.take(length + usize::from(lazy));
        let operator = &start[..start.len() - self.rest.len()];
        if let Some(first) = before {
            let operators = &first[..first.len() - self.rest.len()];
            return Err(Fault::new("bad repetition operator", operators));
        }
        if !self.has_operand {
            return Err(Fault::new("no argument for repetition operator", operator));
        }
        self.last_repeat = Some(start);
        Ok(())
    }

    fn repeat_counted(&mut self, counted: Counted, before: Option<&'e str>) -> Result<(), Fault> {
        let too_often = counted.min > REPEAT_MAX || counted.max.is_some_and(|max| max > REPEAT_MAX);
        let inverted = counted.max.is_some_and(|max| max < counted.min);
        if before.is_none() && (too_often || inverted) {
            return Err(Fault::new("invalid repetition size", &self.rest[..counted.length]));
        }
        self.repeat(counted.length, before)
    }

    fn open_group(&mut self) -> Result<(), Fault> {
        let Some(special) = self.rest.strip_prefix("(?") else {
            self.take(1);
            self.open_groups += 1;
            self.has_operand = false;
            return Ok(());
        };
        if special.starts_with("P<") || special.starts_with('<') {
            return self.named_group();
        }
        self.flags(special)
    }

    fn named_group(&mut self) -> Result<(), Fault> {
        let bad = |portion| Fault::new("invalid named capture group", portion);
        let name_start = self.rest.find('<').map_or(0, |at| at + 1);
        let Some(name_end) = self.rest.find('>') else { return Err(bad(self.rest)) };
        let name = &self.rest[name_start..name_end];
        let is_word = |c: char| c == '_' || c.is_ascii_alphanumeric();
        if name.is_empty() || !name.chars().all(is_word) {
            return Err(bad(&self.rest[..=name_end]));
        }
        if self.names.contains(&name) {
            return Err(bad(name));
        }
        self.names.push(name);
        self.write_flags();
        // Answers show groups by number alone, and the crate allows fewer names.
        self.out.push('(');
        self.skip(name_end + 1);
        self.open_groups += 1;
        self.has_operand = false;
        Ok(())
    }

    /// `(?flags)` or `(?flags:`; `special` is what follows the question mark.
    fn flags(&mut self, special: &str) -> Result<(), Fault> {
        let mut negated = false;
        let mut flag_since_sign = false;
        for (at, flag) in special.char_indices() {
            match flag {
                'i' | 'm' | 's' | 'U' => flag_since_sign = true,
                '-' if !negated => (negated, flag_since_sign) = (true, false),
                ':' | ')' if !negated || flag_since_sign => {
                    self.end_flags(flag, &special[..at]);
                    return Ok(());
                }
                _ => {
                    let portion = &self.rest[..2 + at + flag.len_utf8()];
                    return Err(Fault::new("invalid perl operator", portion));
                }
            }
        }
        Err(Fault::new("invalid perl operator", self.rest))
    }

    fn end_flags(&mut self, end: char, flags: &str) {
        let length = 2 + flags.len() + 1;
        if end == ':' {
            self.write_flags();
            self.take(length);
            self.open_groups += 1;
            self.has_operand = false;
        } else {
            if !flags.is_empty() {
                self.flags.push_str(&self.rest[..length]);
            }
            self.skip(length);
        }
    }

    fn close_group(&mut self) -> Result<(), Fault> {
        if self.open_groups == 0 {
            return Err(Fault::new("missing )", self.whole));
        }
        self.open_groups -= 1;
        self.take(1);
        self.operand()
    }

    fn backslash(&mut self) -> Result<(), Fault> {
        if let Some(quoted) = self.rest.strip_prefix(r"\Q") {
            let (literal, after) = quoted.split_once(r"\E").unwrap_or((quoted, ""));
            self.out.push_str(&regex::escape(literal));
            self.rest = after;
            self.has_operand |= !literal.is_empty();
            return Ok(());
        }
        let special = match self.rest.as_bytes().get(1) {
            Some(b'b') => Some(r"(?-u:\b)"),
            Some(b'B') => Some(r"(?-u:\B)"),
            Some(b'A') => Some(r"\A"),
            Some(b'z') => Some(r"\z"),
            // One byte in RE2; text is never cut inside a character here.
            Some(b'C') => Some("(?s:.)"),
            _ => None,
        };
        let length = match special {
            Some(special) => {
                self.out.push_str(special);
                2
            }
            None => {
                let (found, length) = escape(self.rest)?;
                match found {
                    Escape::Character(c) => push_literal(c, &mut self.out),
                    Escape::Class(class) => self.out.push_str(&class),
                }
                length
            }
        };
        self.skip(length);
        self.operand()
    }
}

/// A repetition like `{2,5}`.
struct Counted {
    min: u32,
    max: Option<u32>,
    length: usize,
}

/// The counted repetition at the start of `text`; braces around anything else are literal.
fn counted(text: &str) -> Option<Counted> {
    let (inside, _) = text.strip_prefix('{')?.split_once('}')?;
    let (min, max) = match inside.split_once(',') {
        None => (inside, Some(inside)),
        Some((min, "")) => (min, None),
        Some((min, max)) => (min, Some(max)),
    };
    let max = match max {
        Some(max) => Some(count(max)?),
        None => None,
    };
    Some(Counted { min: count(min)?, max, length: inside.len() + 2 })
}

fn count(digits: &str) -> Option<u32> {
    let plain = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    let leading_zero = digits.len() > 1 && digits.starts_with('0');
    // More digits than fit are too many repetitions in any case.
    (plain && !leading_zero).then(|| digits.parse().unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn finds(expression: &str, text: &str, expected: Option<&str>) {
        let translated = translate(expression).unwrap_or_else(|fault| panic!("{}", fault.text()));
        let regex = regex::Regex::new(&translated).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(regex.find(text).map(|found| found.as_str()), expected, "{translated}");
    }

    #[test]
    fn expressions_mean_what_they_mean_to_re2() {
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
        finds("(?P<n>a)(?<m>b)", "ab", Some("ab"));
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
    fn faults_are_those_of_re2() {
        for (expression, portion, text) in [
            (r"ab\9", r"\9", r"invalid escape sequence: \9"),
            (r"a\", "", r"trailing \"),
            (r"(a)\1", r"\1", r"invalid escape sequence: \1"),
            (r"\Z", r"\Z", r"invalid escape sequence: \Z"),
            (r"\é", r"\é", r"invalid escape sequence: \é"),
            (r"\x{110000}", r"\x{110000}", r"invalid escape sequence: \x{110000}"),
            (r"\xg0", r"\xg0", r"invalid escape sequence: \xg0"),
            ("(abc", "(abc", "missing ): (abc"),
            ("abc)", "abc)", "missing ): abc)"),
            ("x[abc", "[abc", "missing ]: [abc"),
            ("x[", "[", "missing ]: ["),
            ("[z-a]", "z-a", "invalid character class range: z-a"),
            ("[[:foo:]]", "[:foo:]", "invalid character class range: [:foo:]"),
            (r"\pX", r"\pX", r"invalid character class range: \pX"),
            (r"\p{Nope}", r"\p{Nope}", r"invalid character class range: \p{Nope}"),
            ("*a", "*", "no argument for repetition operator: *"),
            ("(+?)", "+?", "no argument for repetition operator: +?"),
            ("a|{2}", "{2}", "no argument for repetition operator: {2}"),
            ("a**", "**", "bad repetition operator: **"),
            ("a+?{2}", "+?{2}", "bad repetition operator: +?{2}"),
            ("a{1001}", "{1001}", "invalid repetition size: {1001}"),
            ("a{3,2}", "{3,2}", "invalid repetition size: {3,2}"),
            ("(?x)a", "(?x", "invalid perl operator: (?x"),
            ("(?=a)", "(?=", "invalid perl operator: (?="),
            ("(?i-)a", "(?i-)", "invalid perl operator: (?i-)"),
            ("a(?i", "(?i", "invalid perl operator: (?i"),
            ("(?P<n>a)(?P<n>b)", "n", "invalid named capture group: n"),
            ("(?P<>a)", "(?P<>", "invalid named capture group: (?P<>"),
        ] {
            let fault = translate(expression).expect_err(expression);
            assert_eq!((fault.portion.as_str(), fault.text().as_str()), (portion, text));
        }
    }

    #[test]
    fn what_is_accepted_compiles() {
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
}
