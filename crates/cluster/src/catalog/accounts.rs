//! Changes to users, their permissions and their saved queries.

use std::sync::Arc;

use datum::Text;

use super::client::CatalogClient;
use super::row::{CatalogRow, grant_key, saved_query_key, user_key};
use super::snapshot::Catalog;
use crate::config::{Grant, PasswordChange, Permissions, SavedQuery, Scope, User};
use crate::error::AdminError;

const ADMIN: &str = "admin";

/// The most bytes of one user's saved queries, and of all users'. Each change of the catalog reads them all.
const QUERIES_OF_USER_BYTES_MAX: usize = 1 << 20;
const QUERIES_BYTES_MAX: usize = 16 << 20;
/// The longest name of a saved query, in bytes.
const QUERY_NAME_BYTES_MAX: usize = 200;

/// Creates, changes and drops users.
pub struct Accounts {
    catalog: Arc<CatalogClient>,
}

impl Accounts {
    pub(crate) fn new(catalog: Arc<CatalogClient>) -> Accounts {
        Accounts { catalog }
    }

    /// Creates the user, or changes its password.
    pub fn put_user(&self, name: &str, password: PasswordChange) -> Result<(), AdminError> {
        self.catalog.administer(|catalog, draft| {
            let user = match (&password, catalog.user(name)) {
                (PasswordChange::Set(password, has_password), _) => {
                    User { name: name.into(), password: password.clone(), has_password: *has_password }
                }
                (PasswordChange::Keep, Some(user)) => user.clone(),
                (PasswordChange::Keep, None) => return Err(AdminError::UserMissing(name.into())),
            };
            draft.put(CatalogRow::User(user));
            Ok(())
        })
    }

    /// Deletes the user, all its grants and its saved queries. Fails for `admin`, and if there is no such user.
    pub fn drop_user(&self, name: &str) -> Result<(), AdminError> {
        if name == ADMIN {
            return Err(AdminError::AdminStays);
        }
        self.catalog.administer(|catalog, draft| {
            if catalog.user(name).is_none() {
                return Err(AdminError::UserMissing(name.into()));
            }
            for grant in catalog.grants().iter().filter(|grant| grant.user == name) {
                draft.delete(grant_key(name, grant.scope));
            }
            for query in catalog.saved_queries().filter(|query| query.owner == name) {
                draft.delete(saved_query_key(query.id));
            }
            draft.delete(user_key(name));
            Ok(())
        })
    }

    /// Saves a query in place of `before`, or as a new one. Fails if the saved query is not `before` any more, if its name is
    /// empty or too long, or if the saved queries become too large.
    pub fn put_query(&self, before: Option<&SavedQuery>, query: SavedQuery) -> Result<(), AdminError> {
        if query.name.trim().is_empty() || query.name.len() > QUERY_NAME_BYTES_MAX {
            return Err(AdminError::SavedQueryName(QUERY_NAME_BYTES_MAX));
        }
        self.catalog.administer(|catalog, draft| {
            check_unchanged(catalog, &query, before)?;
            let others = || catalog.saved_queries().filter(|other| other.id != query.id);
            let sum = |owner: Option<&str>| -> usize {
                let counted = others().filter(|other| owner.is_none_or(|owner| other.owner == owner));
                counted.map(SavedQuery::bytes).sum::<usize>() + query.bytes()
            };
            if sum(Some(&query.owner)) > QUERIES_OF_USER_BYTES_MAX {
                return Err(AdminError::SavedQueriesFull { owner: query.owner.clone() });
            }
            if sum(None) > QUERIES_BYTES_MAX {
                return Err(AdminError::AllSavedQueriesFull);
            }
            draft.put(CatalogRow::SavedQuery(query.clone()));
            Ok(())
        })
    }

    /// Deletes a saved query. Fails if it is not `before` any more.
    pub fn delete_query(&self, before: &SavedQuery) -> Result<(), AdminError> {
        self.catalog.administer(|catalog, draft| {
            check_unchanged(catalog, before, Some(before))?;
            draft.delete(saved_query_key(before.id));
            Ok(())
        })
    }

    /// Changes the permissions of the user at the scope. `change` maps the current permissions to the new ones; it may
    /// be called several times. Returns the permissions before and after. Fails for `admin`, and if there is no such
    /// user.
    pub fn grant(
        &self,
        user: &str,
        scope: Scope,
        change: impl Fn(Permissions) -> Permissions,
    ) -> Result<(Permissions, Permissions), AdminError> {
        if user == ADMIN {
            return Err(AdminError::AdminFixed);
        }
        self.catalog.administer(|catalog, draft| {
            if catalog.user(user).is_none() {
                return Err(AdminError::UserMissing(user.into()));
            }
            let current = catalog.grants().iter().find(|grant| grant.user == user && grant.scope == scope);
            let before = current.map(|grant| grant.permissions).unwrap_or_default();
            let after = change(before);
            match after.is_unset() {
                true => draft.delete(grant_key(user, scope)),
                false => {
                    let grant = Grant { user: Text::from(user), scope, permissions: after };
                    draft.put(CatalogRow::Grant(grant));
                }
            }
            Ok((before, after))
        })
    }
}

fn check_unchanged(
    catalog: &Catalog,
    query: &SavedQuery,
    before: Option<&SavedQuery>,
) -> Result<(), AdminError> {
    match catalog.saved_query(query.id) == before {
        true => Ok(()),
        false => Err(AdminError::SavedQueryChanged(query.name.clone())),
    }
}
