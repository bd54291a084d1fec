//! The account that a query runs as.

use datum::Text;

/// The account that an evaluation runs as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// An account.
    User(Text),
    /// No account, which may do nothing: limits of a query are evaluated before it has a user.
    None,
}

impl Caller {
    /// The name of the account; empty, which no account has, for [`Caller::None`].
    pub fn name(&self) -> Text {
        match self {
            Caller::User(user) => user.clone(),
            Caller::None => Text::new(),
        }
    }

    /// Whether this is the account with this name.
    pub fn is(&self, name: &str) -> bool {
        matches!(self, Caller::User(user) if user == name)
    }
}
