//! Groups by plain fields, identified by the JSON text of their keys. Equal plain values have equal texts, except
//! for the two zeros.

use std::collections::HashMap;

use datum::row::FieldPosition;
use datum::{Datum, json};
use foldhash::fast::RandomState;

use super::expr::Item;
use super::fold::Fold;
use super::stage::{DirectStage, NotPlain, through};
use crate::env::Env;
use crate::error::EvalError;
use crate::group::GroupBy;
use crate::pipeline::{Tally, check_groups};
use crate::select::Selector;
use crate::terminal::{Partial, Terminal};

/// The partial results of all groups.
pub(super) struct Groups {
    /// The fields that make up the key, with their positions in the previous row.
    parts: Vec<(datum::Text, FieldPosition)>,
    terminal: Terminal,
    known: HashMap<Box<[u8]>, Partial, RandomState>,
    /// Scratch buffer for a key of several parts.
    key: Vec<u8>,
}

impl Groups {
    pub(super) fn of(by: &GroupBy, terminal: &Terminal) -> Option<Groups> {
        let part = |selector: &Selector| match selector {
            Selector::Field(Datum::String(name)) => Some((name.clone(), FieldPosition::default())),
            _ => None,
        };
        let parts: Vec<_> = by.selectors.iter().map(part).collect::<Option<_>>()?;
        (!by.multi && !parts.is_empty()).then(|| Groups {
            parts,
            terminal: terminal.clone(),
            known: HashMap::default(),
            key: Vec::new(),
        })
    }

    /// The position of the key's first field in the previous row.
    pub(super) fn first_field(&self) -> Option<FieldPosition> {
        self.parts.first().map(|(_, position)| *position)
    }

    /// Adds a row to its group.
    pub(super) fn push(
        &mut self,
        item: Item<'_>,
        stages: &mut [DirectStage],
        fold: &mut Fold,
        env: &Env<'_>,
    ) -> Result<Result<(), NotPlain>, EvalError> {
        let Item::Row(row) = item else { return Ok(Err(NotPlain)) };
        let Groups { parts, terminal, known, key } = self;
        let several = parts.len() > 1;
        key.clear();
        let (mut only, mut has_signed_zero): (&[u8], _) = (b"", false);
        for (i, (name, position)) in parts.iter_mut().enumerate() {
            let mut json = row.field(name, position).unwrap_or(b"null");
            match json {
                [b'[' | b'{', ..] => return Ok(Err(NotPlain)),
                b"-0.0" => (json, has_signed_zero) = (b"0", true),
                _ => {}
            }
            only = json;
            if several {
                key.push(if i == 0 { b'[' } else { b',' });
                key.extend_from_slice(json);
            }
        }
        if several {
            key.push(b']');
        }
        let item = match through(stages, item) {
            Ok(Some(item)) => item,
            Ok(None) => return Ok(Ok(())),
            Err(NotPlain) => return Ok(Err(NotPlain)),
        };
        let key: &[u8] = if several { key } else { only };
        if has_signed_zero && !known.contains_key(key) {
            // The zeros are equal, but the group is named after the first one seen, so this row takes the general
            // path.
            return Ok(Err(NotPlain));
        }
        fold.add(item, |add| {
            if let Some(partial) = known.get_mut(key) {
                add(partial);
                return Ok(());
            }
            let mut partial = terminal.start();
            add(&mut partial);
            known.insert(key.into(), partial);
            check_groups(known.len(), env)
        })
    }

    /// The groups with their keys.
    pub(super) fn into_tally(self) -> Tally {
        let read = |(key, partial): (Box<[u8]>, Partial)| (json::parse(&key).unwrap_or(Datum::Null), partial);
        Tally::Groups { groups: self.known.into_iter().map(read).collect(), collected: 0 }
    }
}
