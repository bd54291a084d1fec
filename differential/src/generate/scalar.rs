//! Terms with one value.

use serde_json::{Value as Json, json};

use super::{Generator, Kind, term, term_with};

impl Generator {
    /// A term of this kind with arguments of `depth` further levels.
    pub(super) fn scalar(&mut self, kind: Kind, depth: usize) -> Json {
        match kind {
            Kind::Number => self.some_number(depth),
            Kind::Text => self.some_text(depth),
            Kind::Bool => self.some_bool(depth),
            Kind::Array => self.some_array(depth),
            Kind::Object => self.some_object(depth),
            Kind::Row => self.some_row(depth),
            Kind::Time => self.some_time(depth),
            Kind::Binary => match self.chance.below(3) {
                0 => term_with(30, [self.value(Kind::Binary, depth), json!(0), json!(2)], json!({})),
                1 => term(51, [self.value(Kind::Text, depth), json!("binary")]),
                _ => term(155, [self.value(Kind::Text, depth)]),
            },
            Kind::Odd => self.constant(Kind::Odd),
        }
    }

    fn values(&mut self, kind: Kind, depth: usize) -> Vec<Json> {
        let count = 1 + self.chance.below(3);
        let mut values: Vec<Json> = (0..count).map(|_| self.value(kind, depth)).collect();
        if self.chance.once_in(25) {
            let rest = values.split_off(1);
            values.push(term(154, [term(2, rest)]));
        }
        values
    }

    fn some_number(&mut self, depth: usize) -> Json {
        match self.chance.below(17) {
            0..=3 => {
                let id = 24 + self.chance.below(4) as u64;
                let values = self.values(Kind::Number, depth);
                term(id, values)
            }
            4 => term(28, [self.value(Kind::Number, depth), self.value(Kind::Number, depth)]),
            5 => term(183 + self.chance.below(3) as u64, [self.value(Kind::Number, depth)]),
            6 => {
                let id = 191 + self.chance.below(3) as u64;
                let values = self.values(Kind::Number, depth);
                term(id, values)
            }
            7 => match self.chance.below(3) {
                0 => term(194, [self.value(Kind::Number, depth)]),
                n => term(194 + n as u64, [self.value(Kind::Number, depth), self.value(Kind::Number, depth)]),
            },
            8 => {
                let of = *self.chance.pick(&[Kind::Text, Kind::Object, Kind::Array, Kind::Binary, Kind::Row]);
                term(43, [self.value(of, depth)])
            }
            9..=12 => self.terminal(depth),
            13 => {
                let id = *self.chance.pick(&[102, 126, 128, 129, 130, 131, 132, 133, 134, 135]);
                term(id, [self.value(Kind::Time, depth)])
            }
            14 => term(51, [self.value(Kind::Text, depth), json!("number")]),
            15 => term(25, [self.value(Kind::Time, depth), self.value(Kind::Time, depth)]),
            _ => term(107 + self.chance.below(19) as u64, []),
        }
    }

    fn some_text(&mut self, depth: usize) -> Json {
        match self.chance.below(14) {
            0 | 1 => {
                let values = self.values(Kind::Text, depth);
                term(24, values)
            }
            2 => term(141 + self.chance.below(2) as u64, [self.value(Kind::Text, depth)]),
            3 | 4 => {
                let of = self.any_kind();
                term(
                    51,
                    [self.value(of, depth), json!(if self.chance.once_in(4) { "STRING" } else { "string" })],
                )
            }
            5 => {
                let of = self.any_kind();
                term(172, [self.value(of, depth)])
            }
            6 => {
                let of = self.any_kind();
                term(52, [self.value(of, depth)])
            }
            7 => self.slice_of(Kind::Text, depth),
            8 => term(100, [self.value(Kind::Time, depth)]),
            9 => term(127, [self.value(Kind::Time, depth)]),
            10 => term(169, [self.value(Kind::Text, depth)]),
            11 => {
                let template =
                    *self.chance.pick(&["{a}", "x{g}-{a}y", "{", "a}", "{a,b}", "{zz}", "", "{s}{s}"]);
                term(197, [json!(template), self.value(Kind::Row, depth)])
            }
            12 => {
                let row = self.value(Kind::Row, depth);
                self.field(row, Kind::Text)
            }
            _ => term(45, [self.split(depth), json!(self.chance.below(3))]),
        }
    }

    fn slice_of(&mut self, kind: Kind, depth: usize) -> Json {
        let value = self.value(kind, depth);
        let from = self.chance.below(6) as i64 - 2;
        let to = self.chance.below(8) as i64 - 3;
        match self.chance.below(3) {
            0 => term(30, [value, json!(from)]),
            1 => {
                let side = |open: bool| if open { "open" } else { "closed" };
                let (left, right) = (self.chance.once_in(2), self.chance.once_in(2));
                let options = json!({"left_bound": side(left), "right_bound": side(right)});
                term_with(30, [value, json!(from), json!(to)], options)
            }
            _ => term(30, [value, json!(from), json!(to)]),
        }
    }

    fn split(&mut self, depth: usize) -> Json {
        let text = self.value(Kind::Text, depth);
        let separator =
            self.chance.pick(&[json!(null), json!(","), json!(""), json!("b"), json!(" ")]).clone();
        match self.chance.below(3) {
            0 => term(149, [text]),
            1 => term(149, [text, separator]),
            _ => term(149, [text, separator, json!(self.chance.below(4) as i64 - 1)]),
        }
    }

    fn some_bool(&mut self, depth: usize) -> Json {
        match self.chance.below(12) {
            0..=3 => {
                let kind = if self.chance.once_in(3) { self.any_kind() } else { Kind::Number };
                let id = 17 + self.chance.below(6) as u64;
                let (a, b) = (self.value(kind, depth), self.value(kind, depth));
                if self.chance.once_in(6) {
                    term(id, [a, b, self.value(kind, depth)])
                } else {
                    term(id, [a, b])
                }
            }
            4 => {
                let values = self.values(Kind::Bool, depth);
                term(66 + self.chance.below(2) as u64, values)
            }
            5 => {
                let of = if self.chance.once_in(2) { self.any_kind() } else { Kind::Bool };
                term(23, [self.value(of, depth)])
            }
            6 => {
                let array = self.value(Kind::Array, depth);
                let wanted = match self.chance.once_in(2) {
                    true => self.value(Kind::Number, depth),
                    false => self.func(&[Kind::Number], Kind::Bool, depth.min(2)),
                };
                term(93, [array, wanted])
            }
            7 => term(86, [self.value(Kind::Array, depth)]),
            8 => {
                let spec = self.path();
                term(32, [self.value(Kind::Row, depth), spec])
            }
            9 => {
                let times = [(); 3].map(|()| self.value(Kind::Time, depth));
                let side = *self.chance.pick(&["open", "closed"]);
                term_with(105, times, json!({"right_bound": side}))
            }
            10 => {
                let pattern = *self.chance.pick(&["a", "^x", "b|c", "(a)(q)?", "[0-9]+", ""]);
                term(18, [term(97, [self.value(Kind::Text, depth), json!(pattern)]), json!(null)])
            }
            _ => {
                let of = self.any_kind();
                term(51, [self.value(of, depth), json!("bool")])
            }
        }
    }

    /// An argument of `pluck` and similar terms.
    pub(super) fn path(&mut self) -> Json {
        match self.chance.below(6) {
            0 => json!({"o": true}),
            1 => json!({"o": {"p": true}}),
            2 => term(2, [self.field_name(), self.field_name()]),
            3 => json!({"o": term(2, [json!("p"), json!("q")]), "a": true}),
            _ => self.field_name(),
        }
    }

    fn some_array(&mut self, depth: usize) -> Json {
        let array = |me: &mut Generator| me.value(Kind::Array, depth);
        match self.chance.below(20) {
            0 => {
                let item = self.value(Kind::Number, depth);
                term(*self.chance.pick(&[29, 80, 88]), [array(self), item])
            }
            1 => term(*self.chance.pick(&[89, 90, 91, 95]), [array(self), array(self)]),
            2 => {
                let at = json!(self.chance.below(7) as i64 - 3);
                match self.chance.below(5) {
                    0 => term(82, [array(self), at, self.value(Kind::Number, depth)]),
                    1 => term(83, [array(self), at]),
                    2 => term(83, [array(self), at, json!(self.chance.below(5) as i64 - 2)]),
                    3 => term(84, [array(self), at, self.value(Kind::Text, depth)]),
                    _ => term(85, [array(self), at, array(self)]),
                }
            }
            3 => term(*self.chance.pick(&[94, 186]), [self.value(Kind::Object, depth)]),
            4 => self.slice_of(Kind::Array, depth),
            5 => self.split(depth),
            6 => {
                let items: Vec<Json> =
                    (0..self.chance.below(4)).map(|_| self.value(Kind::Number, depth)).collect();
                term(2, items)
            }
            7 => {
                let ordered = self.ordered_rows(depth);
                term(51, [ordered, json!("array")])
            }
            8 => term(51, [self.value(Kind::Object, depth), json!("array")]),
            9 => term(26, [array(self), json!(self.chance.below(3))]),
            10 => term(150, [self.grouped(depth)]),
            11 | 12 => {
                let rows: Vec<Json> = (0..self.chance.below(4)).map(|_| self.row_constant()).collect();
                self.step(term(2, rows), Kind::Row, depth).0
            }
            13 => term(24, [array(self), array(self)]),
            _ => {
                let numbers: Vec<Json> = (0..4).map(|_| self.number()).collect();
                self.step(term(2, numbers), Kind::Number, depth).0
            }
        }
    }

    fn some_object(&mut self, depth: usize) -> Json {
        match self.chance.below(8) {
            0 | 1 => {
                let (a, b) = (self.value(Kind::Object, depth), self.patch(depth));
                term(35, [a, b])
            }
            2 => term(33 + self.chance.below(2) as u64, [self.value(Kind::Row, depth), self.path()]),
            3 => {
                let value = self.value(Kind::Number, depth);
                term(143, [json!("p"), value, self.text(), self.value(Kind::Number, depth)])
            }
            4 => {
                let row = self.value(Kind::Row, depth);
                self.field(row, Kind::Object)
            }
            5 => {
                let text = r#"{"a": [1, {"b": null}], "é": 0.5}"#;
                term(98, [json!(if self.chance.once_in(5) { "{\"a\":" } else { text })])
            }
            6 => {
                let pair =
                    |me: &mut Generator, name: &str| term(2, [json!(name), me.value(Kind::Number, depth)]);
                let pairs = [pair(self, "p"), pair(self, "q")];
                term(51, [term(2, pairs), json!("object")])
            }
            _ => json!({"a": self.value(Kind::Number, depth), "p": self.value(Kind::Text, depth)}),
        }
    }

    /// An argument of `merge`.
    pub(super) fn patch(&mut self, depth: usize) -> Json {
        match self.chance.below(5) {
            0 => json!({"a": term(137, [self.value(Kind::Number, depth.min(1))]), "q": term(137, [])}),
            1 => json!({"o": term(137, [json!({"z": 1})])}),
            2 => self.func(&[Kind::Row], Kind::Object, depth.min(2)),
            3 => json!({"o": {"p": self.value(Kind::Number, depth), "w": self.value(Kind::Bool, depth)}}),
            _ => self.value(Kind::Object, depth),
        }
    }

    fn some_row(&mut self, depth: usize) -> Json {
        match self.chance.below(7) {
            0 | 1 => term(16, [self.table(), self.key()]),
            2 => {
                let id = 147 + self.chance.below(2) as u64;
                match self.chance.below(3) {
                    0 => term(id, [self.table()]),
                    1 => term_with(id, [term(15, [json!("t")])], json!({"index": self.index_name()})),
                    _ => term(id, [self.rows(depth), self.field_name()]),
                }
            }
            3 => term(45, [self.ordered_rows(depth), json!(self.chance.below(4) as i64 - 1)]),
            4 => term(35, [self.value(Kind::Row, depth), self.patch(depth)]),
            _ => self.row_constant(),
        }
    }

    fn some_time(&mut self, depth: usize) -> Json {
        match self.chance.below(7) {
            0 => term(101, [self.value(Kind::Number, depth)]),
            1 => {
                let texts = [
                    "2013-07-30T20:56:05-07:00",
                    "2000-02-29",
                    "2001-02-29T00:00:00Z",
                    "1999-12-31T23:59:59.999Z",
                    "x",
                ];
                let text = json!(self.chance.pick(&texts));
                match self.chance.once_in(2) {
                    true => term_with(99, [text], json!({"default_timezone": "+01:00"})),
                    false => term(99, [text]),
                }
            }
            2 => {
                let (month, day) = (1 + self.chance.below(13), 1 + self.chance.below(31));
                term(136, [json!(2004), json!(month), json!(day), json!("+03:30")])
            }
            3 => term(24, [self.value(Kind::Time, depth), self.value(Kind::Number, depth)]),
            4 => term(
                104,
                [
                    self.value(Kind::Time, depth),
                    json!(self.chance.pick(&["Z", "-05:00", "+0530", "nowhere"])),
                ],
            ),
            5 => term(106, [self.value(Kind::Time, depth)]),
            _ => term(25, [self.value(Kind::Time, depth), self.value(Kind::Number, depth)]),
        }
    }
}
