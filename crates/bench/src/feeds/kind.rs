//! The kinds of measured feeds, and their queries.

use clap::ValueEnum;
use serde_json::{Value, json};

use super::block::{Block, LIMIT_ROWS, RANK_STEP, ROWS_PER_BLOCK};

/// Sequences that feeds follow. Each feed has a block of rows of the table; only feeds of the whole table also have
/// the rows of others.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FeedKind {
    /// One document, by its primary key
    Document,
    /// A range of primary keys
    Range,
    /// A filter by a field without an index
    Filter,
    /// The first rows of a range of an index, in its order
    Limit,
    /// The whole table
    Table,
}

impl FeedKind {
    /// The name in flags and results.
    pub fn name(self) -> &'static str {
        match self {
            FeedKind::Document => "document",
            FeedKind::Range => "range",
            FeedKind::Filter => "filter",
            FeedKind::Limit => "limit",
            FeedKind::Table => "table",
        }
    }

    /// The name of the kind of operation that is the delivery of an event of such a feed.
    pub fn operation(self) -> String {
        format!("DELIVERY-{}", self.name().to_uppercase())
    }

    /// The term `changes` for the rows of `block` in `table`.
    pub fn changes(self, table: &Value, block: Block, options: &Value) -> Value {
        json!([152, [self.followed(table, block)], options])
    }

    fn followed(self, table: &Value, block: Block) -> Value {
        let first = block.first_row();
        match self {
            FeedKind::Document => json!([16, [table, first]]),
            FeedKind::Range => json!([182, [table, first, first + ROWS_PER_BLOCK]]),
            FeedKind::Filter => json!([39, [table, {"group": block.0}]]),
            FeedKind::Limit => {
                let ranks = json!([182, [table, block.first_rank(), block.first_rank() + RANK_STEP], {"index": "rank"}]);
                json!([71, [[41, [ranks], {"index": "rank"}], LIMIT_ROWS]])
            }
            FeedKind::Table => table.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queries_are_those_of_the_drivers() {
        let table = json!([15, ["t"]]);
        let asked = |kind: FeedKind| kind.changes(&table, Block(3), &json!({})).to_string();
        assert_eq!(asked(FeedKind::Document), r#"[152,[[16,[[15,["t"]],12]]],{}]"#);
        assert_eq!(asked(FeedKind::Range), r#"[152,[[182,[[15,["t"]],12,16]]],{}]"#);
        assert_eq!(asked(FeedKind::Filter), r#"[152,[[39,[[15,["t"]],{"group":3}]]],{}]"#);
        let limit =
            r#"[152,[[71,[[41,[[182,[[15,["t"]],30,40],{"index":"rank"}]],{"index":"rank"}],2]]],{}]"#;
        assert_eq!(asked(FeedKind::Limit), limit);
        assert_eq!(asked(FeedKind::Table), r#"[152,[[15,["t"]]],{}]"#);
    }
}
