//! Tables, parts of them, and transformations of their rows.

use serde_json::{Value as Json, json};

use super::{Generator, Kind, term, term_with};

/// The indexes of the table `t`.
const INDEXES: [&str; 6] = ["a", "g", "ga", "l", "e", "id"];

impl Generator {
    pub(super) fn table(&mut self) -> Json {
        match self.chance.below(12) {
            0 => term(15, [json!("u")]),
            1 => term(15, [json!("empty")]),
            2 => term(15, [term(14, [json!("test")]), json!("t")]),
            3 if self.chance.once_in(6) => term(15, [json!("nowhere")]),
            _ => term(15, [json!("t")]),
        }
    }

    pub(super) fn index_name(&mut self) -> Json {
        let names = if self.chance.once_in(20) { &["nothing"][..] } else { &INDEXES[..] };
        json!(self.chance.pick(names))
    }

    /// A primary key, mostly of a row that exists.
    pub(super) fn key(&mut self) -> Json {
        match self.chance.below(12) {
            0 => json!("k1"),
            1 => json!(99),
            2 if self.chance.once_in(4) => json!(null),
            2 => term(2, [json!(1), json!("x")]),
            _ => json!(self.chance.below(14)),
        }
    }

    /// A value that an index may have.
    fn index_value(&mut self, index: &Json) -> Json {
        match index.as_str() {
            Some("g") => json!(self.chance.pick(&["x", "y", "z"])),
            Some("ga") => term(2, [json!(self.chance.pick(&["x", "y"])), self.number()]),
            Some("id") => self.key(),
            _ => self.number(),
        }
    }

    /// A part of a table by its key or an index.
    fn slice(&mut self) -> Json {
        let index = self.index_name();
        let side = *self.chance.pick(&["open", "closed"]);
        match self.chance.below(5) {
            0 | 1 => {
                let bound = |me: &mut Generator, none: u64| match me.chance.below(5) {
                    0 => term(none, []),
                    _ => me.index_value(&index),
                };
                let (left, right) = (bound(self, 180), bound(self, 181));
                let options = json!({"index": index, "left_bound": side, "right_bound": side});
                term_with(182, [term(15, [json!("t")]), left, right], options)
            }
            2 => self.ordered_slice(),
            3 => {
                let (left, right) = (self.key(), self.key());
                term(182, [self.table(), left, right])
            }
            _ => self.table(),
        }
    }

    /// A table in the order of an index.
    fn ordered_slice(&mut self) -> Json {
        let index = self.index_name();
        let order = match self.chance.below(3) {
            0 => term(73, [index.clone()]),
            1 => term(74, [index.clone()]),
            _ => index.clone(),
        };
        let table = term(15, [json!("t")]);
        let table = match self.chance.once_in(3) {
            true => {
                let (left, right) = (self.index_value(&index), term(181, []));
                term_with(182, [table, left, right], json!({"index": index}))
            }
            false => table,
        };
        term_with(41, [table], json!({"index": order}))
    }

    /// Rows that are still rows of a table.
    pub(super) fn selection(&mut self, depth: usize) -> Json {
        if depth == 0 {
            return self.slice();
        }
        match self.chance.below(8) {
            7 => {
                let rows = self.selection(depth - 1);
                let unwanted = self.sequence(depth - 1);
                term(95, [rows, unwanted])
            }
            0 => {
                let index = self.index_name();
                let keys: Vec<Json> =
                    (0..1 + self.chance.below(3)).map(|_| self.index_value(&index)).collect();
                let table = std::iter::once(term(15, [json!("t")]));
                term_with(78, table.chain(keys), json!({"index": index}))
            }
            1 => {
                let keys: Vec<Json> = (0..1 + self.chance.below(4)).map(|_| self.key()).collect();
                term(78, std::iter::once(self.table()).chain(keys))
            }
            2 | 3 => {
                let rows = self.selection(depth - 1);
                self.filter(rows, Kind::Row, depth - 1)
            }
            4 => term(32, [self.selection(depth - 1), self.path()]),
            5 => {
                let rows = self.ordered_slice();
                self.cut(rows)
            }
            _ => self.slice(),
        }
    }

    fn cut(&mut self, rows: Json) -> Json {
        let n = json!(self.chance.below(6) as i64 - i64::from(self.chance.once_in(15)));
        match self.chance.below(3) {
            0 => term(71, [rows, n]),
            1 => term(70, [rows, n]),
            _ => {
                let to = self.chance.below(9) as i64 - 1;
                term_with(30, [rows, n, json!(to)], json!({"right_bound": "closed"}))
            }
        }
    }

    /// Rows of tables or arrays.
    pub(super) fn rows(&mut self, depth: usize) -> Json {
        match self.chance.below(4) {
            0 => {
                let rows: Vec<Json> = (0..self.chance.below(5)).map(|_| self.row_constant()).collect();
                term(2, rows)
            }
            1 => self.ordered_rows(depth),
            _ => self.selection(depth.min(2)),
        }
    }

    /// Rows in an order.
    pub(super) fn ordered_rows(&mut self, depth: usize) -> Json {
        if self.chance.once_in(2) {
            return self.ordered_slice();
        }
        let rows = self.selection(depth.min(2));
        let last = term(if self.chance.once_in(2) { 73 } else { 74 }, [json!("id")]);
        match self.chance.below(4) {
            0 => term(41, [rows, last]),
            1 => {
                let first = self.func(&[Kind::Row], Kind::Number, depth.min(2));
                term(41, [rows, first, last])
            }
            _ => {
                let first = self.field_name();
                term(41, [rows, first, last])
            }
        }
    }

    /// Items after some steps.
    pub(super) fn sequence(&mut self, depth: usize) -> Json {
        let (mut items, mut kind) = match self.chance.below(8) {
            0 => (term(173, [json!(self.chance.below(5)), json!(self.chance.below(12))]), Kind::Number),
            1 | 2 => (self.ordered_rows(depth), Kind::Row),
            3 => (self.join(depth), Kind::Object),
            _ => (self.rows(depth), Kind::Row),
        };
        for _ in 0..self.chance.below(4) {
            (items, kind) = self.step(items, kind, depth.min(2));
        }
        items
    }

    fn filter(&mut self, items: Json, kind: Kind, depth: usize) -> Json {
        let test = match self.chance.below(8) {
            0 if kind == Kind::Row => json!({"g": "x"}),
            1 if kind == Kind::Row => json!({"a": self.number(), "b": true}),
            2 if kind == Kind::Row => json!({"o": {"p": self.number()}}),
            3 if kind == Kind::Row && self.vars.is_empty() => {
                let id = 17 + self.chance.below(6) as u64;
                let body = term(id, [term(170, [term(13, []), self.field_name()]), self.number()]);
                term(69, [term(2, [json!(904)]), body])
            }
            4 if kind == Kind::Row => self.indexed_test(),
            _ => self.func(&[kind], Kind::Bool, depth.min(3)),
        };
        match self.chance.below(6) {
            0 => term_with(39, [items, test], json!({"default": self.chance.once_in(2)})),
            1 => term_with(39, [items, test], json!({"default": term(12, [])})),
            _ => term(39, [items, test]),
        }
    }

    /// Comparisons of a field that has an index, as people write them.
    fn indexed_test(&mut self) -> Json {
        let name = self.next_var;
        self.next_var += 1;
        let compare = |me: &mut Generator| {
            let field = *me.chance.pick(&["a", "g", "id", "l", "a", "a"]);
            let kind = if me.chance.once_in(6) { me.any_kind() } else { Kind::Number };
            let value = if field == "g" { json!("y") } else { me.constant(kind) };
            let id = *me.chance.pick(&[17, 17, 17, 19, 20, 21, 22, 18]);
            let field = term(170, [term(10, [json!(name)]), json!(field)]);
            if me.chance.once_in(4) { term(id, [value, field]) } else { term(id, [field, value]) }
        };
        let body = match self.chance.below(4) {
            0 | 1 => compare(self),
            2 => term(67, [compare(self), compare(self)]),
            _ => {
                let rest = self.func(&[Kind::Row], Kind::Bool, 2);
                term(67, [compare(self), term(64, [rest, term(10, [json!(name)])])])
            }
        };
        term(69, [term(2, [json!(name)]), body])
    }

    /// A step over items of this kind, and the kind of the items after it.
    pub(super) fn step(&mut self, items: Json, kind: Kind, depth: usize) -> (Json, Kind) {
        let next = self.any_kind();
        match self.chance.below(17) {
            0..=2 => (self.filter(items, kind, depth), kind),
            3 | 4 => (term(38, [items, self.func(&[kind], next, depth)]), next),
            5 => (term(40, [items, self.func(&[kind], Kind::Array, depth)]), Kind::Number),
            6 if kind == Kind::Row => (term(33, [items, self.path(), json!("id")]), Kind::Row),
            7 if kind == Kind::Row => (term(34, [items, self.path()]), Kind::Row),
            8 if kind == Kind::Row => (term(35, [items, self.patch(depth)]), Kind::Row),
            9 if kind == Kind::Row => (term(31, [items, json!("a")]), Kind::Number),
            6 | 7 => (term(87, [items, self.func(&[kind], Kind::Bool, depth)]), Kind::Number),
            10 => (term(96, [items, json!("a"), json!("id")]), Kind::Row),
            11 => (self.cut(items), kind),
            12 => (term(42, [items]), kind),
            13 => {
                let by = if kind == Kind::Row {
                    self.field_name()
                } else {
                    self.func(&[kind], Kind::Number, depth)
                };
                (term(41, [items, by]), kind)
            }
            14 => {
                let other = self.rows(depth.min(1));
                (term_with(44, [items, other], json!({"interleave": self.chance.once_in(2)})), kind)
            }
            15 => (self.fold(items, kind, depth), Kind::Number),
            _ => {
                let other = term(2, [self.number(), self.number(), self.number()]);
                (term(38, [items, other, self.func(&[kind, Kind::Number], next, depth)]), next)
            }
        }
    }

    fn fold(&mut self, items: Json, kind: Kind, depth: usize) -> Json {
        let base = self.number();
        let sum = self.func(&[Kind::Number, kind], Kind::Number, depth);
        if self.chance.once_in(2) {
            return term(187, [items, base, sum]);
        }
        let (acc, row, new) = (901, 902, 903);
        let emit =
            term(69, [term(2, [json!(acc), json!(row), json!(new)]), term(2, [term(10, [json!(new)])])]);
        term_with(187, [items, base, sum], json!({"emit": emit}))
    }

    fn join(&mut self, depth: usize) -> Json {
        let left = self.rows(depth.min(1));
        match self.chance.below(4) {
            0 | 1 => {
                let index = *self.chance.pick(&["id", "a", "g"]);
                let by = if self.chance.once_in(3) {
                    self.func(&[Kind::Row], Kind::Number, 1)
                } else {
                    self.field_name()
                };
                let options = json!({"index": index, "ordered": self.chance.once_in(2)});
                let joined = term_with(50, [left, by, term(15, [json!("t")])], options);
                if self.chance.once_in(3) { term(72, [joined]) } else { joined }
            }
            n => {
                let right = self.rows(depth.min(1));
                let func = self.func(&[Kind::Row, Kind::Row], Kind::Bool, depth.min(2));
                term(48 + (n as u64 - 2), [left, right, func])
            }
        }
    }

    /// One value of all items.
    pub(super) fn terminal(&mut self, depth: usize) -> Json {
        let (items, kind) = match self.chance.below(3) {
            0 => (self.value(Kind::Array, depth), Kind::Number),
            _ => (self.sequence(depth.min(2)), Kind::Row),
        };
        self.end(items, kind, depth)
    }

    fn end(&mut self, items: Json, kind: Kind, depth: usize) -> Json {
        match self.chance.below(9) {
            0 | 1 => term(43, [items]),
            2 => term(43, [items, self.func(&[kind], Kind::Bool, depth)]),
            3 => term(43, [items, self.number()]),
            4 | 5 => {
                let id = 145 + self.chance.below(4) as u64;
                match (kind, self.chance.below(3)) {
                    (Kind::Row, 0) => term(id, [items, self.func(&[kind], Kind::Number, depth)]),
                    (Kind::Row, _) => term(id, [items, self.field_name()]),
                    _ => term(id, [items]),
                }
            }
            6 => {
                let (a, b) = (term(10, [json!(901)]), term(10, [json!(902)]));
                let body = match self.chance.below(3) {
                    0 => term(24, [a, b]),
                    1 => term(65, [term(21, [a.clone(), b.clone()]), a, b]),
                    _ => term(26, [a, b]),
                };
                let numbers = if kind == Kind::Row { term(31, [items, json!("a")]) } else { items };
                term(37, [numbers, term(69, [term(2, [json!(901), json!(902)]), body])])
            }
            7 => term(86, [items]),
            _ => term(43, [term(81, [items, json!(self.chance.below(5))])]),
        }
    }

    /// Groups, perhaps after steps, mostly with one value each.
    pub(super) fn grouped(&mut self, depth: usize) -> Json {
        let rows = self.rows(depth.min(2));
        let mut groups = match self.chance.below(6) {
            0 => term(144, [rows, self.func(&[Kind::Row], Kind::Number, depth.min(2))]),
            1 => term(144, [rows, self.field_name(), self.field_name()]),
            2 => term_with(144, [rows, json!("l")], json!({"multi": true})),
            3 => term_with(144, [term(15, [json!("t")])], json!({"index": self.index_name()})),
            _ => term(144, [rows, self.field_name()]),
        };
        for _ in 0..self.chance.below(2) {
            groups = match self.chance.below(5) {
                0 => term(33, [groups, json!("a"), json!("id")]),
                1 => term(170, [groups, json!("a")]),
                2 => term(38, [groups, self.func(&[Kind::Row], Kind::Number, depth.min(2))]),
                _ => self.filter(groups, Kind::Row, depth.min(2)),
            };
        }
        let mut ended = self.end(groups, Kind::Row, depth.min(2));
        if self.chance.once_in(5) {
            ended = term(24, [ended, self.number()]);
        }
        if self.chance.once_in(4) { term(150, [ended]) } else { ended }
    }
}
