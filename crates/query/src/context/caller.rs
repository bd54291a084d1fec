//! Who asks: the account in whose name a query runs.

use datum::Text;

/// On whose behalf something is evaluated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// An account.
    User(Text),
    /// Nobody: limits of a query are worked out before it has a user, who therefore may do nothing.
    None,
}

impl Caller {
    /// The name of the account; nobody's is empty, which no account has.
    pub fn name(&self) -> Text {
        match self {
            Caller::User(user) => user.clone(),
            Caller::None => Text::new(),
        }
    }

    /// Whether this is the account of that name.
    pub fn is(&self, name: &str) -> bool {
        matches!(self, Caller::User(user) if user == name)
    }
}
