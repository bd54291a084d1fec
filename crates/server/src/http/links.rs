//! Figures of the links to other servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use cluster::ServerId;
use cluster::link::PeerStats;

use super::openmetrics::{
    Kind::{self, Counter, Gauge},
    Page,
};

/// Server, name and figures.
pub(super) type Linked = (ServerId, String, Arc<PeerStats>);

type Figure = fn(&PeerStats) -> &AtomicU64;

const FIGURES: [(&str, Kind, &str, Figure); 13] = [
    ("rekindle_link_up", Gauge, "1 while the server is linked and heard.", |one| &one.is_connected),
    ("rekindle_link_opened", Counter, "Times a link was opened.", |one| &one.links),
    ("rekindle_link_received_bytes", Counter, "Bytes from the server.", |one| &one.bytes_in),
    ("rekindle_link_sent_bytes", Counter, "Bytes to the server.", |one| &one.bytes_out),
    ("rekindle_link_received_frames", Counter, "Frames from the server.", |one| &one.frames_in),
    ("rekindle_link_sent_frames", Counter, "Frames to the server.", |one| &one.frames_out),
    ("rekindle_link_questions_answered", Counter, "Questions it asked.", |one| &one.questions_in),
    ("rekindle_link_questions_asked", Counter, "Questions asked of it.", |one| &one.questions_out),
    ("rekindle_link_questions_failed", Counter, "Of those, without an answer.", |one| &one.questions_failed),
    ("rekindle_link_received_letters", Counter, "Letters of the log from it.", |one| &one.letters_in),
    ("rekindle_link_sent_letters", Counter, "Letters of the log to it.", |one| &one.letters_out),
    ("rekindle_link_dropped_letters", Counter, "Letters that found no link or room.", |one| {
        &one.letters_dropped
    }),
    ("rekindle_link_queue_bytes", Gauge, "Bytes that wait to leave.", |one| &one.queue_bytes),
];

/// One sample for each server and figure.
pub(super) fn write(page: &mut Page, linked: &[Linked]) {
    for (family, kind, help, figure) in FIGURES {
        let mut family = page.family(family, kind, help);
        for (server, name, stats) in linked {
            // Others choose their names: a page must stay legible whatever they are.
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
