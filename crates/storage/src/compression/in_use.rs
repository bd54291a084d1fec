//! The dictionaries of a table that are in use, as the engine has them.

use engine::{Engine, EngineError};

use super::dictionary::{DictionaryNumber, Tier, describe_record};
use crate::TableId;
use crate::layout::scan_dictionaries;

/// The dictionaries of a table with which rows are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct InUse {
    /// The highest number of any dictionary of the table; zero if it has none.
    pub newest: DictionaryNumber,
    /// The dictionary for rows that are being written.
    pub written: Option<DictionaryNumber>,
    pub settled: Option<SettledDictionary>,
}

/// The dictionary with which settled rows are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SettledDictionary {
    pub number: DictionaryNumber,
    pub tier: Tier,
    /// The bytes that the table took when the dictionary was trained.
    pub table_bytes: u64,
}

impl InUse {
    /// Of each kind, the dictionary of `table` with the highest number. Reads dictionaries until both kinds are found.
    pub(super) fn read(engine: &dyn Engine, table: TableId) -> Result<InUse, EngineError> {
        let mut found = InUse::default();
        scan_dictionaries(engine, table, |number, record| {
            let number = DictionaryNumber(number);
            found.newest = found.newest.max(number);
            match describe_record(record) {
                Some((Tier::Written, _)) => found.written = found.written.or(Some(number)),
                Some((tier, table_bytes)) => {
                    found.settled = found.settled.or(Some(SettledDictionary { number, tier, table_bytes }));
                }
                None => {}
            }
            found.written.is_none() || found.settled.is_none()
        })?;
        Ok(found)
    }
}
