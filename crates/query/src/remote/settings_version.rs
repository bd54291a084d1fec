//! The version of a table's settings that a write must apply. A client that changes them and then writes through the
//! same server must not get a row written by the old settings because the shard's leader has not received the change
//! yet.

use cluster::{Catalog, TableConfig};
use log::Durability;
use reql::codec::{Codec, Packer, UnpackError, Unpacker};
use storage::TableId;

/// The version of the settings that affect writes: write hook and durability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SettingsVersion {
    /// The version of the catalog.
    version: u64,
    /// Equal for equal settings.
    digest: u32,
}

impl SettingsVersion {
    pub fn of(catalog: &Catalog, table: &TableConfig) -> SettingsVersion {
        // Odd, which differs from the 0 of no hook.
        let hook = table.write_hook.as_ref().map_or(0, |hook| crc32c::crc32c(hook.text().as_bytes()) | 1);
        let durability = u32::from(table.durability == Durability::Soft);
        SettingsVersion { version: catalog.version(), digest: hook.rotate_left(1) ^ (durability << 31) }
    }

    /// The version of the table with this id; a system table has none.
    pub fn of_table(catalog: &Catalog, table: TableId) -> SettingsVersion {
        let found = catalog.table_by_id(table);
        found.map_or(SettingsVersion { version: 0, digest: 0 }, |table| {
            SettingsVersion::of(catalog, &table.config)
        })
    }

    /// Whether these settings must be updated before a write that wants `wanted`.
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
    fn only_older_and_different_settings_are_updated() {
        let settings = |version, digest| SettingsVersion { version, digest };
        assert!(settings(3, 7).is_older_than(settings(4, 8)));
        assert!(!settings(3, 7).is_older_than(settings(4, 7)));
        assert!(!settings(5, 7).is_older_than(settings(4, 8)));
        assert!(!settings(4, 7).is_older_than(settings(4, 8)));
    }
}
