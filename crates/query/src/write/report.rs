//! The result of a write: counts, the first error, and the rows to show.

use datum::{Datum, Object, ObjectBuilder, Text};

use super::merge::truncation_warning;
use crate::edit::{ReturnChanges, RowOutcome, RowReport};

/// Sums up the reports of a write.
pub(crate) struct WriteResult {
    return_changes: ReturnChanges,
    array_limit: usize,
    deleted: u64,
    errors: u64,
    inserted: u64,
    replaced: u64,
    skipped: u64,
    unchanged: u64,
    first_error: Option<String>,
    /// `None` before the first row.
    changes: Option<Vec<Datum>>,
    changes_cut: bool,
    generated_keys: Vec<Datum>,
    generated_count: usize,
}

impl WriteResult {
    /// Without rows.
    pub fn new(return_changes: ReturnChanges, array_limit: usize) -> WriteResult {
        WriteResult {
            return_changes,
            array_limit,
            deleted: 0,
            errors: 0,
            inserted: 0,
            replaced: 0,
            skipped: 0,
            unchanged: 0,
            first_error: None,
            changes: None,
            changes_cut: false,
            generated_keys: Vec::new(),
            generated_count: 0,
        }
    }

    pub fn add(&mut self, report: RowReport) {
        let shown = self.return_changes.shows(&report);
        self.add_and(report, shown);
    }

    /// Adds a row that could never be written. If it is shown at all, it is shown with the rows that changed, too.
    pub fn add_unwritable(&mut self, report: RowReport, shown: bool) {
        self.add_and(report, shown && self.return_changes != ReturnChanges::No);
    }

    fn add_and(&mut self, report: RowReport, shown: bool) {
        self.changes.get_or_insert_default();
        let mut error = None;
        match report.outcome {
            RowOutcome::Inserted => self.inserted += 1,
            RowOutcome::Replaced => self.replaced += 1,
            RowOutcome::Deleted => self.deleted += 1,
            RowOutcome::Unchanged => self.unchanged += 1,
            RowOutcome::Skipped => self.skipped += 1,
            RowOutcome::Failed(why) => {
                self.errors += 1;
                let message = why.message();
                self.first_error.get_or_insert_with(|| message.clone());
                error = Some(message);
            }
        }
        if shown {
            self.show(report.old, report.new, error);
        }
    }

    /// Takes the error of a row that is added later as the first error, if there is none yet.
    pub fn note(&mut self, report: &RowReport) {
        if let RowOutcome::Failed(why) = &report.outcome {
            self.first_error.get_or_insert_with(|| why.message());
        }
    }

    /// Adds the key that was generated for a row.
    pub fn add_generated_key(&mut self, key: Datum) {
        self.generated_count += 1;
        if self.generated_keys.len() < self.array_limit {
            self.generated_keys.push(key);
        }
    }

    /// The object that the write term returns.
    pub fn into_datum(self) -> Datum {
        let mut out = ObjectBuilder::new();
        let counts = [
            ("deleted", self.deleted),
            ("errors", self.errors),
            ("inserted", self.inserted),
            ("replaced", self.replaced),
            ("skipped", self.skipped),
            ("unchanged", self.unchanged),
        ];
        for (name, count) in counts {
            out.insert(Text::from_static(name), Datum::Number(count as f64));
        }
        if let Some(message) = self.first_error {
            out.insert(Text::from_static("first_error"), message.into());
        }
        let warnings = warnings(self.changes_cut, self.array_limit, self.generated_count);
        if !warnings.is_empty() {
            out.insert(Text::from_static("warnings"), warnings.into());
        }
        if self.generated_count > 0 {
            out.insert(Text::from_static("generated_keys"), self.generated_keys.into());
        }
        if self.return_changes != ReturnChanges::No
            && let Some(changes) = self.changes
        {
            out.insert(Text::from_static("changes"), changes.into());
        }
        Datum::Object(out.build())
    }

    fn show(&mut self, old: Datum, new: Datum, error: Option<String>) {
        let changes = self.changes.get_or_insert_default();
        if changes.len() >= self.array_limit {
            self.changes_cut = true;
            return;
        }
        let mut change = ObjectBuilder::new();
        if let Some(message) = error {
            change.insert(Text::from_static("error"), message.into());
        }
        change.insert(Text::from_static("new_val"), new);
        change.insert(Text::from_static("old_val"), old);
        changes.push(Datum::Object(Object::from(change)));
    }
}

fn warnings(changes_cut: bool, array_limit: usize, generated_count: usize) -> Vec<Datum> {
    let mut warnings = Vec::new();
    if changes_cut {
        warnings.push(truncation_warning(array_limit));
    }
    if generated_count > array_limit {
        let text = format!("Too many generated keys ({generated_count}), array truncated to {array_limit}.");
        warnings.push(text.into());
    }
    warnings
}
