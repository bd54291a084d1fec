//! The page of a folder, in a file.

use std::path::Path;

use anyhow::Context;

use super::{Collected, collect, render};
use crate::machine::holdings;

/// Writes the results in `folder` as one page; answers what is on it. Nothing is written once a signal ends the
/// program. Fails if there are none.
pub fn write_page(folder: &Path, page: &Path) -> anyhow::Result<Collected> {
    let found = collect(folder)?;
    let skipped: Vec<String> = found.skipped.iter().map(ToString::to_string).collect();
    let text = render(&found.runs, &found.sweeps, &skipped);
    holdings::unless_ending(|| std::fs::write(page, text))
        .with_context(|| format!("writing {}", page.display()))?;
    Ok(found)
}
