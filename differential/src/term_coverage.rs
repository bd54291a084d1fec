//! Counts the terms in the queries: a term in no query is not tested.

use std::fmt;

use serde_json::Value as Json;

/// Terms that are in no query, with the reason.
pub const EXCLUDED: [(u32, &str); 17] = [
    (152, "CHANGES: an endless stream; separate tests cover it with writes"),
    (57, "DB_CREATE: the tables of a run are fixed"),
    (58, "DB_DROP: the tables of a run are fixed"),
    (60, "TABLE_CREATE: only creates the tables of a run"),
    (61, "TABLE_DROP: the tables of a run are fixed"),
    (75, "INDEX_CREATE: only creates the indexes of a run"),
    (76, "INDEX_DROP: the indexes of a run are fixed"),
    (156, "INDEX_RENAME: the indexes of a run are fixed"),
    (139, "INDEX_STATUS: its bytes and progress follow no rule"),
    (140, "INDEX_WAIT: its bytes and progress follow no rule"),
    (174, "CONFIG: ids of servers and tables"),
    (175, "STATUS: ids of servers and tables"),
    (176, "RECONFIGURE: only creates the shards of a run"),
    (179, "REBALANCE: ids of servers and tables"),
    (188, "GRANT: a separate generated matrix covers permissions"),
    (189, "SET_WRITE_HOOK: the tables of a run are fixed"),
    (190, "GET_WRITE_HOOK: its bytes follow no rule"),
];

/// The number of queries with each term.
#[derive(Clone, Debug)]
pub struct TermCoverage {
    made: Vec<u64>,
    compared: Vec<u64>,
}

impl Default for TermCoverage {
    fn default() -> TermCoverage {
        TermCoverage { made: vec![0; 256], compared: vec![0; 256] }
    }
}

impl TermCoverage {
    /// Counts each term of a query once.
    pub fn add(&mut self, query: &Json, compared: bool) {
        let mut terms = Vec::new();
        gather(query, &mut terms);
        terms.sort_unstable();
        terms.dedup();
        for id in terms {
            if let Some(count) = self.made.get_mut(id) {
                *count += 1;
            }
            if let (true, Some(count)) = (compared, self.compared.get_mut(id)) {
                *count += 1;
            }
        }
    }

    /// Adds the counts of another one.
    pub fn merge(&mut self, other: &TermCoverage) {
        let pairs = self.made.iter_mut().zip(&other.made);
        pairs.chain(self.compared.iter_mut().zip(&other.compared)).for_each(|(sum, more)| *sum += more);
    }

    /// The names of terms of the language that were in no compared query.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        let left_out = |id: u32| EXCLUDED.iter().any(|(known, _)| *known == id);
        let rows = reql::signature::all().iter();
        rows.filter(|row| !left_out(row.id) && self.compared[row.id as usize] == 0)
            .map(|row| row.name)
            .collect()
    }
}

/// Every term with the number of its queries, and of its compared queries.
impl fmt::Display for TermCoverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "terms, and the queries (made/compared) they were in:")?;
        let mut column = 0;
        for row in reql::signature::all() {
            let id = row.id as usize;
            if EXCLUDED.iter().any(|(known, _)| *known == row.id) {
                continue;
            }
            let shown = format!("{} {}/{}", row.name, self.made[id], self.compared[id]);
            column += 1;
            if column % 4 == 0 { writeln!(f, "{shown}")? } else { write!(f, "{shown:34}")? }
        }
        if column % 4 != 0 { writeln!(f) } else { Ok(()) }
    }
}

fn gather(term: &Json, out: &mut Vec<usize>) {
    match term {
        Json::Array(parts) => {
            out.extend(parts.first().and_then(Json::as_u64).and_then(|id| usize::try_from(id).ok()));
            for part in parts.iter().skip(1) {
                match part {
                    Json::Array(args) => args.iter().for_each(|arg| gather(arg, out)),
                    Json::Object(options) => options.values().for_each(|value| gather(value, out)),
                    _ => {}
                }
            }
        }
        // Bare objects and scalars are terms too.
        Json::Object(members) => {
            out.push(3);
            members.values().for_each(|value| gather(value, out));
        }
        _ => out.push(1),
    }
}
