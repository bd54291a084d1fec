//! Metrics of the links to other servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use cluster::ServerId;
use cluster::link::PeerStats;

use super::openmetrics::{
    Kind::{self, Counter, Gauge},
    Page,
};

/// The id, name and statistics of a linked server.
pub(super) type LinkedServer = (ServerId, String, Arc<PeerStats>);

type Figure = fn(&PeerStats) -> &AtomicU64;

const FIGURES: [(&str, Kind, &str, Figure); 13] = [
    ("rekindle_link_up", Gauge, "1 while a link to the server is open and it responds.", |one| {
        &one.is_connected
    }),
    ("rekindle_link_opened", Counter, "Times a link was opened.", |one| &one.links),
    ("rekindle_link_received_bytes", Counter, "Bytes from the server.", |one| &one.bytes_in),
    ("rekindle_link_sent_bytes", Counter, "Bytes to the server.", |one| &one.bytes_out),
    ("rekindle_link_received_frames", Counter, "Frames from the server.", |one| &one.frames_in),
    ("rekindle_link_sent_frames", Counter, "Frames to the server.", |one| &one.frames_out),
    ("rekindle_link_questions_answered", Counter, "Requests received from it.", |one| &one.requests_in),
    ("rekindle_link_questions_asked", Counter, "Requests sent to it.", |one| &one.requests_out),
    ("rekindle_link_questions_failed", Counter, "Of those, without a response.", |one| &one.requests_failed),
    ("rekindle_link_received_letters", Counter, "Replication messages from it.", |one| &one.log_messages_in),
    ("rekindle_link_sent_letters", Counter, "Replication messages to it.", |one| &one.log_messages_out),
    (
        "rekindle_link_dropped_letters",
        Counter,
        "Replication messages that were dropped: no link, or a full queue.",
        |one| &one.log_messages_dropped,
    ),
    ("rekindle_link_queue_bytes", Gauge, "Bytes waiting to be sent.", |one| &one.queue_bytes),
];

/// Writes one sample for each server and metric.
pub(super) fn write(page: &mut Page, linked: &[LinkedServer]) {
    for (family, kind, help, figure) in FIGURES {
        let mut family = page.family(family, kind, help);
        for (server, name, stats) in linked {
            // Other servers choose their names: unusual characters would break the page.
            let name: String = name
                .chars()
                .filter(|letter| letter.is_ascii_alphanumeric() || "_-".contains(*letter))
                .collect();
            let labels = [("server", server.to_string()), ("name", name)];
            let labels = labels.each_ref().map(|(key, value)| (*key, value.as_str()));
            family.sample(&labels, figure(stats).load(Relaxed) as f64);
        }
    }
}
