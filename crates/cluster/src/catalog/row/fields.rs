//! Reads the fields of a catalog row, with errors that name the row.

use datum::{Datum, Object, Text};
use uuid::Uuid;

use crate::config::TableCompression;
use crate::error::OpenError;

/// The fields of a catalog row, or of an object in one.
pub(super) struct Fields<'a>(pub(super) &'a Object);

impl Fields<'_> {
    pub(super) fn wrong(&self, why: String) -> OpenError {
        let key = self.0.get("id").map_or_else(|| "without id".to_owned(), |id| id.to_json_string());
        OpenError::CatalogRow { key, why }
    }

    /// How the rows of a table are compressed.
    pub(super) fn compression(&self) -> Result<TableCompression, OpenError> {
        if self.is_null("compression") {
            return Ok(TableCompression::Default);
        }
        let name = self.text("compression")?;
        let found = TableCompression::named(&name);
        found.ok_or_else(|| self.wrong(format!("compression {name:?} is not known")))
    }

    pub(super) fn is_null(&self, name: &str) -> bool {
        matches!(self.0.get(name), None | Some(Datum::Null))
    }

    pub(super) fn text(&self, name: &str) -> Result<Text, OpenError> {
        match self.0.get(name) {
            Some(Datum::String(text)) => Ok(text),
            _ => Err(self.wrong(format!("field {name:?} is not a string"))),
        }
    }

    pub(super) fn uuid(&self, name: &str) -> Result<Uuid, OpenError> {
        self.parse_uuid(name, &self.text(name)?)
    }

    pub(super) fn parse_uuid(&self, name: &str, text: &str) -> Result<Uuid, OpenError> {
        Uuid::parse_str(text).map_err(|e| self.wrong(format!("field {name:?} is not a uuid: {e}")))
    }

    pub(super) fn flag(&self, name: &str) -> Result<bool, OpenError> {
        match self.0.get(name) {
            Some(Datum::Bool(flag)) => Ok(flag),
            _ => Err(self.wrong(format!("field {name:?} is not a boolean"))),
        }
    }

    pub(super) fn object(&self, name: &str) -> Result<Object, OpenError> {
        match self.0.get(name) {
            Some(Datum::Object(object)) => Ok(object),
            _ => Err(self.wrong(format!("field {name:?} is not an object"))),
        }
    }

    pub(super) fn array(&self, name: &str) -> Result<datum::Array, OpenError> {
        match self.0.get(name) {
            Some(Datum::Array(array)) => Ok(array),
            _ => Err(self.wrong(format!("field {name:?} is not an array"))),
        }
    }

    pub(super) fn number(&self, name: &str) -> Result<u64, OpenError> {
        count(self, &self.0.get(name).unwrap_or(Datum::Null))
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // checked to be a whole number below 9e15
pub(super) fn count(row: &Fields<'_>, datum: &Datum) -> Result<u64, OpenError> {
    match datum {
        Datum::Number(n) if *n >= 0.0 && n.fract() == 0.0 && *n < 9e15 => Ok(*n as u64),
        other => Err(row.wrong(format!("{} is not a count", other.to_json_string()))),
    }
}

/// The field for the compression of a table, unless it is the default: earlier versions do not know it.
pub(super) fn compression_to(compression: TableCompression) -> Option<(&'static str, Datum)> {
    let is_set = compression != TableCompression::Default;
    is_set.then(|| ("compression", compression.name().into()))
}
