//! Queries that once differed still have the same answer on both sides.

use rekindle_differential::{Bench, Compared, Party, TestTables};

#[test]
fn what_once_differed_is_the_same() -> anyhow::Result<()> {
    let text = include_str!("../cases.txt");
    let cases = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let mut wrong = Vec::new();
    for case in cases {
        let (seed, query) = case.split_once(' ').unwrap_or(("1", case));
        let mut bench = Bench::new(TestTables::of(seed.parse()?), Party::Near)?;
        match bench.compare(&query.parse()?)? {
            Compared::Same(_) | Compared::Open(_) => {}
            Compared::Refused(why) | Compared::Different(why) => wrong.push(format!("{query}\n{why}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    Ok(())
}
