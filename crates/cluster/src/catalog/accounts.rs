//! Changes to users and their permissions.

use std::sync::Arc;

use datum::Text;

use super::client::CatalogClient;
use super::row::{CatalogRow, grant_key, user_key};
use crate::config::{Grant, PasswordChange, Permissions, Scope, User};
use crate::error::AdminError;

const ADMIN: &str = "admin";

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

    /// Deletes the user and all its grants. Fails for `admin`, and if there is no such user.
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
            draft.delete(user_key(name));
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
