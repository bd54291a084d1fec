//! The memory after many feeds were opened and closed.

use serde_json::json;

use super::figures::{at_most, figure, result};
use super::site::Site;
use crate::drive::session::Plan;
use crate::drive::workload::Workload;
use crate::feeds::churn::Churn;
use crate::feeds::table;
use crate::flags::duration;
use crate::result::RunResult;

/// Resident size after by before.
const MEMORY_RATIO_MAX: f64 = 1.1;
/// One in this many opens happens before the first reading of the memory.
const FIRST_SHARE: u64 = 20;
/// Feeds that are open at the same time, on each connection.
const PIPELINE: usize = 4;

pub(super) fn measure(site: &mut Site<'_>) -> anyhow::Result<RunResult> {
    let args = site.args;
    let blocks = args.feeds;
    site.prepare(site.kinds(blocks))?;
    let drive = |opens: u64| {
        site.say(&format!("opening and closing {opens} feeds"));
        let plan = Plan { operations: Some(opens), pipeline: PIPELINE, ..site.plan() };
        let workload =
            |_, _| -> Box<dyn Workload> { Box::new(Churn::new(args.kinds.clone(), blocks, table::term())) };
        let load = site.drive(plan, &["OPEN-AND-CLOSE"], workload, || ())?;
        site.say(&format!("waiting for {} s", args.seconds));
        // The server has this long to return memory.
        std::thread::sleep(duration(args.seconds)?);
        anyhow::Ok((load, site.memory_bytes()?))
    };
    let first = args.opens.div_ceil(FIRST_SHARE);
    let (_, before) = drive(first)?;
    let (load, after) = drive(args.opens)?;
    let ratio = after as f64 / before.max(1) as f64;
    let figures = vec![
        at_most("memory after by before", Some(ratio), "", MEMORY_RATIO_MAX),
        figure("server CPU per feed opened and closed", load.cpu_us_per_write(), "us"),
    ];
    let own = json!({ "opens": args.opens, "feeds": args.feeds, "kinds": super::kind_names(&args.kinds) });
    let about = site.about(&load.plan, own);
    let opened = load.driven.totals.ok;
    let checks = vec![super::figures::equal("feeds opened and closed", args.opens, opened, "--opens")];
    let mut result = result(site, about, load, &["OPEN-AND-CLOSE"], &[], checks);
    result.figures = figures;
    result.notes.push(format!(
        "memory of the servers: {:.1} MB after {first} opens, {:.1} MB after {} more",
        before as f64 / 1e6,
        after as f64 / 1e6,
        args.opens
    ));
    Ok(result)
}
