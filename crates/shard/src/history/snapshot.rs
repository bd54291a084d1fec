//! The positions of snapshots in histories.

use log::GroupId;
use storage::{Applied, ReadError, TableSnapshot};

use crate::history_position::HistoryPosition;
use crate::progress::Progress;

/// The position of the rows in `snapshot` in the history of their group; `None` if that is off there.
pub fn history_position_of(
    snapshot: &TableSnapshot,
    group: GroupId,
) -> Result<Option<HistoryPosition>, ReadError> {
    let Applied { progress, .. } = snapshot.applied()?;
    if progress.is_empty() {
        return Ok(None);
    }
    let what = || format!("the progress of group {group}");
    let progress = Progress::decode(&progress).ok_or_else(|| ReadError::CorruptMeta { what: what() })?;
    Ok(progress.history())
}
