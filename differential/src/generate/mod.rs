//! Random queries in wire form, mostly of matching types.

mod query;
mod rare;
mod scalar;
mod sequence;
mod shapes;
mod write;

use io::sim::Chance;
use serde_json::{Value as Json, json};

pub use query::Query;
pub use shapes::SHAPES;

/// The kind of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Number,
    Text,
    /// True or false.
    Bool,
    Array,
    Object,
    /// A row of a table, or something like one.
    Row,
    Time,
    /// Bytes.
    Binary,
    /// Null, or a bound.
    Odd,
}

const KINDS: [Kind; 9] = [
    Kind::Number,
    Kind::Text,
    Kind::Bool,
    Kind::Array,
    Kind::Object,
    Kind::Row,
    Kind::Time,
    Kind::Binary,
    Kind::Odd,
];

/// The fields of rows, and the usual kinds of their values.
pub const FIELDS: [(&str, Kind); 9] = [
    ("id", Kind::Number),
    ("a", Kind::Number),
    ("n", Kind::Number),
    ("g", Kind::Text),
    ("s", Kind::Text),
    ("b", Kind::Bool),
    ("l", Kind::Array),
    ("o", Kind::Object),
    ("d", Kind::Time),
];

/// Generates queries.
pub struct Generator {
    /// The random numbers.
    pub chance: Chance,
    vars: Vec<(i64, Kind)>,
    next_var: i64,
}

/// A term on the wire.
pub fn term(id: u64, args: impl IntoIterator<Item = Json>) -> Json {
    json!([id, args.into_iter().collect::<Vec<_>>()])
}

pub fn term_with(id: u64, args: impl IntoIterator<Item = Json>, options: Json) -> Json {
    json!([id, args.into_iter().collect::<Vec<_>>(), options])
}

impl Generator {
    #[must_use]
    pub fn new(seed: u64) -> Generator {
        Generator { chance: Chance::new(seed), vars: Vec::new(), next_var: 1 }
    }

    /// A query, sometimes with an array limit.
    pub fn query(&mut self) -> Query {
        let array_limit = self.chance.once_in(8).then(|| match self.chance.below(24) {
            0 => self.chance.pick(&[json!(0), json!(-1), json!(2.5), json!(null), json!("2")]).clone(),
            1 => json!(100_001),
            _ => json!(2 + self.chance.below(9)),
        });
        Query { term: self.term(), array_limit }
    }

    fn term(&mut self) -> Json {
        self.next_var = 1;
        self.vars.clear();
        let depth = 1 + self.chance.below(5);
        let query = match self.chance.below(20) {
            0..=5 => {
                let kind = self.any_kind();
                self.value(kind, depth)
            }
            6..=11 => self.sequence(depth),
            12..=14 => self.grouped(depth),
            15..=16 => self.selection(depth.min(3)),
            17 => self.write(depth),
            18 => self.rare(depth),
            _ => self.value(Kind::Array, depth),
        };
        if self.chance.once_in(12) { term(52, [query]) } else { query }
    }

    /// A random kind, more often a plain one.
    fn any_kind(&mut self) -> Kind {
        *self.chance.pick(&KINDS)
    }

    /// A term that mostly has a value of this kind.
    fn value(&mut self, kind: Kind, depth: usize) -> Json {
        let kind = if self.chance.once_in(18) { self.any_kind() } else { kind };
        if depth == 0 || self.chance.once_in(8) {
            return self.leaf(kind);
        }
        if self.chance.once_in(9) {
            return self.detour(kind, depth - 1);
        }
        self.scalar(kind, depth - 1)
    }

    /// A variable, a field of one, or a constant.
    fn leaf(&mut self, kind: Kind) -> Json {
        if !self.vars.is_empty() && !self.chance.once_in(3) {
            let (name, of) = *self.chance.pick(&self.vars.clone());
            if of == kind {
                return term(10, [json!(name)]);
            }
            if of == Kind::Row {
                return self.field(term(10, [json!(name)]), kind);
            }
        }
        self.constant(kind)
    }

    /// A field of a row that mostly has this kind.
    fn field(&mut self, row: Json, kind: Kind) -> Json {
        let fitting: Vec<&str> = FIELDS.iter().filter(|(_, of)| *of == kind).map(|(name, _)| *name).collect();
        let name = match fitting.is_empty() || self.chance.once_in(15) {
            true => *self.chance.pick(&["zz", "a", "o", "l"]),
            false => *self.chance.pick(&fitting),
        };
        term(if self.chance.once_in(4) { 31 } else { 170 }, [row, json!(name)])
    }

    pub fn constant(&mut self, kind: Kind) -> Json {
        match kind {
            Kind::Number => self.number(),
            Kind::Text => self.text(),
            Kind::Bool => json!(self.chance.once_in(2)),
            Kind::Array => {
                let of = self.any_kind();
                let of = if self.chance.once_in(3) { of } else { Kind::Number };
                let count = self.chance.below(5);
                let items: Vec<Json> = (0..count).map(|_| self.constant(of)).collect();
                term(2, items)
            }
            Kind::Object => self.object_constant(),
            Kind::Row => self.row_constant(),
            Kind::Time => self.time_constant(),
            Kind::Binary => term(155, [self.text()]),
            Kind::Odd => match self.chance.below(6) {
                0 => term(180, []),
                1 => term(181, []),
                _ => Json::Null,
            },
        }
    }

    fn number(&mut self) -> Json {
        match self.chance.below(12) {
            0 => json!(0.5),
            1 => json!(-1.25),
            2 => json!(1000),
            3 => json!(-1),
            _ => json!(self.chance.below(9)),
        }
    }

    fn text(&mut self) -> Json {
        let texts = ["", "x", "y", "z", "a", "b c", "a,b,,c", "Éa b", "12", "-3.5", "xyz", "{a} {g}", "k1"];
        json!(self.chance.pick(&texts))
    }

    fn field_name(&mut self) -> Json {
        json!(self.chance.pick(&["id", "a", "n", "g", "s", "b", "l", "o", "p", "zz"]))
    }

    fn object_constant(&mut self) -> Json {
        let mut object = serde_json::Map::new();
        for name in ["a", "p", "q", "g"] {
            if self.chance.once_in(2) {
                let kind = if self.chance.once_in(5) { self.any_kind() } else { Kind::Number };
                let value = if kind == Kind::Row { self.number() } else { self.constant(kind) };
                object.insert(name.to_owned(), value);
            }
        }
        Json::Object(object)
    }

    /// Something like a row, as a term.
    pub fn row_constant(&mut self) -> Json {
        let mut row = serde_json::Map::new();
        for (name, kind) in FIELDS {
            if name == "id" || !self.chance.once_in(5) {
                let kind = if name != "id" && self.chance.once_in(12) { self.any_kind() } else { kind };
                let value = match kind {
                    Kind::Row => self.object_constant(),
                    Kind::Odd => Json::Null,
                    kind => self.constant(kind),
                };
                row.insert(name.to_owned(), value);
            }
        }
        Json::Object(row)
    }

    fn time_constant(&mut self) -> Json {
        let zone = *self.chance.pick(&["+00:00", "+02:00", "-07:30"]);
        let seconds = *self.chance.pick(&[0.0, 86_400.0, 1_375_147_296.681, 951_782_400.0, -12_345_678.5]);
        json!({"$reql_type$": "TIME", "epoch_time": seconds, "timezone": zone})
    }

    /// A function of one row, which may use variables of these kinds and names.
    pub fn row_function(&mut self, around: &[(i64, Kind)]) -> Json {
        self.vars = around.to_vec();
        self.next_var = 1 + around.iter().map(|(name, _)| *name).max().unwrap_or_default();
        let (answer, depth) = (self.any_kind(), 1 + self.chance.below(5));
        self.func(&[Kind::Row], answer, depth)
    }

    /// A function of values of these kinds with a result mostly of kind `answer`.
    fn func(&mut self, takes: &[Kind], answer: Kind, depth: usize) -> Json {
        let known = self.vars.len();
        let names: Vec<i64> = takes.iter().map(|kind| self.bind(*kind)).collect();
        let body = self.value(answer, depth);
        self.vars.truncate(known);
        term(69, [term(2, names.into_iter().map(|name| json!(name))), body])
    }

    fn bind(&mut self, kind: Kind) -> i64 {
        let name = self.next_var;
        self.next_var += 1;
        self.vars.push((name, kind));
        name
    }

    /// A value of a control term: `branch`, `default`, `do`, an element of an array.
    fn detour(&mut self, kind: Kind, depth: usize) -> Json {
        match self.chance.below(8) {
            0 | 1 => {
                let test = self.value(Kind::Bool, depth);
                let (yes, no) = (self.value(kind, depth), self.value(kind, depth));
                term(65, [test, yes, no])
            }
            2 | 3 => {
                let (first, other) = (self.value(kind, depth), self.value(kind, depth.min(1)));
                let other = if self.chance.once_in(8) { term(12, []) } else { other };
                term(92, [first, other])
            }
            4 => {
                let of = self.any_kind();
                let argument = self.value(of, depth);
                let func = self.func(&[of], kind, depth);
                term(64, [func, argument])
            }
            5 => {
                let items = [self.value(kind, depth), self.value(kind, depth)];
                let at = self.chance.below(3) as i64 - 1;
                term(if self.chance.once_in(2) { 45 } else { 170 }, [term(2, items), json!(at)])
            }
            6 if self.chance.once_in(3) => term(12, [json!("no")]),
            6 => {
                let row = self.value(Kind::Row, depth);
                self.field(row, kind)
            }
            _ => {
                let (first, second) = (self.value(kind, depth), self.value(kind, depth));
                term(if self.chance.once_in(2) { 66 } else { 67 }, [first, second])
            }
        }
    }
}
