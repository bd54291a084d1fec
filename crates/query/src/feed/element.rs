//! The objects that the client of a feed gets.

use datum::{Datum, Object, Text};

/// An object that the client gets, before it is encoded.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Element {
    /// A value that was there when the feed began; of a group, if the feed has groups.
    Initial { group: Option<Datum>, new: Option<Datum>, offset: Option<usize> },
    /// A value has changed, appeared (`old` is `None`) or disappeared (`new` is `None`). A feed of the first rows may have their
    /// offsets as well, before and after.
    Change {
        group: Option<Datum>,
        old: Option<Datum>,
        new: Option<Datum>,
        offsets: Option<(Option<usize>, Option<usize>)>,
    },
    /// The feed reads initial values, or has read them.
    State(&'static str),
    /// This many changes were dropped, because the client did not fetch them.
    Skipped(u64),
}

impl Element {
    /// A value that was there when the feed began.
    pub fn initial(new: Option<Datum>) -> Element {
        Element::Initial { group: None, new, offset: None }
    }

    /// A value has changed.
    pub fn change(old: Option<Datum>, new: Option<Datum>) -> Element {
        Element::Change { group: None, old, new, offsets: None }
    }

    /// Whether there is a value now.
    pub fn has_value(&self) -> bool {
        matches!(self, Element::Initial { new: Some(_), .. } | Element::Change { new: Some(_), .. })
    }

    /// The object; `with_type` adds the field `type`, and a token the field `resume_token`.
    pub fn into_datum(self, with_type: bool, token: Option<String>) -> Datum {
        let kind = self.kind();
        let or_null = |value: Option<Datum>| value.unwrap_or(Datum::Null);
        let or_null_number = |n: Option<usize>| n.map_or(Datum::Null, |n| Datum::Number(n as f64));
        let mut fields: Vec<(&'static str, Datum)> = Vec::with_capacity(4);
        match self {
            Element::Initial { group, new, offset } => {
                fields.extend(group.map(|group| ("group", group)));
                fields.push(("new_val", or_null(new)));
                fields.extend(offset.map(|offset| ("new_offset", or_null_number(Some(offset)))));
            }
            Element::Change { group, old, new, offsets } => {
                fields.extend(group.map(|group| ("group", group)));
                fields.push(("new_val", or_null(new)));
                fields.push(("old_val", or_null(old)));
                if let Some((before, after)) = offsets {
                    fields.push(("old_offset", or_null_number(before)));
                    fields.push(("new_offset", or_null_number(after)));
                }
            }
            Element::State(state) => fields.push(("state", state.into())),
            Element::Skipped(count) => {
                let why = format!("Changefeed cache over array size limit, skipped {count} elements.");
                fields.push(("error", why.into()));
            }
        }
        if let (true, Some(kind)) = (with_type, kind) {
            fields.push(("type", kind.into()));
        }
        if let Some(token) = token {
            fields.push(("resume_token", token.into()));
        }
        let object: Object =
            fields.into_iter().map(|(name, value)| (Text::from_static(name), value)).collect();
        Datum::Object(object)
    }

    /// The value of the field `type`. Source: docs/reql-spec.md section 9.
    fn kind(&self) -> Option<&'static str> {
        match self {
            Element::Initial { .. } => Some("initial"),
            Element::Change { old: None, new: Some(_), .. } => Some("add"),
            Element::Change { old: Some(_), new: None, .. } => Some("remove"),
            Element::Change { .. } => Some("change"),
            Element::State(_) => Some("state"),
            Element::Skipped(_) => None,
        }
    }
}
