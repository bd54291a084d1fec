//! Modes of reads and acknowledgements, and the results that they allow (docs/reference/durability.md).

use super::nemesis::Nemesis;

/// The modes of the published tests of RethinkDB 2.1.5. Processes are killed here, machines are not: `soft` promises
/// what `hard` does.
#[derive(clap::Args, Clone)]
pub(super) struct Modes {
    /// Mode of reads: with `majority` they are linearizable; with the others they may be stale, but never show values that
    /// were not written or whose write certainly failed
    #[arg(long, default_value = "majority", value_parser = ["majority", "single", "outdated"])]
    pub(super) read_mode: String,
    /// Replicas that have a write when it is acknowledged: with `single` it may be lost with its leader, so that the check
    /// only looks for results that are wrong in any mode
    #[arg(long, default_value = "majority", value_parser = ["majority", "single"])]
    pub(super) write_acks: String,
    /// Where these replicas have it: on disk or in the memory of the system
    #[arg(long, default_value = "hard", value_parser = ["hard", "soft"])]
    pub(super) durability: String,
    /// Every client uses only one node. Reads with `majority` (and `single`, without faults) then never go backwards, and
    /// include the client's own writes
    #[arg(long)]
    pub(super) pinned: bool,
}

impl Modes {
    /// The operations that must be linearizable, as the checker names them.
    pub(super) fn judge(&self) -> &'static str {
        match (self.write_acks.as_str(), self.read_mode.as_str()) {
            ("majority", "majority") => "all",
            ("majority", _) => "sure",
            _ => "none",
        }
    }

    /// The configuration of the table as JSON.
    pub(super) fn settings(&self) -> String {
        let Modes { write_acks, durability, .. } = self;
        format!("{{\"write_acks\":\"{write_acks}\",\"durability\":\"{durability}\"}}")
    }

    /// Whether every client must see its own writes and never an older state than before.
    pub(super) fn has_sessions(&self, nemesis: Nemesis) -> bool {
        let is_new = match self.read_mode.as_str() {
            "majority" => true,
            "single" => nemesis == Nemesis::Calm,
            _ => false,
        };
        self.pinned && self.write_acks == "majority" && is_new
    }

    /// For a line about the run.
    pub(super) fn name(&self) -> String {
        let Modes { read_mode, write_acks, durability, pinned } = self;
        let pinned = if *pinned { ", each client on one node" } else { "" };
        format!("reads with {read_mode}, {durability} writes by {write_acks}{pinned}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modes(read_mode: &str, write_acks: &str, durability: &str) -> Modes {
        let [read_mode, write_acks, durability] = [read_mode, write_acks, durability].map(str::to_owned);
        Modes { read_mode, write_acks, durability, pinned: true }
    }

    #[test]
    fn each_mode_has_its_documented_promise() {
        for durability in ["hard", "soft"] {
            assert_eq!(modes("majority", "majority", durability).judge(), "all");
            assert_eq!(modes("single", "majority", durability).judge(), "sure");
            assert_eq!(modes("outdated", "majority", durability).judge(), "sure");
            assert_eq!(modes("majority", "single", durability).judge(), "none");
        }
    }

    #[test]
    fn sessions_hold_where_reads_are_new() {
        let has = |read_mode, write_acks, nemesis| modes(read_mode, write_acks, "hard").has_sessions(nemesis);
        assert!(has("majority", "majority", Nemesis::Kill) && has("single", "majority", Nemesis::Calm));
        assert!(!has("single", "majority", Nemesis::Kill) && !has("outdated", "majority", Nemesis::Calm));
        assert!(!has("majority", "single", Nemesis::Calm));
        assert!(
            !Modes { pinned: false, ..modes("majority", "majority", "hard") }.has_sessions(Nemesis::Kill)
        );
    }
}
