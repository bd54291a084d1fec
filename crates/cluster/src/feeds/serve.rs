//! Histories for other servers.

use std::time::{Duration, Instant};

use log::GroupId;
use shard::{HistoryError, HistoryPart, HistoryPosition};

use super::response::HistoryResponse;
use super::source::Sources;
use crate::rpc::Responder;

/// About how many bytes of entries one response has.
const RESPONSE_BYTES: usize = 1 << 20;
/// How long a request waits for an entry.
const HOLD_TIME: Duration = Duration::from_secs(1);

/// A request of another server that waits for the next entry.
struct Waiting {
    group: GroupId,
    after: HistoryPosition,
    until: Instant,
    respond: Responder,
}

/// The requests of other servers.
#[derive(Default)]
pub(super) struct Readers {
    waiting: Vec<Waiting>,
}

impl Readers {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn waits_for(&self, group: GroupId) -> bool {
        self.waiting.iter().any(|waiting| waiting.group == group)
    }

    /// Responds at once if there is something to tell, and otherwise when the next entry has come.
    pub(super) fn read(
        &mut self,
        sources: &Sources,
        group: GroupId,
        after: HistoryPosition,
        respond: Responder,
        now: Instant,
    ) {
        let response = response(sources, group, after);
        match response {
            Ok(response) if response.is_current && response.records.is_empty() => {
                self.waiting.push(Waiting { group, after, until: now + HOLD_TIME, respond });
            }
            Ok(response) => respond(Ok(response.encode())),
            Err(error) => respond(Err(error.to_string())),
        }
    }

    /// Responds to the requests for a group whose local replica has new entries or was interrupted.
    pub(super) fn wake(&mut self, sources: &Sources, group: GroupId) {
        self.answer(sources, |waiting| waiting.group == group);
    }

    /// Responds to the requests that have waited for [`HOLD_TIME`].
    pub(super) fn tick(&mut self, sources: &Sources, now: Instant) {
        self.answer(sources, |waiting| waiting.until <= now);
    }

    fn answer(&mut self, sources: &Sources, is_due: impl Fn(&Waiting) -> bool) {
        for waiting in self.waiting.extract_if(.., |waiting| is_due(waiting)) {
            let response = response(sources, waiting.group, waiting.after);
            (waiting.respond)(response.map(|found| found.encode()).map_err(|error| error.to_string()));
        }
    }
}

fn response(
    sources: &Sources,
    group: GroupId,
    after: HistoryPosition,
) -> Result<HistoryResponse, HistoryError> {
    // Asked first: entries that come later are found below or wake the reader.
    let is_current = sources.is_current(group);
    match sources.read(group, after, RESPONSE_BYTES) {
        Ok(HistoryPart { seal_state, records }) => {
            Ok(HistoryResponse { is_gone: false, is_current, seal_state, records })
        }
        Err(HistoryError::Gone) => {
            Ok(HistoryResponse { is_gone: true, is_current, ..HistoryResponse::default() })
        }
        Err(error) => Err(error),
    }
}
