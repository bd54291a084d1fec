//! Translates regular expressions from RE2's dialect for the `regex` crate.
//!
//! Both engines run in linear time and agree on the meaning of expressions, but not on all of the syntax. The
//! translator parses an expression as RE2 does: it rejects what RE2 rejects, with the same messages, and rewrites
//! all that the crate would read differently (`\d` beyond ASCII, `\Q…\E`, octal escapes, braces that are not a
//! repetition, set operators inside classes).

mod class;
mod escape;
mod names;

pub use escape::Fault;

use escape::{Escape, escape, push_literal};

/// Most repetitions of a part of an expression.
const REPEAT_MAX: u32 = 1_000;

/// Translates an expression into the dialect of the `regex` crate.
pub fn translate(expression: &str) -> Result<String, Fault> {
    let mut translator = Translator {
        whole: expression,
        rest: expression,
        out: String::with_capacity(expression.len() + 16),
        flags: String::new(),
        groups: Vec::new(),
        copies: 1,
        copies_most: 1,
        has_operand: false,
        last_repeat: None,
    };
    while !translator.rest.is_empty() {
        translator.step()?;
    }
    if !translator.groups.is_empty() {
        return Err(Fault::new("missing )", expression));
    }
    Ok(translator.out)
}

struct Translator<'e> {
    whole: &'e str,
    rest: &'e str,
    out: String,
    /// Flags set just before this position. A repetition after them applies to the operand before them.
    flags: String,
    /// For each enclosing group, the `copies_most` of the text before it.
    groups: Vec<u32>,
    /// Number of copies that repetitions make of the operand just before this position.
    copies: u32,
    /// The largest such number in the current group so far.
    copies_most: u32,
    /// Whether there is an operand that a repetition can apply to.
    has_operand: bool,
    /// The start of the repetition just before this position.
    last_repeat: Option<&'e str>,
}

impl<'e> Translator<'e> {
    fn step(&mut self) -> Result<(), Fault> {
        let before = self.last_repeat.take();
        let Some(next) = self.rest.chars().next() else { return Ok(()) };
        match (next, counted(self.rest)) {
            ('*' | '+' | '?', _) => return self.repeat(1, before),
            ('{', Some(counted)) => return self.repeat_counted(counted, before),
            // There may be more flags.
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
        self.copies = 1;
        Ok(())
    }

    fn enter_group(&mut self) {
        self.groups.push(self.copies_most);
        self.copies_most = 1;
        self.has_operand = false;
    }

    /// Copies `length` bytes unchanged.
    fn take(&mut self, length: usize) {
        self.out.push_str(&self.rest[..length]);
        self.skip(length);
    }

    fn skip(&mut self, length: usize) {
        self.rest = &self.rest[length..];
    }

    /// A repetition whose operator has `length` bytes, and which may be lazy.
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
        let start = self.rest;
        let too_often = counted.min > REPEAT_MAX || counted.max.is_some_and(|max| max > REPEAT_MAX);
        let inverted = counted.max.is_some_and(|max| max < counted.min);
        let done = self.repeat(counted.length, before);
        let operator = &start[..start.len() - self.rest.len()];
        if before.is_none() && (too_often || inverted) {
            return Err(Fault::new("invalid repetition size", operator));
        }
        done?;
        // Nested repetitions count as if they were written out.
        let times = counted.max.unwrap_or(counted.min).max(1);
        self.copies = self.copies.saturating_mul(times);
        self.copies_most = self.copies_most.max(self.copies);
        if times > 1 && self.copies > REPEAT_MAX {
            return Err(Fault::new("invalid repetition size", operator));
        }
        Ok(())
    }

    fn open_group(&mut self) -> Result<(), Fault> {
        let Some(special) = self.rest.strip_prefix("(?") else {
            self.take(1);
            self.enter_group();
            return Ok(());
        };
        match special.strip_prefix("P<") {
            Some(name) if !name.is_empty() => self.named_group(),
            _ => self.flags(special),
        }
    }

    fn named_group(&mut self) -> Result<(), Fault> {
        let bad = |portion| Fault::new("invalid named capture group", portion);
        let name_start = "(?P<".len();
        let Some(name_end) = self.rest.find('>') else { return Err(bad(self.rest)) };
        let name = &self.rest[name_start..name_end];
        let is_word = |c: char| c == '_' || c.is_ascii_alphanumeric();
        if name.is_empty() || !name.chars().all(is_word) {
            return Err(bad(&self.rest[..=name_end]));
        }
        self.write_flags();
        // Results number groups and ignore their names, and the crate allows fewer names and no duplicates.
        self.out.push('(');
        self.skip(name_end + 1);
        self.enter_group();
        Ok(())
    }

    /// `(?flags)` or `(?flags:`; `special` is the text after the question mark.
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
            self.enter_group();
        } else {
            if !flags.is_empty() {
                self.flags.push_str(&self.rest[..length]);
            }
            self.skip(length);
        }
    }

    fn close_group(&mut self) -> Result<(), Fault> {
        let Some(before) = self.groups.pop() else {
            return Err(Fault::new("missing )", self.whole));
        };
        self.take(1);
        self.has_operand = true;
        self.copies = self.copies_most;
        self.copies_most = self.copies.max(before);
        Ok(())
    }

    fn backslash(&mut self) -> Result<(), Fault> {
        if let Some(quoted) = self.rest.strip_prefix(r"\Q") {
            let (literal, after) = quoted.split_once(r"\E").unwrap_or((quoted, ""));
            self.out.push_str(&regex::escape(literal));
            self.rest = after;
            return if literal.is_empty() { Ok(()) } else { self.operand() };
        }
        let special = match self.rest.as_bytes().get(1) {
            Some(b'b') => Some(r"(?-u:\b)"),
            Some(b'B') => Some(r"(?-u:\B)"),
            Some(b'A') => Some(r"\A"),
            Some(b'z') => Some(r"\z"),
            // One byte in RE2; here a match never ends inside a character.
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

/// The counted repetition at the start of `text`; other braces are literal.
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
    // A number with too many digits certainly exceeds the limit.
    (plain && !leading_zero).then(|| digits.parse().unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests;
