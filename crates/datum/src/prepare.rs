//! Text by which people are known, in the one spelling that is compared (SASLprep, RFC 4013).

use std::borrow::Cow;

/// `text` as SASLprep normalises it; `None` when it holds what SASLprep forbids.
#[must_use]
pub fn prepare(text: &str) -> Option<Cow<'_, str>> {
    stringprep::saslprep(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preparation_follows_the_examples_of_rfc_4013() {
        assert_eq!(prepare("I\u{AD}X").as_deref(), Some("IX"));
        assert_eq!(prepare("user").as_deref(), Some("user"));
        assert_eq!(prepare("\u{AA}").as_deref(), Some("a"));
        assert_eq!(prepare("\u{2168}").as_deref(), Some("IX"));
        assert_eq!(prepare("\u{7}"), None);
        assert_eq!(prepare("\u{627}1"), None);
    }
}
