//! The receiver of entries as they are applied.

use log::GroupId;
use storage::HistoryRecord;

/// Receives what happens to the histories of an engine's groups. Called on the log's thread, so it must not block; calls
/// for one group come in order.
pub trait HistoryListener: Send + Sync {
    /// These entries have joined the history of `group`, and reads show their rows.
    fn recorded(&self, group: GroupId, records: Vec<HistoryRecord>);

    /// The replica of `group` is closed, or its rows are being replaced by a copy: entries may be missing from here on.
    fn interrupted(&self, group: GroupId);
}
