//! Rows are read as they were written, also by earlier versions.

use super::*;

#[test]
fn a_server_removed_by_an_earlier_version_has_no_name() {
    let id = ServerId(Uuid::from_u128(7));
    let named = CatalogRow::Removed(RemovedServer { id, name: Some("ada".into()) });
    let row = named.to_object();
    assert_eq!(CatalogRow::from_object(&row).unwrap(), named);
    let old: Object = row.iter().filter(|(field, _)| field != "name").collect();
    let unnamed = CatalogRow::Removed(RemovedServer { id, name: None });
    assert_eq!(CatalogRow::from_object(&old).unwrap(), unnamed);
}

#[test]
fn a_saved_query_is_read_as_it_was_written() {
    let row = CatalogRow::SavedQuery(SavedQuery {
        id: Uuid::from_u128(7),
        name: "all".into(),
        query: "r.table('t')".into(),
        owner: "bob".into(),
        is_shared: true,
        changed: 1_796_040_000.123,
    });
    assert_eq!(CatalogRow::from_object(&row.to_object()).unwrap(), row);
}
