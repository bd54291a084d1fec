//! How user names and passwords are prepared (SASLprep, RFC 4013) and names escaped.

use std::borrow::Cow;

/// `text` as SASLprep normalises it; `None` when it holds what SASLprep forbids.
#[must_use]
pub fn prepare(text: &str) -> Option<Cow<'_, str>> {
    stringprep::saslprep(text).ok()
}

/// A name as it stands in a SCRAM message: `,` is `=2C` and `=` is `=3D`.
#[must_use]
pub fn escape_name(name: &str) -> String {
    name.replace('=', "=3D").replace(',', "=2C")
}

/// The name behind an escaped one; `None` when an `=` is not followed by `2C` or `3D`.
#[must_use]
pub fn unescape_name(escaped: &str) -> Option<String> {
    let mut pieces = escaped.split('=');
    let mut name = String::from(pieces.next().unwrap_or_default());
    for piece in pieces {
        let (character, rest) = match piece.split_at_checked(2)? {
            ("2C", rest) => (',', rest),
            ("3D", rest) => ('=', rest),
            _ => return None,
        };
        name.push(character);
        name.push_str(rest);
    }
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaping_is_undone() {
        for name in ["bob", "a,b=c", "=2C", "=", ",,", "ü=é"] {
            assert_eq!(unescape_name(&escape_name(name)).as_deref(), Some(name));
        }
    }

    #[test]
    fn a_lone_equal_sign_is_not_a_name() {
        for escaped in ["=", "a=", "a=2", "a=2c", "a=é"] {
            assert_eq!(unescape_name(escaped), None, "{escaped:?}");
        }
    }

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
