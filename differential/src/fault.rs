//! Errors of the reference, including the one that means that no rule determines the result.

use crate::value::Val;

/// The class of an error as clients receive it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// QUERY_LOGIC.
    Logic,
    /// NON_EXISTENCE: what `default` and `filter` catch.
    NonExistence,
    /// RESOURCE_LIMIT.
    Resource,
    User,
    OpFailed,
    /// `r.error()` without a message, which is QUERY_LOGIC for the client.
    Empty,
    /// The rules do not determine the result, or the reference does not implement them.
    Unspecified,
}

/// An error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub class: Class,
    /// A description for people who read a difference; it is not compared.
    pub why: String,
}

/// A value or an error.
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

    /// No rule determines the result.
    pub fn unspecified(why: impl Into<String>) -> Fault {
        Fault::new(Class::Unspecified, why)
    }

    /// A value of the wrong type: NON_EXISTENCE when it is null, otherwise QUERY_LOGIC.
    #[must_use]
    pub fn expected(expected: &str, found: &Val) -> Fault {
        let class = if matches!(found, Val::Null) { Class::NonExistence } else { Class::Logic };
        Fault::new(class, format!("expected {expected} but found {}", found.type_name()))
    }

    /// Both values or the error. No rule determines which of two different errors of one term is reported.
    pub fn both<A, B>(first: Out<A>, second: Out<B>) -> Out<(A, B)> {
        match (first, second) {
            (Err(first), Err(second)) if first.class != second.class => {
                Err(Fault::unspecified("more than one mistake"))
            }
            (first, second) => Ok((first?, second?)),
        }
    }

    /// All values or the error. No rule determines which of several different errors is reported.
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
