//! Terms that the other families do not reach: shapes, chance, the world outside, what a server says of
//! itself.

use serde_json::{Value as Json, json};

use super::{Generator, Kind, term, term_with};

/// The table of shapes.
pub const SHAPES: &str = "m";

impl Generator {
    /// A query about something rare.
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

    /// Places have odd coordinates, corners of areas even ones: hardly anything is near an edge.
    fn place(&mut self) -> (i64, i64) {
        let one = |me: &mut Generator| 2 * me.chance.below(5) as i64 + 1;
        if self.chance.once_in(40) { (200, -100) } else { (one(self), one(self)) }
    }

    fn corners(&mut self) -> Vec<(i64, i64)> {
        let even = |me: &mut Generator, from: i64| from + 2 * me.chance.below(3) as i64;
        let (left, bottom) = (even(self, 0), even(self, 0));
        let (right, top) = (even(self, left + 2), even(self, bottom + 2));
        let mut corners = match self.chance.below(3) {
            0 => vec![(left, bottom), (right, bottom), (right, top), (left, top)],
            1 => vec![(left, top), (right, top), (right, bottom), (left, bottom)],
            _ => vec![(left, bottom), (right, bottom), (left, top)],
        };
        if self.chance.once_in(15) {
            corners.swap(1, 2);
        }
        if self.chance.once_in(30) {
            corners[1] = corners[0];
        }
        corners
    }

    /// A point, or the pair of numbers that may stand for it.
    fn corner(&mut self, (x, y): (i64, i64)) -> Json {
        if self.chance.once_in(3) { term(159, [json!(x), json!(y)]) } else { term(2, [json!(x), json!(y)]) }
    }

    fn line(&mut self, closed: bool) -> Json {
        let places = match closed {
            true => self.corners(),
            false => (0..2 + self.chance.below(2)).map(|_| self.place()).collect(),
        };
        let corners: Vec<Json> = places.into_iter().map(|place| self.corner(place)).collect();
        term(160, corners)
    }

    fn area(&mut self) -> Json {
        let corners = self.corners();
        let corners: Vec<Json> = corners.into_iter().map(|place| self.corner(place)).collect();
        term(161, corners)
    }

    fn point(&mut self) -> Json {
        let (x, y) = self.place();
        term(159, [json!(x), json!(y)])
    }

    /// What has a shape, mostly.
    pub(super) fn shape(&mut self) -> Json {
        match self.chance.below(24) {
            0..=6 => self.point(),
            7..=9 => self.line(false),
            10..=14 => self.area(),
            15 | 16 => term(167, [self.line(true)]),
            17 => term(171, [self.area(), self.area()]),
            18 => {
                let at = |x: i64, y: i64| term(2, [json!(x), json!(y)]);
                let (outer, hole) =
                    ([at(0, 0), at(10, 0), at(10, 10), at(0, 10)], [at(2, 2), at(4, 2), at(4, 4)]);
                term(171, [term(161, outer), term(161, hole)])
            }
            19 | 20 => self.circle(),
            21 => self.geojson(),
            22 => {
                let name = json!(self.chance.below(9));
                term(170, [term(16, [term(15, [json!(SHAPES)]), name]), json!("p")])
            }
            _ => {
                let kind = *self.chance.pick(&[Kind::Number, Kind::Odd, Kind::Text, Kind::Time]);
                self.constant(kind)
            }
        }
    }

    fn circle(&mut self) -> Json {
        let radius = *self.chance.pick(&[10_000, 10_000, 55_000, -1, 20_000_000]);
        let center = self.place();
        let center = self.corner(center);
        match self.chance.below(4) {
            0 => term(165, [center, json!(radius)]),
            1 => term_with(165, [center, json!(radius)], json!({"num_vertices": 5, "fill": false})),
            2 => term_with(165, [center, json!(radius / 1000)], json!({"unit": "km", "num_vertices": 8})),
            _ => term_with(165, [center, json!(0.01)], json!({"geo_system": "unit_sphere"})),
        }
    }

    fn geojson(&mut self) -> Json {
        let (x, y) = self.place();
        let at = |x: i64, y: i64| term(2, [json!(x), json!(y)]);
        let object = match self.chance.below(5) {
            0 => {
                json!({"type": "LineString", "coordinates": term(2, [at(x, y), at(x + 2, y), at(x, y + 2)])})
            }
            1 => {
                let ring = term(2, [at(0, 0), at(8, 0), at(8, 6), at(0, 0)]);
                json!({"type": "Polygon", "coordinates": term(2, [ring])})
            }
            2 => json!({"type": self.chance.pick(&["point", "Pt"]), "coordinates": at(x, y)}),
            _ => json!({"type": "Point", "coordinates": at(x, y)}),
        };
        term(157, [object])
    }

    fn geometry(&mut self, depth: usize) -> Json {
        match self.chance.below(16) {
            0..=2 => {
                let id = 163 + self.chance.below(2) as u64;
                term(id, [self.shape(), self.shape()])
            }
            3 | 4 => {
                let id = 163 + self.chance.below(2) as u64;
                let shapes: Vec<Json> = (0..self.chance.below(4)).map(|_| self.shape()).collect();
                term(id, [term(2, shapes), self.shape()])
            }
            5 => {
                let (a, b) = (self.point(), self.shape());
                let ends = if self.chance.once_in(2) { [a, b] } else { [b, a] };
                match self.chance.below(4) {
                    0 => term_with(
                        162,
                        ends,
                        json!({"unit": self.chance.pick(&["km", "mi", "nm", "ft", "em"])}),
                    ),
                    1 => term_with(162, ends, json!({"geo_system": "unit_sphere"})),
                    _ => term(162, ends),
                }
            }
            6 => term(158, [self.shape()]),
            7 => {
                let shapes: Vec<Json> = (0..4).map(|_| self.shape()).collect();
                term(*self.chance.pick(&[42, 147, 148]), [term(2, shapes)])
            }
            8 => {
                let id = *self.chance.pick(&[52, 43, 172, 94, 31, 17]);
                match id {
                    31 => term(31, [self.shape(), json!("coordinates")]),
                    17 => term(17, [self.shape(), self.shape()]),
                    id => term(id, [self.shape()]),
                }
            }
            9..=11 => {
                let index = *self.chance.pick(&["p", "p", "p", "p", "id", "a", "nothing"]);
                let rows = term_with(166, [term(15, [json!(SHAPES)]), self.shape()], json!({"index": index}));
                self.step(rows, Kind::Object, depth.min(1)).0
            }
            12 | 13 => {
                let center = self.point();
                let options = match self.chance.below(4) {
                    0 => json!({"index": "p"}),
                    1 => json!({"index": "p", "max_dist": 400, "unit": "km"}),
                    2 => json!({"index": "p", "max_dist": 900_000, "max_results": 1 + self.chance.below(3)}),
                    _ => json!({"index": self.chance.pick(&["p", "a", "id"]), "max_dist": -1}),
                };
                term_with(168, [term(15, [json!(SHAPES)]), center], options)
            }
            14 => {
                let func = term(
                    69,
                    [
                        term(2, [json!(911)]),
                        term(163, [term(170, [term(10, [json!(911)]), json!("p")]), self.shape()]),
                    ],
                );
                term(39, [term(15, [json!(SHAPES)]), func])
            }
            _ => self.shape(),
        }
    }

    /// Terms whose values nobody knows before; sometimes what is asked of them is known.
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

    /// What a page or a script answers; both are small ones of the node in memory.
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

    /// `info`, and terms as nobody writes them by hand.
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

    /// An insert that asks a function what to do with rows that are there.
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

    /// Dates as ISO 8601 has them, and numbers that may be a time.
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
