//! Escaping of user names.

/// Escapes a name for a SCRAM message: `,` becomes `=2C` and `=` becomes `=3D`.
#[must_use]
pub fn escape_name(name: &str) -> String {
    name.replace('=', "=3D").replace(',', "=2C")
}

/// Unescapes a name; `None` if an `=` is not followed by `2C` or `3D`.
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
}
