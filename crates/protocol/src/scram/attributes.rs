//! The `k=v,k=v` text of SCRAM messages.

/// One attribute: its letter and its value, which may hold `=` but no comma.
pub(super) type Attribute<'a> = (u8, &'a str);

/// Splits `text` into attributes. `None` when a part is not a letter, `=` and a value.
pub(super) fn split(text: &str) -> Option<Vec<Attribute<'_>>> {
    text.split(',').map(attribute).collect()
}

pub(super) fn value<'a>(attributes: &[Attribute<'a>], letter: u8) -> Option<&'a str> {
    attributes.iter().find(|(name, _)| *name == letter).map(|(_, value)| *value)
}

fn attribute(part: &str) -> Option<Attribute<'_>> {
    let (name, value) = part.split_once('=')?;
    match name.as_bytes() {
        [letter] if letter.is_ascii_alphabetic() => Some((*letter, value)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_equal_signs() {
        let attributes = split("r=abc,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096").unwrap();
        assert_eq!(value(&attributes, b's'), Some("W22ZaJ0SNY7soEsUEjb6gQ=="));
        assert_eq!(value(&attributes, b'x'), None);
    }

    #[test]
    fn other_text_is_not_attributes() {
        for text in ["", "r", "rr=1", "=1", "r=1,", "1=r"] {
            assert_eq!(split(text), None, "{text:?}");
        }
    }
}
