//! What is written is read, and nothing else is.

use super::*;

fn key(text: &'static str) -> PrimaryKey {
    PrimaryKey(Bytes::from_static(text.as_bytes()))
}

fn items(bytes: Bytes) -> Result<Vec<Item>, BadEntry> {
    let mut found = Vec::new();
    Entry::parse(bytes)?.each(|item| found.push(item))?;
    Ok(found)
}

fn changes(bytes: Bytes) -> Result<Vec<RowChange>, BadEntry> {
    let row = |item| match item {
        Item::Row(change, None) => change,
        other => panic!("not a row: {other:?}"),
    };
    Ok(items(bytes)?.into_iter().map(row).collect())
}

fn example() -> Bytes {
    let mut writer = EntryWriter::new(7, 9, &[8, 3], 100);
    writer.change(&key("new"), Some(b"row"), false, None);
    writer.change(&key("gone"), None, true, None);
    writer.change(&key(""), Some(b""), true, None);
    writer.finish()
}

#[test]
fn what_is_written_is_read() {
    let entry = Entry::parse(example()).unwrap();
    assert_eq!((entry.incarnation, entry.sequence), (7, 9));
    assert_eq!(entry.dependencies().collect::<Vec<_>>(), [8, 3]);
    let row = |bytes: &'static [u8]| Some(Bytes::from_static(bytes));
    assert_eq!(
        changes(example()).unwrap(),
        [
            RowChange { key: key("new"), row: row(b"row"), existed: false },
            RowChange { key: key("gone"), row: None, existed: true },
            RowChange { key: key(""), row: row(b""), existed: true },
        ]
    );
}

fn index_change(entry: Option<IndexEntry>) -> IndexChange {
    IndexChange { index: IndexId(7), key: Bytes::from_static(b"\x60value\0"), entry }
}

fn with_indexes() -> Bytes {
    let mut writer = EntryWriter::new(7, 9, &[8], 100);
    writer.change(&key("new"), Some(b"row"), false, None);
    writer.index_change(&index_change(Some(IndexEntry { times: 2, truncated: true })));
    writer.name_row(&key("kept"));
    writer.index_change(&index_change(None));
    writer.index_build(IndexId(7), &IndexBuild::Under { after: Some(key("kept")), rows: 3 });
    writer.finish()
}

#[test]
fn index_entries_belong_to_the_row_before_them() {
    let row = Some(Bytes::from_static(b"row"));
    let entry = Some(IndexEntry { times: 2, truncated: true });
    assert_eq!(
        items(with_indexes()).unwrap(),
        [
            Item::Row(RowChange { key: key("new"), row, existed: false }, None),
            Item::Index(key("new"), index_change(entry)),
            Item::Index(key("kept"), index_change(None)),
            Item::Build(IndexId(7), IndexBuild::Under { after: Some(key("kept")), rows: 3 }),
        ]
    );
    let whole = with_indexes();
    for len in 0..whole.len() {
        assert!(items(whole.slice(..len)).is_err(), "{len} bytes of {}", whole.len());
    }
    // Version 1 has no such items, and an index entry without a row is malformed.
    let mut old = whole.to_vec();
    old[0] = VERSION_ROWS;
    assert!(items(Bytes::from(old)).is_err());
    let mut writer = EntryWriter::new(7, 9, &[], 100);
    writer.index_change(&index_change(None));
    assert_eq!(items(writer.finish()), Err(BadEntry::Index));
}

#[test]
fn a_seal_is_read_as_it_was_written_and_no_other_length_is() {
    let whole = EntryWriter::seal(7, 9, SealState::sealed(4));
    let entry = Entry::parse(whole.clone()).unwrap();
    assert_eq!((entry.incarnation, entry.sequence), (7, 9));
    assert_eq!(entry.control, Some(Control::Seal(SealState::sealed(4))));
    assert_eq!(items(whole.clone()), Ok(vec![]));
    assert_eq!(Entry::parse(example()).unwrap().control, None);
    for len in 0..whole.len() {
        assert!(Entry::parse(whole.slice(..len)).is_err(), "{len} bytes");
    }
    for (at, byte) in [(0, VERSION_ROWS), (1, 2), (4, 1)] {
        let mut changed = whole.to_vec();
        changed[at] = byte;
        assert!(Entry::parse(Bytes::from(changed)).is_err());
    }
}

#[test]
fn a_seal_state_too_large_for_the_engine_is_refused() {
    let entry = |number| EntryWriter::seal(7, 9, SealState::of_number(number));
    let greatest = Entry::parse(entry(SealState::NUMBER_MAX)).unwrap();
    assert_eq!(greatest.control, Some(Control::Seal(SealState::of_number(SealState::NUMBER_MAX))));
    for number in [SealState::NUMBER_MAX + 1, u64::MAX] {
        assert_eq!(Entry::parse(entry(number)).err(), Some(BadEntry::SealState(number)));
    }
}

#[test]
fn a_change_may_have_the_row_before_it() {
    let mut writer = EntryWriter::new(7, 9, &[], 100);
    writer.change(&key("new"), Some(b"row"), false, None);
    writer.change(&key("kept"), Some(b"after"), true, Some(b"before"));
    writer.change(&key("gone"), None, true, Some(b""));
    let whole = writer.finish();
    let bytes = |text: &'static [u8]| Some(Bytes::from_static(text));
    let row = |name, row, existed, old| Item::Row(RowChange { key: key(name), row, existed }, old);
    assert_eq!(
        items(whole.clone()).unwrap(),
        [
            row("new", bytes(b"row"), false, None),
            row("kept", bytes(b"after"), true, bytes(b"before")),
            row("gone", None, true, bytes(b"")),
        ]
    );
    for len in 0..whole.len() {
        assert!(items(whole.slice(..len)).is_err(), "{len} bytes of {}", whole.len());
    }
    // Neither an earlier version nor a row that did not exist has such a row.
    for (at, byte) in [(0, VERSION_ITEMS), (HEADER_BYTES, FLAG_EXISTS | FLAG_OLD_ROW)] {
        let mut changed = whole.to_vec();
        changed[at] = byte;
        assert!(items(Bytes::from(changed)).is_err());
    }
}

#[test]
fn a_switch_of_the_history_is_read_as_it_was_written() {
    for (is_on, control) in [(true, Control::HistoryOn), (false, Control::HistoryOff)] {
        let whole = EntryWriter::history(7, 9, is_on);
        assert_eq!(Entry::parse(whole.clone()).unwrap().control, Some(control));
        for (at, byte) in [(0, VERSION_ITEMS), (1, 3), (4, 1), (HEADER_BYTES, 2)] {
            let mut changed = whole.to_vec();
            changed[at] = byte;
            assert!(Entry::parse(Bytes::from(changed)).is_err(), "byte {at}");
        }
    }
}

#[test]
fn no_cut_or_grown_entry_is_read() {
    let whole = example();
    for len in 0..whole.len() {
        assert!(changes(whole.slice(..len)).is_err(), "{len} bytes of {}", whole.len());
    }
    let mut grown = whole.to_vec();
    grown.push(0);
    assert_eq!(changes(Bytes::from(grown)), Err(BadEntry::Length));
    for (at, byte) in [(0, 4), (1, 1), (HEADER_BYTES + 16, 4)] {
        let mut changed = whole.to_vec();
        changed[at] = byte;
        assert!(changes(Bytes::from(changed)).is_err());
    }
}
