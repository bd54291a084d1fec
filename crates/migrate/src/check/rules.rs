//! Which words of a query point to a difference of `docs/reference/differences.md`. Pure.

/// One difference that a query may meet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    pub name: &'static str,
    /// Calls that point to it, as RethinkDB prints queries (JavaScript): `r.js(`, `.seconds(`.
    pub calls: &'static [&'static str],
    /// A second call that is needed too; none if empty.
    pub with: &'static [&'static str],
    /// The difference, and the remedy.
    pub text: &'static str,
}

/// All differences of `docs/reference/differences.md` that show in a query's text.
pub const RULES: &[Rule] = &[
    Rule {
        name: "javascript",
        calls: &["r.js(", "r.javascript("],
        with: &[],
        text: "`r.js` is off without --enable-js, and runs in QuickJS",
    },
    Rule {
        name: "http",
        calls: &["r.http("],
        with: &[],
        text: "`r.http` reaches public addresses only, without --http-allow-private",
    },
    Rule {
        name: "count",
        calls: &[".count("],
        with: &[".table("],
        text: "`table.count()` reads a stored count, not the rows",
    },
    Rule {
        name: "order",
        calls: &[
            ".limit(",
            ".nth(",
            ".skip(",
            ".coerceTo(\"array\")",
            ".coerceTo(\"ARRAY\")",
            ".group(",
            ".eqJoin(",
            ".getIntersecting(",
        ],
        with: &[".table("],
        text: "rows without an order may come in another order: add order_by where the application relies on one",
    },
    Rule {
        name: "feeds",
        calls: &[".changes("],
        with: &[],
        text: "changefeeds go on when a leader is lost; all initial values come before the first change; first rows that change place \
               are one element",
    },
    Rule {
        name: "literal",
        calls: &["r.literal("],
        with: &[],
        text: "`r.literal` is accepted in more places of merge and update, and refused in an argument of replace",
    },
    Rule {
        name: "seconds",
        calls: &[".seconds("],
        with: &[],
        text: "`seconds()` of a time before 1970 with a fraction is that of its text",
    },
    Rule {
        name: "non_atomic",
        calls: &["nonAtomic:", "non_atomic:"],
        with: &[],
        text: "a write with non_atomic whose function returns null deletes the row, and skips missing rows",
    },
    Rule {
        name: "return_changes",
        calls: &["returnChanges: \"always\"", "return_changes: \"always\""],
        with: &[],
        text: "with return_changes='always' failed rows are shown, and a failing hook fails the row, not the query",
    },
    Rule {
        name: "geometry_order",
        calls: &["r.point(", "r.polygon(", "r.line(", "r.circle(", "r.geojson("],
        with: &[".orderBy(", ".min(", ".max(", ".distinct(", ".lt(", ".gt(", ".le(", ".ge("],
        text: "a shape sorts as its object, before binary values",
    },
    Rule {
        name: "times",
        calls: &[".group(", ".distinct("],
        with: &["r.now(", "r.time(", "r.ISO8601(", "r.epochTime(", ".inTimezone("],
        text: "a group of times of one instant in several zones shows one of the zones, possibly another one",
    },
    Rule {
        name: "filter",
        calls: &[".filter("],
        with: &[".table("],
        text: "filter on a field may use an index of that field, and then give rows in another order",
    },
    Rule {
        name: "system_tables",
        calls: &["r.db(\"rethinkdb\")"],
        with: &[],
        text: "system tables differ in details: stats without disk reads, whole numbers in cluster_config and server_config, and \
               deleting a stopped server's row removes it",
    },
    Rule {
        name: "reconfigure",
        calls: &[".reconfigure(", "emergencyRepair:", "emergency_repair:"],
        with: &[],
        text: "a negative number of replicas is refused, and so is giving other replicas to a shard without a majority; an \
               emergency repair may remove servers",
    },
    Rule {
        name: "index_errors",
        calls: &["index: "],
        with: &[".typeOf(", ".info("],
        text: "an index is looked up when a term names it, also where nothing reads it",
    },
    Rule {
        name: "zero_in_names",
        calls: &["\\u0000"],
        with: &[],
        text: "a name of a field keeps a zero character; RethinkDB cuts the name there",
    },
    Rule {
        name: "base64",
        calls: &[".toJSON(", ".toJsonString(", ".toJSONString("],
        with: &[],
        text: "the base64 text of a binary has no line breaks in to_json_string",
    },
    Rule {
        name: "info",
        calls: &[".info("],
        with: &[],
        text: "source_code of a function in `info` is laid out in another way",
    },
];

impl Rule {
    /// Whether a query's text meets the difference.
    pub fn meets(&self, query: &str) -> bool {
        let has = |calls: &[&str]| calls.iter().any(|call| query.contains(call));
        has(self.calls) && (self.with.is_empty() || has(self.with))
    }
}

#[cfg(test)]
mod tests {
    use super::RULES;

    #[track_caller]
    fn met(query: &str) -> Vec<&'static str> {
        RULES.iter().filter(|rule| rule.meets(query)).map(|rule| rule.name).collect()
    }

    #[test]
    fn queries_meet_what_they_use() {
        assert_eq!(met("r.table(\"t\").filter(r.row(\"a\").eq(1)).limit(3)"), ["order", "filter"]);
        assert_eq!(met("r.expr([1, 2]).limit(1)"), [] as [&str; 0]);
        assert_eq!(met("r.js(\"1+1\")"), ["javascript"]);
        assert_eq!(met("setWriteHook(function(a, b, c) { return b(\"t\").seconds(); })"), ["seconds"]);
        assert_eq!(met("r.table(\"t\").changes()"), ["feeds"]);
        assert_eq!(met("r.db(\"d\").table(\"t\").count()"), ["count"]);
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = RULES.iter().map(|rule| rule.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), RULES.len());
    }
}
