//! The developers' tool: `cargo xtask tidy | test | conformance | differential | report | crash | failover | registers |
//! index-build | sim`.
#![forbid(unsafe_code)]

mod built;
mod cluster;
mod conformance;
mod crash;
mod differential;
mod index_build;
mod netns;
mod node;
mod registers;
mod report;
mod sim;
mod test;
mod tidy;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask <task>

  tidy    check what a program can check of STYLE: layers, module circles, lengths, docstrings
  test    every test there is; the last line says how many passed and failed
          (names of steps after it run only those)
  conformance
          a suite of ReQL cases against a node; no area may pass fewer than it did
          (--update, --nodes N, --shards N)
  differential
          random queries against a node and a plain evaluator of its own; the first difference is
          made small and shown (--queries N --seconds N --seed N --differences N, --query JSON)
  report  a node of its own, the published workloads for a few seconds each, and report.html
          (--seconds N --records N --output FILE)
  crash   kill -9 under 32 writers, 200 cycles hard and 50 soft; nothing acknowledged may be lost
          (--cycles N --soft-cycles N --writers N --seed N --program PATH --expect-loss)
  failover
          kill -9, or stop, the node that leads under 16 writers, 100 times, three replicas; how long
          writes rest, and nothing acknowledged may be lost
          (--kills N --nodes N --writers N --seed N --program PATH)
  registers
          reads, writes and swaps on three nodes that are killed, stopped or cut off; porcupine (needs go)
          says whether they can have happened. Cutting off needs the rights of root
          (--nemesis kill|stop|partition|reconfigure|reconfigure-apart --keys N --operations N --nodes N --read-mode M --seed N
          --program PATH --expect-violation)
  index-build
          indexes are built over 1,000,000 rows that are written to: how much longer writes take, and,
          after 30 kill -9 in builds, that each index equals its function over the rows
          (--rows N --kills N --kill-after MS --pairs N --ratio X --writers N --rate N --seed N --program PATH)
  sim     whole clusters in one thread, by seed; docs/simulation.md
          (--seeds N --from S --nodes N --seconds N --mutant NAME --all-mutants --twice --trace)
";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let task = arguments.next();
    let rest: Vec<String> = arguments.collect();
    match task.as_deref() {
        Some("tidy") => tidy::run(),
        Some("conformance") => conformance::run(&rest),
        Some("differential") => differential::run(&rest),
        Some("crash") => crash::run(&rest),
        Some("failover") => crash::failover::run(&rest),
        Some("index-build") => index_build::run(&rest),
        Some("registers") => registers::run(&rest),
        Some("report") => report::run(&rest),
        Some("sim") => sim::run(&rest),
        Some("test") => test::run(&rest),
        Some("help" | "--help" | "-h") => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        Some(other) => {
            eprint!("there is no task {other:?}\n\n{HELP}");
            ExitCode::FAILURE
        }
        None => {
            eprint!("{HELP}");
            ExitCode::FAILURE
        }
    }
}
