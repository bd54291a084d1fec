//! Reading the digits that dates, times of day and zones are written in.
//!
//! Source of the messages: `sanitize` in pseudo_time.cc of RethinkDB 2.4.

use crate::EvalError;

/// Reads a text from left to right.
pub(super) struct Digits<'t> {
    whole: &'t str,
    /// What was not read yet.
    pub(super) rest: &'t str,
}

impl<'t> Digits<'t> {
    /// All of `text` is still to be read.
    pub(super) fn of(text: &'t str) -> Self {
        Digits { whole: text, rest: text }
    }

    pub(super) fn at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// Passes `c`, if it comes next.
    pub(super) fn skip(&mut self, c: char) -> bool {
        match self.rest.strip_prefix(c) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// The number that the next `count` digits, at most four, are. A text that ends before them is called a zone, whatever it is of.
    pub(super) fn number(&mut self, count: usize) -> Result<i16, EvalError> {
        let mut number = 0;
        for _ in 0..count {
            let whole = self.whole;
            let Some(next) = self.rest.chars().next() else {
                return Err(EvalError::logic(format!(
                    "Invalid time zone string `{whole}`. Valid time zones are `+hh:mm`, `-hh:mm`, `+hhmm`, \
                     `-hhmm`, `+hh`, `-hh` and `Z`."
                )));
            };
            let Some(digit) = next.to_digit(10).and_then(|digit| i16::try_from(digit).ok()) else {
                return Err(EvalError::logic(format!(
                    "Invalid date string `{whole}` (got `{next}` but expected a digit)."
                )));
            };
            number = number * 10 + digit;
            self.rest = &self.rest[1..];
        }
        Ok(number)
    }

    /// What a point and all that follows add, if there is a point.
    pub(super) fn fraction(&mut self) -> Result<f64, EvalError> {
        let point = self.rest;
        if !self.skip('.') {
            return Ok(0.0);
        }
        while !self.at_end() {
            self.number(1)?;
        }
        // A point alone adds nothing, and one with digits is always a number.
        Ok(point.parse().unwrap_or(0.0))
    }

    /// Fails if something follows in the text, which is a `what`.
    pub(super) fn end(&self, what: &str) -> Result<(), EvalError> {
        if self.at_end() {
            return Ok(());
        }
        let Digits { whole, rest } = self;
        Err(EvalError::logic(format!("Garbage characters `{rest}` at end of {what} string `{whole}`.")))
    }
}
