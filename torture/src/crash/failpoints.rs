//! Kills at failpoints of the program, which must be built with the feature `failpoints`.

use std::process::Command;

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

const VARIABLE: &str = "REKINDLE_FAILPOINT";

/// How often a failpoint is passed while a node serves writers for a second or two.
#[derive(Clone, Copy)]
enum Frequency {
    /// Once or a few times.
    Rare,
    /// Some dozens of times.
    Moderate,
    /// Thousands of times.
    Frequent,
}

use Frequency::{Frequent, Moderate, Rare};

/// All failpoints of the program, which `cargo xtask tidy` compares with the sources.
const FAILPOINTS: [(&str, Frequency); 27] = [
    ("log.append", Frequent),
    ("log.appended", Frequent),
    ("log.applied", Frequent),
    ("log.answered", Frequent),
    ("log.sync", Frequent),
    ("log.synced", Frequent),
    ("log.segment.made", Rare),
    ("log.segment.named", Rare),
    ("log.segment.removed", Rare),
    ("log.mark.made", Rare),
    ("log.mark.named", Rare),
    ("log.tail.truncated", Rare),
    ("engine.buffer.flush", Moderate),
    ("engine.buffer.flushed", Moderate),
    ("engine.flush", Rare),
    ("engine.flushed", Rare),
    ("engine.compacted", Rare),
    ("compression.trained", Rare),
    ("compression.dictionary.written", Rare),
    ("compression.dictionary.flushed", Rare),
    ("compression.table.dropped", Rare),
    ("index_build.begun", Rare),
    ("index_build.step", Moderate),
    ("index_build.ready", Rare),
    ("table_drop.ended", Rare),
    ("table_drop.forgotten", Rare),
    ("table_drop.cleared", Rare),
];

/// A failpoint and how many passes of it the process survives, plus one.
pub(super) struct Kill {
    name: &'static str,
    pass: u32,
}

impl Kill {
    pub(super) fn draw(random: &mut StdRng) -> Kill {
        let (name, frequency) = FAILPOINTS.choose(random).copied().unwrap_or(FAILPOINTS[0]);
        let most = match frequency {
            Frequency::Rare => 2,
            Frequency::Moderate => 8,
            Frequency::Frequent => 400,
        };
        Kill { name, pass: random.random_range(1..=most) }
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// Has a node of this command end there.
    pub(super) fn arm(&self, command: &mut Command) {
        command.env(VARIABLE, format!("{}:{}", self.name, self.pass));
    }
}
