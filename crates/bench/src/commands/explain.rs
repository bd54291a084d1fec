//! `rekindle explain`: asks a server how it runs a query.

use std::io::Read;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use client::admin::Admin;
use serde_json::{Value, json};

use crate::flags::ServerFlags;

/// Show how a server finds the rows of a query, which steps run where they are, and how many it reads
#[derive(Args, Clone, Debug)]
pub struct ExplainArgs {
    /// The query as terms in JSON, such as [43,[[15,["t"]]]]; `-` reads it from standard input
    #[arg(value_name = "TERM")]
    term: String,
    /// Default database of tables
    #[arg(long, default_value = "test")]
    db: String,
    /// Print the server's response as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerFlags,
}

pub fn run(args: &ExplainArgs) -> anyhow::Result<ExitCode> {
    let mut text = args.term.clone();
    if text == "-" {
        text.clear();
        std::io::stdin().read_to_string(&mut text).context("standard input")?;
    }
    let term: Value = serde_json::from_str(&text).context("the query is not JSON")?;
    let request = args.server.request();
    let address = request.addresses.first().context("no server given")?;
    let mut admin = Admin::connect(address, &request.login)?;
    let options = json!({"explain": true, "db": [14, [args.db]]});
    let answer = admin.ask_with(&term, &options)?;
    if args.json {
        println!("{answer:#}");
    } else {
        print!("{}", shown(&answer));
    }
    Ok(ExitCode::SUCCESS)
}

/// Formats an explanation as lines.
fn shown(answer: &Value) -> String {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let list = |value: &Value| -> String {
        value.as_array().into_iter().flatten().map(text).collect::<Vec<_>>().join(", ")
    };
    let mut out = format!("{}\n", text(&answer["query"]));
    for read in answer["reads"].as_array().into_iter().flatten() {
        let elsewhere = match read["on_other_servers"].as_u64() {
            Some(0) | None => String::new(),
            Some(n) => format!(", {n} on other servers"),
        };
        let times = read["times"].as_u64().map_or_else(String::new, |times| format!(", {times} times"));
        out += &format!("  reads {} by {}{times}\n", text(&read["table"]), text(&read["by"]));
        out += &format!("    shards: {}{elsewhere}; order: {}\n", read["shards"], text(&read["order"]));
        let steps = list(&read["on_the_rows"]);
        if !steps.is_empty() {
            out += &format!("    on the rows: {steps}\n");
        }
    }
    if let Some(more) = answer["reads_left_out"].as_u64() {
        out += &format!("  and {more} other reads\n");
    }
    let top = list(&answer["at_the_top"]);
    if !top.is_empty() {
        out += &format!("  at the top: {top}\n");
    }
    let items = match answer["answer"].as_str() {
        Some("stream") => format!("a stream of {} items", answer["items"]),
        _ => "a value".to_owned(),
    };
    let took = answer["milliseconds"].as_f64().unwrap_or(0.0);
    out + &format!("  looked at {} rows, answered {items}, took {took:.2} ms\n", answer["rows_looked_at"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_explanation_is_a_few_lines() {
        let answer = json!({
            "query": "r.table(\"t\").filter({a: 1}).count()",
            "reads": [{"table": "test.t", "by": "index `a`: 1", "order": "any", "shards": 2,
                       "on_other_servers": 1, "on_the_rows": ["filter", "count"]}],
            "at_the_top": [], "rows_looked_at": 3, "answer": "value", "items": 1, "milliseconds": 0.5,
        });
        let expected = "r.table(\"t\").filter({a: 1}).count()\n  reads test.t by index `a`: 1\n    \
                        shards: 2, 1 on other servers; order: any\n    on the rows: filter, count\n  \
                        looked at 3 rows, answered a value, took 0.50 ms\n";
        assert_eq!(shown(&answer), expected);
    }
}
