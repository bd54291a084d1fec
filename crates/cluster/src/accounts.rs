//! Changes to users and to what they may do.

use datum::{PrimaryKey, Text};

use crate::catalog_row::{CatalogRow, grant_key, user_key};
use crate::users::{Grant, PasswordChange, Permissions, Scope, User};
use crate::{AdminError, Node};

const ADMIN: &str = "admin";

impl Node {
    /// Creates the user, or changes its password.
    pub fn put_user(&self, name: &str, password: PasswordChange) -> Result<(), AdminError> {
        let _one_at_a_time = self.changing.lock();
        let mut catalog = (*self.catalog()).clone();
        let user = match (password, catalog.user(name)) {
            (PasswordChange::Set(password, has_password), _) => {
                User { name: name.into(), password, has_password }
            }
            (PasswordChange::Keep, Some(user)) => user.clone(),
            (PasswordChange::Keep, None) => return Err(AdminError::UserMissing(name.into())),
        };
        catalog.put_user(user.clone());
        self.commit(&[CatalogRow::User(user)], &[], catalog)
    }

    /// Deletes the user and everything granted to it. Fails for `admin` and for nobody.
    pub fn drop_user(&self, name: &str) -> Result<(), AdminError> {
        let _one_at_a_time = self.changing.lock();
        if name == ADMIN {
            return Err(AdminError::AdminStays);
        }
        let mut catalog = (*self.catalog()).clone();
        if catalog.user(name).is_none() {
            return Err(AdminError::UserMissing(name.into()));
        }
        let grants = catalog.grants().iter().filter(|grant| grant.user == name);
        let mut gone: Vec<PrimaryKey> = grants.map(|grant| grant_key(name, grant.scope)).collect();
        gone.push(user_key(name));
        catalog.remove_user(name);
        self.commit(&[], &gone, catalog)
    }

    /// Sets what the user may do at the scope; `change` gets the present permissions. Returns
    /// those before and after. Fails for `admin` and for nobody.
    pub fn grant(
        &self,
        user: &str,
        scope: Scope,
        change: impl FnOnce(Permissions) -> Permissions,
    ) -> Result<(Permissions, Permissions), AdminError> {
        let _one_at_a_time = self.changing.lock();
        if user == ADMIN {
            return Err(AdminError::AdminFixed);
        }
        let mut catalog = (*self.catalog()).clone();
        if catalog.user(user).is_none() {
            return Err(AdminError::UserMissing(user.into()));
        }
        let known = catalog.grants().iter().find(|grant| grant.user == user && grant.scope == scope);
        let before = known.map(|grant| grant.permissions).unwrap_or_default();
        let grant = Grant { user: Text::from(user), scope, permissions: change(before) };
        catalog.put_grant(grant.clone());
        let after = grant.permissions;
        if after.is_unset() {
            self.commit(&[], &[grant_key(user, scope)], catalog)?;
        } else {
            self.commit(&[CatalogRow::Grant(grant)], &[], catalog)?;
        }
        Ok((before, after))
    }
}
