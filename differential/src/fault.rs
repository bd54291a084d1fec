//! Why a query has no value.

use crate::value::Val;

/// The class of an error, as a client is told it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// QUERY_LOGIC.
    Logic,
    /// NON_EXISTENCE: what `default` and `filter` catch.
    NonExistence,
    /// RESOURCE_LIMIT.
    Resource,
    /// USER.
    User,
    /// OP_FAILED.
    OpFailed,
    /// `r.error()` without a message, which is QUERY_LOGIC for the client.
    Empty,
    /// The rules do not say what the answer is, or the reference does not know them.
    Unspecified,
}

/// An error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Its class.
    pub class: Class,
    /// What is wrong, for the person who reads a difference; nobody compares it.
    pub why: String,
}

/// A value or why there is none.
pub type Out<T> = Result<T, Fault>;

impl Fault {
    /// An error of this class.
    pub fn new(class: Class, why: impl Into<String>) -> Fault {
        Fault { class, why: why.into() }
    }

    /// QUERY_LOGIC.
    pub fn logic(why: impl Into<String>) -> Fault {
        Fault::new(Class::Logic, why)
    }

    /// NON_EXISTENCE.
    pub fn missing(why: impl Into<String>) -> Fault {
        Fault::new(Class::NonExistence, why)
    }

    /// RESOURCE_LIMIT.
    pub fn resource(why: impl Into<String>) -> Fault {
        Fault::new(Class::Resource, why)
    }

    /// No verdict.
    pub fn unspecified(why: impl Into<String>) -> Fault {
        Fault::new(Class::Unspecified, why)
    }

    /// A value of the wrong type: NON_EXISTENCE when it is null, otherwise QUERY_LOGIC.
    #[must_use]
    pub fn expected(expected: &str, found: &Val) -> Fault {
        let class = if matches!(found, Val::Null) { Class::NonExistence } else { Class::Logic };
        Fault::new(class, format!("expected {expected} but found {}", found.type_name()))
    }

    /// Both, or what is wrong. Which of two different mistakes in one term is told, no rule says.
    pub fn both<A, B>(first: Out<A>, second: Out<B>) -> Out<(A, B)> {
        match (first, second) {
            (Err(first), Err(second)) if first.class != second.class => {
                Err(Fault::unspecified("more than one mistake"))
            }
            (first, second) => Ok((first?, second?)),
        }
    }

    /// All, or what is wrong. Which of several different mistakes is told, no rule says.
    pub fn all<T>(parts: Vec<Out<T>>) -> Out<Vec<T>> {
        let first = parts.iter().find_map(|part| part.as_ref().err()).map(|fault| fault.class);
        let differs = |part: &Out<T>| part.as_ref().is_err_and(|fault| Some(fault.class) != first);
        if parts.iter().any(differs) {
            return Err(Fault::unspecified("more than one mistake"));
        }
        parts.into_iter().collect()
    }

    /// Whether `default` and `filter` catch it.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        self.class == Class::NonExistence
    }
}
