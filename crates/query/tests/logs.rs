//! The log lines of several servers in one table.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

extern crate reql as rekindle_reql;

mod support;
#[path = "../../reql/tests/data/syntax.rs"]
mod syntax;

use std::time::Duration;

use datum::Text;
use rekindle_query::{LogLevel, LogLine, RecentLog};
use serde_json::Map;
use support::{Outcome, TestNode};

fn book(lines: &[(u64, &'static str)]) -> RecentLog {
    let book = RecentLog::default();
    for (seconds, message) in lines {
        let at = Duration::from_secs(*seconds);
        let message = Text::from_static(message);
        book.add(LogLine { at, uptime: at, level: LogLevel::Info, message });
    }
    book
}

#[test]
fn the_newest_line_of_all_servers_comes_first() {
    let test_node = TestNode::with_logs([book(&[(10, "a"), (30, "c")]), book(&[(20, "b"), (40, "d")])]);
    let run = |term: &str| match test_node.run("admin", syntax::to_wire(term).unwrap(), Map::new()) {
        Ok(Outcome::Stream(batches)) => {
            batches.concat().iter().map(|datum| datum.to_json_string()).collect::<String>()
        }
        _ => panic!("{term} is no stream"),
    };
    let logs = "r.db(\"rethinkdb\").table(\"logs\")";
    assert_eq!(run(&format!("{logs}[\"message\"]")), "\"d\"\"c\"\"b\"\"a\"");
    assert_eq!(run(&format!("{logs}.order_by(index: \"id\")[\"message\"]")), "\"a\"\"b\"\"c\"\"d\"");
    assert_eq!(run(&format!("{logs}.limit(2)[\"message\"]")), "\"d\"\"c\"");
}
