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
    position_in(snapshot.applied()?, group)
}

/// The position in the history of `group` of its last applied entry; `None` if the history is off.
pub(crate) fn position_in(applied: Applied, group: GroupId) -> Result<Option<HistoryPosition>, ReadError> {
    if applied.progress.is_empty() {
        return Ok(None);
    }
    let what = || format!("the progress of group {group}");
    let progress =
        Progress::decode(&applied.progress).ok_or_else(|| ReadError::CorruptMeta { what: what() })?;
    Ok(progress.history())
}
