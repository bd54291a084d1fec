//! Rows of a shard by their keys.

use datum::{Object, PrimaryKey};
use storage::RowTexts;

use super::Shard;
use crate::ReadError;

impl Shard {
    /// The newest applied row under `key`, or `None` if there is none. Fails with
    /// [`ReadError::Elsewhere`] if the key is not in this shard, or the rows are void by now.
    pub fn get(&self, key: &PrimaryKey) -> Result<Option<Object>, ReadError> {
        self.looked_up(key, || self.table.get(key))
    }

    /// Hands what [`Shard::get`] would answer to `take`, without a reference to it: cheaper where it is only looked at.
    /// `take` must be quick; after an error what it did is of no use.
    pub fn show<R>(&self, key: &PrimaryKey, take: impl FnOnce(Option<&Object>) -> R) -> Result<R, ReadError> {
        self.looked_up(key, || self.table.show(key, take))
    }

    fn looked_up<R>(
        &self,
        key: &PrimaryKey,
        look: impl FnOnce() -> Result<R, ReadError>,
    ) -> Result<R, ReadError> {
        if !self.part.range.contains(key) {
            return Err(ReadError::Elsewhere { key: key.clone(), group: self.part.group });
        }
        self.activity.add_read(1);
        let standing = self.standing();
        let found = look()?;
        // Looked at afterwards: a row that is taken away meanwhile is not missing.
        match self.stands(standing) {
            true => Ok(found),
            false => Err(ReadError::Elsewhere { key: key.clone(), group: self.part.group }),
        }
    }

    /// Adds the newest applied rows under `keys` to `texts`, in their order: cheaper than one after the
    /// other. Nothing is added for a key that has no row, nor any more once `texts` has `bytes_max` bytes.
    /// After an error `texts` is of no use.
    pub fn get_texts(
        &self,
        keys: &[PrimaryKey],
        texts: &mut RowTexts,
        bytes_max: usize,
    ) -> Result<(), ReadError> {
        if let Some(key) = keys.iter().find(|key| !self.part.range.contains(key)) {
            return Err(ReadError::Elsewhere { key: key.clone(), group: self.part.group });
        }
        self.activity.add_read(keys.len());
        let standing = self.standing();
        self.table.get_texts(keys, texts, bytes_max)?;
        match keys.first() {
            Some(key) if !self.stands(standing) => {
                Err(ReadError::Elsewhere { key: key.clone(), group: self.part.group })
            }
            _ => Ok(()),
        }
    }
}
