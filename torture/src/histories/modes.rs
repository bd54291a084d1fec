//! How writes are acknowledged and how new reads are, and what follows for what clients may see
//! (docs/reference/durability.md).

use super::nemesis::Nemesis;

/// The modes of the published tests of RethinkDB 2.1.5. Processes are killed here, machines are not: `soft` promises
/// what `hard` does.
#[derive(clap::Args, Clone)]
pub(super) struct Modes {
    /// How new reads must be: with `majority` they are linearizable; with the others they may be old, but show nothing
    /// that nobody wrote or that certainly failed
    #[arg(long, default_value = "majority", value_parser = ["majority", "single", "outdated"])]
    pub(super) read_mode: String,
    /// Who has a write when it is acknowledged: with `single` it may be lost with its leader, so that only what is
    /// seen in no mode is looked for
    #[arg(long, default_value = "majority", value_parser = ["majority", "single"])]
    pub(super) write_acks: String,
    /// Where they have it then: on the disk or in the system's memory
    #[arg(long, default_value = "hard", value_parser = ["hard", "soft"])]
    pub(super) durability: String,
    /// Every client asks one node and no other. Reads with `majority` (and `single`, if nothing befalls the nodes) then
    /// never go back, and show what the client wrote itself
    #[arg(long)]
    pub(super) pinned: bool,
}

impl Modes {
    /// What must be linearizable, in the judge's words.
    pub(super) fn judge(&self) -> &'static str {
        match (self.write_acks.as_str(), self.read_mode.as_str()) {
            ("majority", "majority") => "all",
            ("majority", _) => "sure",
            _ => "none",
        }
    }

    /// What the table is configured with, as JSON.
    pub(super) fn settings(&self) -> String {
        let Modes { write_acks, durability, .. } = self;
        format!("{{\"write_acks\":\"{write_acks}\",\"durability\":\"{durability}\"}}")
    }

    /// Whether no client may see less than it knew.
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
    fn each_mode_promises_what_is_written_of_it() {
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
