//! Terms outside of the other families: random values, pages and scripts, information of the server.

use serde_json::{Value as Json, json};

use super::{Generator, Kind, term, term_with};

impl Generator {
    /// A query with a rare term.
    pub(super) fn rare(&mut self, depth: usize) -> Json {
        match self.chance.below(13) {
            0..=5 => self.geometry(depth),
            6 => self.by_chance(),
            7 => self.outside(),
            8 => self.said_of(depth),
            9 => self.ordered_union(),
            10 => self.conflict(depth),
            11 => self.administration(),
            _ => self.date(),
        }
    }

    /// Random terms; sometimes in an expression with a known value.
    fn by_chance(&mut self) -> Json {
        let drawn = match self.chance.below(7) {
            0 => term(103, []),
            1 => term(151, []),
            2 => term(151, [self.number()]),
            3 => term(151, [self.number(), self.number()]),
            4 => term_with(151, [self.number(), self.number()], json!({"float": true})),
            5 => term(169, []),
            _ => term(81, [self.table(), json!(self.chance.below(4) as i64 - 1)]),
        };
        match self.chance.below(5) {
            0 => term(52, [drawn]),
            1 => term(43, [drawn]),
            2 => term(25, [term(103, []), term(103, [])]),
            3 => term(17, [drawn, json!("no")]),
            _ => drawn,
        }
    }

    /// The result of a page or a script of the node in memory.
    fn outside(&mut self) -> Json {
        let asked = match self.chance.below(2) {
            0 => term(153, [json!(self.chance.pick(&["a/array", "a/missing", "a/dead", "page"]))]),
            _ => term(11, [json!(self.chance.pick(&["12", "undefined", "hang", "-0.5"]))]),
        };
        match self.chance.below(3) {
            0 => term(92, [asked, json!("none")]),
            1 => term(52, [asked]),
            _ => asked,
        }
    }

    /// `info`, and terms in forms that no driver writes.
    fn said_of(&mut self, depth: usize) -> Json {
        let kind = self.any_kind();
        match self.chance.below(6) {
            0 | 1 => term(79, [self.value(kind, depth)]),
            2 => {
                let rows = self.rows(1);
                term(170, [term(79, [rows]), json!("type")])
            }
            3 => term(1, [json!(self.chance.below(5))]),
            4 => json!([3, [], {"a": self.value(kind, depth), "b": self.number()}]),
            _ => {
                let bound = |me: &mut Generator| if me.chance.once_in(3) { Json::Null } else { me.key() };
                term(36, [self.table(), bound(self), bound(self)])
            }
        }
    }

    /// Sorted arrays and sorted rows, merged.
    fn ordered_union(&mut self) -> Json {
        let sorted = |me: &mut Generator| {
            let rows = match me.chance.once_in(2) {
                true => term(15, [json!("t")]),
                false => {
                    let rows: Vec<Json> = (0..me.chance.below(4)).map(|_| me.row_constant()).collect();
                    term(2, rows)
                }
            };
            let sorted = term(41, [rows, json!("id")]);
            if me.chance.once_in(12) { term(15, [json!("t")]) } else { sorted }
        };
        let parts: Vec<Json> = (0..2 + self.chance.below(2)).map(|_| sorted(self)).collect();
        let by = match self.chance.below(6) {
            0 => term(73, [json!("id")]),
            1 => term(74, [json!("id")]),
            2 => term(2, [json!("id"), json!("a")]),
            3 => term(69, [term(2, [json!(912)]), term(170, [term(10, [json!(912)]), json!("id")])]),
            _ => json!("id"),
        };
        term_with(44, parts, json!({"interleave": by}))
    }

    /// An insert with a function for conflicts.
    fn conflict(&mut self, depth: usize) -> Json {
        let rows: Vec<Json> = (0..1 + self.chance.below(3)).map(|_| self.written()).collect();
        let vars = [Kind::Number, Kind::Row, Kind::Row];
        let func = match self.chance.below(8) {
            0 => self.func(&[Kind::Row, Kind::Row], Kind::Row, depth.min(2)),
            1 => term(69, [term(2, [json!(913), json!(914), json!(915)]), Json::Null]),
            2 | 3 => {
                let body = term(35, [term(10, [json!(914)]), json!({"a": term(10, [json!(913)])})]);
                term(69, [term(2, [json!(913), json!(914), json!(915)]), body])
            }
            _ => self.func(&vars, Kind::Row, depth.min(2)),
        };
        let options =
            json!({"conflict": func, "return_changes": self.chance.pick(&[json!(false), json!("always")])});
        term_with(56, [term(15, [json!("w")]), term(2, rows)], options)
    }

    fn administration(&mut self) -> Json {
        let table = self.table();
        match self.chance.below(5) {
            0 => term(59, []),
            1 => term(62, if self.chance.once_in(2) { vec![] } else { vec![term(14, [json!("test")])] }),
            2 => term(138, [table]),
            3 => term(177, [table]),
            _ => term(77, [table]),
        }
    }

    /// ISO 8601 dates, and numbers that may be a time.
    fn date(&mut self) -> Json {
        if self.chance.once_in(3) {
            let numbers = [2004, 1 + self.chance.below(13), 1 + self.chance.below(31), 13, 59];
            let mut parts: Vec<Json> = numbers.iter().map(|n| json!(n)).collect();
            parts.extend([json!(*self.chance.pick(&[0.0, 30.5, 59.999])), json!("Z")]);
            if self.chance.once_in(10) {
                parts.remove(3);
            }
            return term(136, parts);
        }
        let date = *self.chance.pick(&[
            "2013",
            "2013-07",
            "2013-07-30",
            "20130730",
            "2013-200",
            "2013200",
            "2012-366",
            "2013-366",
            "2013-W05",
            "2013-13",
            "2013-7-30",
            "13",
            "",
        ]);
        let time = *self.chance.pick(&[
            "",
            "T20",
            "T20:56",
            "T20:56:05",
            "T205605",
            "T2056",
            "T20:56:05.25",
            "T",
            "T25:00",
        ]);
        let zone = *self.chance.pick(&["", "Z", "+01", "-0730", "+02:30", "-00:00", "+25:00", "+01:60", "*"]);
        let zone = if time.is_empty() { "" } else { zone };
        let made = match self.chance.once_in(2) {
            true => term(99, [json!(format!("{date}{time}{zone}"))]),
            false => {
                let zone_of = json!({"default_timezone": self.chance.pick(&["Z", "+03:00"])});
                term_with(99, [json!(format!("{date}{time}{zone}"))], zone_of)
            }
        };
        if self.chance.once_in(3) { term(100, [made]) } else { made }
    }
}
