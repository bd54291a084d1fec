//! Sets the hooks of restored tables.

use crate::catalog::{Hook, HookOutcome, make_hooks, read_hook};
use crate::error::MigrateError;
use crate::queries::TableName;
use crate::server::{Server, Stop};

/// Sets the hooks that their tables do not have yet, and returns the outcome for all, in their order. Fails when the server is lost, or
/// refuses the login.
pub fn set_hooks(
    server: &Server,
    hooks: &[(TableName, Hook)],
) -> Result<Vec<(TableName, HookOutcome)>, MigrateError> {
    let (mut line, stop) = (server.line(), Stop::default());
    let mut outcomes = Vec::new();
    for (name, hook) in hooks {
        let present = line.run(&stop, |to| read_hook(to, name))?;
        match present.is_some_and(|present| present.base64() == hook.base64()) {
            true => outcomes.push((name.clone(), HookOutcome::Set)),
            false => outcomes.extend(make_hooks(&mut line, &stop, &[(name.clone(), hook.clone())])?),
        }
    }
    Ok(outcomes)
}
