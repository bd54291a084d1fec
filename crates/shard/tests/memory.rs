//! The entries of an index do not depend on the memory left to the query that writes them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use datum::{Datum, Object, Text};
use io::memory::{Account, Budget, Metered};
use rekindle_shard::{IndexDef, IndexId, IndexKind};
use reql::StoredFunc;

#[global_allocator]
static ALLOCATOR: Metered<std::alloc::System> = Metered(std::alloc::System);

#[test]
fn a_query_without_memory_writes_the_entries_that_it_will_take_out_later() {
    // row => row["a"].map(x => x.add(1))
    let function = r#"[69,[[2,[1]],[38,[[170,[[10,[1]],"a"]],[69,[[2,[2]],[24,[[10,[2]],1]]]]]]]]"#;
    let function = StoredFunc::parse(function.into()).unwrap();
    let index = IndexDef::new(IndexId(1), IndexKind::Multi, &function);
    let items: Vec<Datum> = (0..1000).map(Datum::from).collect();
    let row: Object = [(Text::from_static("a"), Datum::from(items))].into_iter().collect();
    let entries = index.values(&row);
    assert_eq!(entries.len(), 1000);

    let account = Account::new(Budget::new(1 << 20));
    let _work = account.enter();
    let held = vec![1_u8; 20 << 20];
    assert!(io::memory::check().is_err(), "there is none left");
    assert_eq!(index.values(&row), entries);
    drop(held);
}
