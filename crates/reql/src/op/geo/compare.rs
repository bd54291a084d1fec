//! `intersects` and `includes`, for two shapes or as a filter of a sequence of shapes.

use datum::Datum;

use crate::env::Cancel;
use crate::error::EvalError;
use crate::geo::{self, LazyShape, Shape};

/// A relation between two shapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// `intersects`: whether they share a point.
    Intersects,
    /// `includes`: whether the first, an area, contains the second.
    Includes,
}

impl Relation {
    /// The name of the term.
    #[must_use]
    pub fn term(self) -> &'static str {
        match self {
            Relation::Intersects => "intersects",
            Relation::Includes => "includes",
        }
    }
}

/// A test for a relation with the second argument.
#[derive(Clone, Debug)]
pub struct ShapeTest {
    relation: Relation,
    /// The second argument. If it is not a shape, that is an error only once there is a first.
    other: LazyShape,
}

impl ShapeTest {
    /// The test with this second argument.
    #[must_use]
    pub fn new(relation: Relation, argument: &Datum) -> Self {
        ShapeTest { relation, other: LazyShape::new(argument.clone()) }
    }

    /// The relation that is tested.
    #[must_use]
    pub fn relation(&self) -> Relation {
        self.relation
    }

    /// The second argument.
    #[must_use]
    pub fn argument(&self) -> &Datum {
        self.other.value()
    }

    /// Fails unless `item` is a shape.
    pub fn check(&self, item: &Datum) -> Result<(), EvalError> {
        match item {
            Datum::Geometry(_) => Ok(()),
            Datum::Object(_) => geo::members(item).map(drop),
            other => Err(self.not_a_shape(other)),
        }
    }

    /// Whether the relation holds for `item`, which must be a shape.
    pub fn holds(&self, item: &Datum, cancel: &Cancel) -> Result<bool, EvalError> {
        self.check(item)?;
        let other = || {
            geo::members_of_argument(self.other.value(), 1)?;
            self.other.get(cancel)
        };
        match self.relation {
            Relation::Intersects => {
                let shape = Shape::of(item, cancel)?;
                Ok(shape.intersects(other()?, cancel)?)
            }
            Relation::Includes => {
                let area = Shape::polygon(item, cancel)?;
                Ok(other()?.is_in(&area, cancel)?)
            }
        }
    }

    fn not_a_shape(&self, item: &Datum) -> EvalError {
        let term = self.relation.term();
        match item {
            Datum::Array(_) => EvalError::logic(format!("Cannot perform {term} on a sequence of sequences.")),
            Datum::Time(_) => {
                let kind = item.kind().name();
                EvalError::logic(format!("Cannot call `{term}` on objects of type `{kind}`."))
            }
            _ => EvalError::typed(
                item,
                format!("Cannot perform {term} on a non-object non-sequence `{}`.", item.truncated()),
            ),
        }
    }
}
