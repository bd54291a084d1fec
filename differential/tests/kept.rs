//! Queries that differed once have the same result on both sides.

use rekindle_differential::{Compared, Comparison, Target, TestTables};

#[test]
fn queries_that_differed_once_agree() -> anyhow::Result<()> {
    let text = include_str!("../cases.txt");
    let cases = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let mut wrong = Vec::new();
    for case in cases {
        let (seed, query) = case.split_once(' ').unwrap_or(("1", case));
        let mut comparison = Comparison::new(TestTables::of(seed.parse()?), Target::Local)?;
        match comparison.compare(&query.parse()?)? {
            Compared::Same(_) | Compared::Open(_) => {}
            Compared::Refused(why) | Compared::Different(why) => wrong.push(format!("{query}\n{why}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    Ok(())
}
