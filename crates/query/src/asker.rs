//! Who asks: the account in whose name a query runs.

use datum::Text;

/// On whose behalf something is evaluated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asker {
    /// An account.
    User(Text),
    /// Nobody: limits of a query are worked out before it has a user, who therefore may do nothing.
    Nobody,
}

impl Asker {
    /// The name of the account; nobody's is empty, which no account has.
    pub fn name(&self) -> Text {
        match self {
            Asker::User(user) => user.clone(),
            Asker::Nobody => Text::new(),
        }
    }

    /// Whether this is the account of that name.
    pub fn is(&self, name: &str) -> bool {
        matches!(self, Asker::User(user) if user == name)
    }
}
