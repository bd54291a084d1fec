//! Why two servers have no link, as one reports it to the other (docs/formats/link.md, "farewell").

use crate::link::frame::Damage;

/// The reason and its text, which is logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) reason: Reason,
    pub(super) text: String,
}

/// The reason of a farewell, as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    Stranger = 1,
    Version = 2,
    Itself = 3,
    Removed = 4,
    Replaced = 5,
    Duplicate = 6,
    NotAdopted = 7,
    NoCluster = 8,
    Damage = 9,
    ShuttingDown = 10,
    Silent = 11,
}

impl Fault {
    pub(super) fn new(reason: Reason, text: String) -> Fault {
        Fault { reason, text }
    }

    pub(super) fn removed(name: String) -> Fault {
        Fault::new(Reason::Removed, format!("server {name} was removed from the cluster"))
    }

    pub(super) fn shutting_down(name: &str) -> Fault {
        Fault::new(Reason::ShuttingDown, format!("server \"{name}\" is shutting down"))
    }

    pub(super) fn silent(text: String) -> Fault {
        Fault::new(Reason::Silent, text)
    }

    pub(super) fn duplicate() -> Fault {
        Fault::new(Reason::Duplicate, "there is a link already".to_owned())
    }
}

impl From<Damage> for Fault {
    fn from(damage: Damage) -> Fault {
        Fault::new(Reason::Damage, damage.to_string())
    }
}

impl Reason {
    pub(super) fn of(number: u64) -> Option<Reason> {
        use Reason::*;
        #[rustfmt::skip]
        let all = [
            Stranger, Version, Itself, Removed, Replaced, Duplicate, NotAdopted, NoCluster, Damage, ShuttingDown, Silent,
        ];
        all.into_iter().find(|reason| *reason as u64 == number)
    }

    /// Whether the reason is not logged.
    pub(super) fn is_quiet(self) -> bool {
        matches!(self, Reason::Duplicate | Reason::Itself | Reason::ShuttingDown)
    }
}
