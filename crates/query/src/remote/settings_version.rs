//! By which of a table's settings a write is to go: who changes them and writes through the same server is
//! not to find a row written as before, because the shard's leader has not heard of the change yet.

use cluster::{Catalog, TableConfig};
use log::Durability;
use reql::codec::{Codec, Packer, UnpackError, Unpacker};
use storage::TableId;

/// A table's settings that make another row, or another promise, of a write: its write hook and its durability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SettingsVersion {
    /// How often the catalog they are from was changed.
    version: u64,
    /// The same for the same settings.
    digest: u32,
}

impl SettingsVersion {
    /// Those of `table` in `catalog`.
    pub fn of(catalog: &Catalog, table: &TableConfig) -> SettingsVersion {
        // An odd number, which is not that of no hook.
        let hook = table.write_hook.as_ref().map_or(0, |hook| crc32c::crc32c(hook.text().as_bytes()) | 1);
        let durability = u32::from(table.durability == Durability::Soft);
        SettingsVersion { version: catalog.version(), digest: hook.rotate_left(1) ^ (durability << 31) }
    }

    /// Those of the table of that identity, which a system table does not have.
    pub fn of_table(catalog: &Catalog, table: TableId) -> SettingsVersion {
        let found = catalog.table_by_id(table);
        found.map_or(SettingsVersion { version: 0, digest: 0 }, |table| {
            SettingsVersion::of(catalog, &table.config)
        })
    }

    /// Whether whoever goes by these has yet to hear of `wanted`.
    pub fn is_older_than(self, wanted: SettingsVersion) -> bool {
        self.version < wanted.version && self.digest != wanted.digest
    }
}

impl Codec for SettingsVersion {
    fn pack(&self, out: &mut Packer) {
        out.count(self.version);
        out.count(u64::from(self.digest));
    }

    fn unpack(from: &mut Unpacker) -> Result<Self, UnpackError> {
        let (version, digest) = (from.count()?, u32::try_from(from.count()?));
        Ok(SettingsVersion {
            version,
            digest: digest.map_err(|_| from.invalid("a digest of a table's settings"))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::SettingsVersion;

    #[test]
    fn who_knows_more_goes_by_that_and_what_is_the_same_is_never_waited_for() {
        let settings = |version, digest| SettingsVersion { version, digest };
        assert!(settings(3, 7).is_older_than(settings(4, 8)));
        assert!(!settings(3, 7).is_older_than(settings(4, 7)));
        assert!(!settings(5, 7).is_older_than(settings(4, 8)));
        assert!(!settings(4, 7).is_older_than(settings(4, 8)));
    }
}
