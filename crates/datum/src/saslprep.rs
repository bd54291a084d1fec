//! Normalises user names and passwords before they are compared (SASLprep, RFC 4013).

use std::borrow::Cow;

/// Normalises `text`; `None` if it contains characters that SASLprep forbids.
#[must_use]
pub fn saslprep(text: &str) -> Option<Cow<'_, str>> {
    stringprep::saslprep(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preparation_follows_the_examples_of_rfc_4013() {
        assert_eq!(saslprep("I\u{AD}X").as_deref(), Some("IX"));
        assert_eq!(saslprep("user").as_deref(), Some("user"));
        assert_eq!(saslprep("\u{AA}").as_deref(), Some("a"));
        assert_eq!(saslprep("\u{2168}").as_deref(), Some("IX"));
        assert_eq!(saslprep("\u{7}"), None);
        assert_eq!(saslprep("\u{627}1"), None);
    }
}
