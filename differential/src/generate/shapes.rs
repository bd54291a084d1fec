//! Shapes, and queries about them.

use serde_json::{Value as Json, json};

use super::{Generator, Kind, term, term_with};
use crate::value::number_json;

/// The table of shapes.
pub const SHAPES: &str = "m";

/// Longitude and latitude in degrees.
type LonLat = (f64, f64);

impl Generator {
    /// Places mostly have odd coordinates and corners of polygons even ones, so that few shapes touch; others are anywhere.
    fn place(&mut self) -> LonLat {
        let one = |me: &mut Generator| (2 * me.chance.below(5) + 1) as f64;
        let any = |me: &mut Generator, span: usize| {
            (me.chance.below(2 * span * 1000) as f64) / 1000.0 - span as f64
        };
        match self.chance.below(40) {
            0 => (200.0, -100.0),
            1..=10 => (any(self, 12), any(self, 12)),
            11 => (any(self, 179), any(self, 89)),
            _ => (one(self), one(self)),
        }
    }

    fn corners(&mut self) -> Vec<LonLat> {
        let even = |me: &mut Generator, from: f64| from + 2.0 * me.chance.below(3) as f64;
        let (left, bottom) = (even(self, 0.0), even(self, 0.0));
        let (right, top) = (even(self, left + 2.0), even(self, bottom + 2.0));
        let mut corners = match self.chance.below(3) {
            0 => vec![(left, bottom), (right, bottom), (right, top), (left, top)],
            1 => vec![(left, top), (right, top), (right, bottom), (left, bottom)],
            _ => vec![(left, bottom), (right, bottom), (left, top)],
        };
        if self.chance.once_in(4) {
            for corner in &mut corners {
                let aside = |me: &mut Generator| me.chance.below(1600) as f64 / 1000.0 - 0.8;
                *corner = (corner.0 + aside(self), corner.1 + aside(self));
            }
        }
        if self.chance.once_in(15) {
            corners.swap(1, 2);
        }
        if self.chance.once_in(30) {
            corners[1] = corners[0];
        }
        corners
    }

    /// A point, or the pair of numbers that may stand for it.
    fn corner(&mut self, (x, y): LonLat) -> Json {
        term(if self.chance.once_in(3) { 159 } else { 2 }, [number_json(x), number_json(y)])
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
        term(159, [number_json(x), number_json(y)])
    }

    /// A value that mostly is a shape.
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
        let at = |x: f64, y: f64| term(2, [number_json(x), number_json(y)]);
        let object = match self.chance.below(5) {
            0 => {
                json!({"type": "LineString", "coordinates": term(2, [at(x, y), at(x + 2.0, y), at(x, y + 2.0)])})
            }
            1 => {
                let ring = term(2, [(0.0, 0.0), (8.0, 0.0), (8.0, 6.0), (0.0, 0.0)].map(|(x, y)| at(x, y)));
                json!({"type": "Polygon", "coordinates": term(2, [ring])})
            }
            2 => json!({"type": self.chance.pick(&["point", "Pt"]), "coordinates": at(x, y)}),
            _ => json!({"type": "Point", "coordinates": at(x, y)}),
        };
        term(157, [object])
    }

    /// The distance between a place and a shape.
    fn measured(&mut self) -> Json {
        let (a, b) = (self.point(), self.shape());
        let ends = if self.chance.once_in(2) { [a, b] } else { [b, a] };
        let options = match self.chance.below(6) {
            0 | 1 => json!({"unit": self.chance.pick(&["km", "mi", "nm", "ft", "m", "em"])}),
            2 => json!({"geo_system": self.chance.pick(&["unit_sphere", "WGS84", "flat"])}),
            3 => {
                let (axis, flattening) = *self.chance.pick(&[
                    (6_400_000.0, 0.0),
                    (3.5, 0.004),
                    (6_378_137.0, 0.0033),
                    (-1.0, 0.0),
                    (1.0, 1.0),
                ]);
                json!({"geo_system": {"a": number_json(axis), "f": number_json(flattening)}})
            }
            _ => return term(162, ends),
        };
        term_with(162, ends, options)
    }

    /// A query about shapes.
    pub(super) fn geometry(&mut self, depth: usize) -> Json {
        match self.chance.below(19) {
            0..=2 => {
                let id = 163 + self.chance.below(2) as u64;
                term(id, [self.shape(), self.shape()])
            }
            3 | 4 => {
                let id = 163 + self.chance.below(2) as u64;
                let shapes: Vec<Json> = (0..self.chance.below(4)).map(|_| self.shape()).collect();
                term(id, [term(2, shapes), self.shape()])
            }
            5 | 16..=18 => self.measured(),
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
}
