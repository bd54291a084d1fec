//! The engine's files, also where no row leads to them: blocks of indexes and filters, and large values.

use super::{CheckError, OpenEngine};
use crate::folder::Folder;
use crate::large_values::{FileEnd, large_value_files, read_large_values};
use crate::report::{DamageKind, Report};

pub(super) fn check(folder: &Folder, open: &OpenEngine, report: &mut Report) -> Result<(), CheckError> {
    if let Err(cause) = open.engine.verify_files() {
        let cause = cause.to_string();
        let is_known = report.damages().iter().any(|damage| damage.what.contains(&cause));
        if !is_known {
            report.add(DamageKind::File, None, cause);
        }
    }
    for path in large_value_files(&folder.engine())? {
        let shown = path.display();
        let mut damaged = |at: u64| {
            report.add(DamageKind::File, None, format!("{shown}: the value at byte {at} is damaged"));
        };
        match read_large_values(&path, &mut |_, _| {}, &mut damaged)? {
            FileEnd::Whole => {}
            FileEnd::Damaged(at) => damaged(at),
            FileEnd::Unfinished => {
                report.notes.push(format!("{shown} is unfinished; the server deletes it if no row is in it"));
            }
        }
    }
    Ok(())
}
