//! Parses the digits of dates, times of day and zones.
//!
//! Source of the messages: `sanitize` in pseudo_time.cc of RethinkDB 2.4.

use crate::EvalError;

/// Reads a text from left to right.
pub(super) struct Digits<'t> {
    whole: &'t str,
    /// The text that was not read yet.
    pub(super) rest: &'t str,
}

impl<'t> Digits<'t> {
    /// A reader at the start of `text`.
    pub(super) fn of(text: &'t str) -> Self {
        Digits { whole: text, rest: text }
    }

    pub(super) fn at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// Skips `c` if it is next.
    pub(super) fn skip(&mut self, c: char) -> bool {
        match self.rest.strip_prefix(c) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// The number in the next `count` digits, at most four. If the text ends too early, the message calls it a time
    /// zone, whatever it is.
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

    /// The value of a decimal point and all text after it, or 0 if there is no point.
    pub(super) fn fraction(&mut self) -> Result<f64, EvalError> {
        let point = self.rest;
        if !self.skip('.') {
            return Ok(0.0);
        }
        while !self.at_end() {
            self.number(1)?;
        }
        // A single point counts as 0; a point with digits always parses.
        Ok(point.parse().unwrap_or(0.0))
    }

    /// Fails if any text remains. `what` names the kind of text in the message.
    pub(super) fn end(&self, what: &str) -> Result<(), EvalError> {
        if self.at_end() {
            return Ok(());
        }
        let Digits { whole, rest } = self;
        Err(EvalError::logic(format!("Garbage characters `{rest}` at end of {what} string `{whole}`.")))
    }
}
