//! Writes the page of a folder to a file.

use std::path::Path;

use anyhow::Context;

use super::{Collected, collect, render};
use crate::machine::cleanup;

/// Writes the results in `folder` as one page and returns them. Does not write once a signal ends the program. Fails if
/// there are none.
pub fn write_page(folder: &Path, page: &Path) -> anyhow::Result<Collected> {
    let found = collect(folder)?;
    let skipped: Vec<String> = found.skipped.iter().map(ToString::to_string).collect();
    let text = render(&found.runs, &found.sweeps, &skipped);
    cleanup::unless_ending(|| std::fs::write(page, text))
        .with_context(|| format!("writing {}", page.display()))?;
    Ok(found)
}
