//! Steps and their parts: selectors, predicates, filters, groups.

use datum::{Datum, Text};

use super::{Codec, Packer, UnpackError, Unpacker};
use crate::args::Arg;
use crate::backtrace::Frame;
use crate::closure::Closure;
use crate::env::Cancel;
use crate::error::EvalError;
use crate::group::GroupBy;
use crate::op::geo::{Relation, ShapeTest};
use crate::op::pathspec::PathSpec;
use crate::order::{Direction, Order};
use crate::select::{Filter, FilterTest, OnMissing, Predicate, Selector};
use crate::signature;
use crate::transform::{PerItem, Transform, is_over_objects};

/// The terms that `Transform::Field` may represent, in the order of their numbers.
const FIELD_TERMS: [&str; 3] = ["get_field", "bracket", "distinct"];

impl Codec for Transform {
    fn pack(&self, out: &mut Packer) {
        match self {
            Transform::Map(closure) => tagged(0, closure, out),
            Transform::ConcatMap(closure) => tagged(1, closure, out),
            Transform::Filter(filter) => tagged(2, filter, out),
            Transform::Matching(predicate) => tagged(3, predicate, out),
            Transform::Field { name, term } => {
                out.byte(4);
                name.pack(out);
                let term = FIELD_TERMS.iter().position(|known| known == term).unwrap_or_default();
                out.byte(term as u8);
            }
            Transform::Pluck(spec) => tagged(5, spec, out),
            Transform::Without(spec) => tagged(6, spec, out),
            Transform::HasFields(spec) => tagged(7, spec, out),
            Transform::WithFields(spec) => tagged(8, spec, out),
            Transform::Merge(layers) => tagged(9, layers, out),
            Transform::Zip => out.byte(10),
            Transform::PerItem(PerItem { op, args }) => {
                out.byte(13);
                out.count(u64::from(signature::of(*op).id));
                args.pack(out);
            }
            Transform::Shape(test) => match test.relation() {
                Relation::Intersects => tagged(11, test.argument(), out),
                Relation::Includes => tagged(12, test.argument(), out),
            },
        }
    }

    fn unpack(from: &mut Unpacker) -> Result<Self, UnpackError> {
        Ok(match from.byte()? {
            0 => Transform::Map(Closure::unpack(from)?),
            1 => Transform::ConcatMap(Closure::unpack(from)?),
            2 => Transform::Filter(Filter::unpack(from)?),
            3 => Transform::Matching(Predicate::unpack(from)?),
            4 => {
                let name = Text::unpack(from)?;
                let term = FIELD_TERMS.get(usize::from(from.byte()?)).copied();
                Transform::Field { name, term: term.ok_or_else(|| from.invalid("a term's name"))? }
            }
            5 => Transform::Pluck(PathSpec::unpack(from)?),
            6 => Transform::Without(PathSpec::unpack(from)?),
            7 => Transform::HasFields(PathSpec::unpack(from)?),
            8 => Transform::WithFields(PathSpec::unpack(from)?),
            9 => Transform::Merge(Vec::<Arg>::unpack(from)?),
            10 => Transform::Zip,
            11 => Transform::Shape(ShapeTest::new(Relation::Intersects, &Datum::unpack(from)?)),
            12 => Transform::Shape(ShapeTest::new(Relation::Includes, &Datum::unpack(from)?)),
            13 => {
                let op = u32::try_from(from.count()?).ok().and_then(signature::by_id);
                let op = op.filter(|op| is_over_objects(*op));
                let op = op.ok_or_else(|| from.invalid("a term over objects"))?;
                Transform::PerItem(PerItem { op, args: Vec::<Closure>::unpack(from)? })
            }
            _ => return Err(from.invalid("a step")),
        })
    }
}

impl Codec for PathSpec {
    fn pack(&self, out: &mut Packer) {
        self.to_datum().pack(out);
    }

    fn unpack(from: &mut Unpacker) -> Result<Self, UnpackError> {
        PathSpec::of(&Datum::unpack(from)?, &Cancel::never()).map_err(|_| from.invalid("a path"))
    }
}

impl Codec for Selector {
    fn pack(&self, out: &mut Packer) {
        match self {
            Selector::Field(field) => tagged(0, field, out),
            Selector::Func(closure) => tagged(1, closure, out),
        }
    }

    fn unpack(from: &mut Unpacker) -> Result<Self, UnpackError> {
        match from.byte()? {
            0 => Datum::unpack(from).map(Selector::Field),
            1 => Closure::unpack(from).map(Selector::Func),
            _ => Err(from.invalid("a selector")),
        }
    }
}

impl Codec for Predicate {
    fn pack(&self, out: &mut Packer) {
        match self {
            Predicate::Equals(value) => tagged(0, value, out),
            Predicate::Func(closure) => tagged(1, closure, out),
            Predicate::Filter(filter) => tagged(2, filter, out),
        }
    }

    fn unpack(from: &mut Unpacker) -> Result<Self, UnpackError> {
        match from.byte()? {
            0 => Datum::unpack(from).map(Predicate::Equals),
            1 => Closure::unpack(from).map(Predicate::Func),
            2 => Filter::unpack(from).map(Predicate::Filter),
            _ => Err(from.invalid("a predicate")),
        }
    }
}

impl Codec for Filter {
    fn pack(&self, out: &mut Packer) {
        match &self.test {
            FilterTest::Value(value) => tagged(0, value, out),
            FilterTest::Truth(closure) => tagged(1, closure, out),
            FilterTest::Pattern(closure) => tagged(2, closure, out),
            FilterTest::NotIn(unwanted) => tagged(3, &Datum::from(unwanted.to_vec()), out),
        }
        match &self.on_missing {
            OnMissing::Drop => out.byte(0),
            OnMissing::Keep => out.byte(1),
            OnMissing::Raise => out.byte(2),
            OnMissing::Fail(error) => tagged(3, error, out),
        }
    }

    fn unpack(from: &mut Unpacker) -> Result<Self, UnpackError> {
        let test = match from.byte()? {
            0 => FilterTest::Value(Datum::unpack(from)?),
            1 => FilterTest::Truth(Closure::unpack(from)?),
            2 => FilterTest::Pattern(Closure::unpack(from)?),
            3 => match Datum::unpack(from)? {
                // Input is not trusted, so the values are sorted again.
                Datum::Array(unwanted) => Filter::without(&unwanted).test,
                _ => return Err(from.invalid("a filter")),
            },
            _ => return Err(from.invalid("a filter")),
        };
        let on_missing = match from.byte()? {
            0 => OnMissing::Drop,
            1 => OnMissing::Keep,
            2 => OnMissing::Raise,
            3 => OnMissing::Fail(EvalError::unpack(from)?),
            _ => return Err(from.invalid("what a filter does about missing things")),
        };
        Ok(Filter { test, on_missing })
    }
}

impl Codec for Order {
    fn pack(&self, out: &mut Packer) {
        self.selector.pack(out);
        (self.direction == Direction::Descending).pack(out);
        out.list(self.path.iter());
    }

    fn unpack(from: &mut Unpacker) -> Result<Self, UnpackError> {
        let selector = Selector::unpack(from)?;
        let direction = match bool::unpack(from)? {
            true => Direction::Descending,
            false => Direction::Ascending,
        };
        Ok(Order { selector, direction, path: from.list(Frame::unpack)? })
    }
}

impl Codec for GroupBy {
    fn pack(&self, out: &mut Packer) {
        self.selectors.pack(out);
        self.multi.pack(out);
    }

    fn unpack(from: &mut Unpacker) -> Result<Self, UnpackError> {
        Ok(GroupBy { selectors: Vec::unpack(from)?, multi: bool::unpack(from)? })
    }
}

/// A number that tells the variant, followed by the variant.
pub(super) fn tagged<T: Codec>(tag: u8, value: &T, out: &mut Packer) {
    out.byte(tag);
    value.pack(out);
}
