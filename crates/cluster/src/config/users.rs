//! Users, their passwords and their permissions.

use datum::{Datum, Object, ObjectBuilder, Text};
use storage::TableId;
use uuid::Uuid;

use super::DbId;

/// An account. Only the salted record of its password that SCRAM needs is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct User {
    /// The account's name; `admin` always exists.
    pub name: Text,
    /// The salted record of the password, in the form that `protocol` writes.
    pub password: Object,
    /// Whether the password is not empty.
    pub has_password: bool,
}

/// A query that a user keeps in the catalog.
#[derive(Clone, Debug, PartialEq)]
pub struct SavedQuery {
    pub id: Uuid,
    pub name: Text,
    /// The text, as it was typed.
    pub query: Text,
    /// The user that saved it.
    pub owner: Text,
    /// Whether other users see it.
    pub is_shared: bool,
    /// When it was changed, in seconds since 1970, rounded to the millisecond.
    pub changed: f64,
}

impl SavedQuery {
    /// The bytes that count against the limit of its owner.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.name.len() + self.query.len()
    }
}

/// The effect of a write to `users` on a password.
#[derive(Clone, Debug)]
pub enum PasswordChange {
    /// Keep the current password.
    Keep,
    /// Set this salted record; the flag says whether the password is not empty.
    Set(Object, bool),
}

/// Where a permission applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// The whole cluster.
    Global,
    Database(DbId),
    /// One table of a database.
    Table(DbId, TableId),
}

/// The four permissions at one scope. `None` is unset: the next wider scope decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Permissions {
    /// Reading rows.
    pub read: Option<bool>,
    /// Writing rows.
    pub write: Option<bool>,
    /// Creating, dropping and configuring.
    pub config: Option<bool>,
    /// Opening outbound HTTP connections; global scope only.
    pub connect: Option<bool>,
}

/// The permissions of one user at one scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The account.
    pub user: Text,
    pub scope: Scope,
    pub permissions: Permissions,
}

impl Permissions {
    /// All permissions, as `admin` has them.
    #[must_use]
    pub fn all() -> Permissions {
        Permissions { read: Some(true), write: Some(true), config: Some(true), connect: Some(true) }
    }

    /// Whether no permission is set.
    #[must_use]
    pub fn is_unset(&self) -> bool {
        *self == Permissions::default()
    }

    /// The set permissions by name, as ReQL shows them; unset ones are left out.
    #[must_use]
    pub fn to_object(&self) -> Object {
        let mut object = ObjectBuilder::new();
        for (name, value) in self.entries() {
            if let Some(value) = value {
                object.insert(Text::from_static(name), Datum::Bool(value));
            }
        }
        object.build()
    }

    /// The permissions written by [`Permissions::to_object`]; other fields are ignored.
    #[must_use]
    pub fn from_object(object: &Object) -> Permissions {
        let flag = |name: &str| match object.get(name) {
            Some(Datum::Bool(value)) => Some(value),
            _ => None,
        };
        Permissions {
            read: flag("read"),
            write: flag("write"),
            config: flag("config"),
            connect: flag("connect"),
        }
    }

    fn entries(&self) -> [(&'static str, Option<bool>); 4] {
        [("config", self.config), ("connect", self.connect), ("read", self.read), ("write", self.write)]
    }
}
