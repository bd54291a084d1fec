//! Shapes: results of S2 for thousands of pairs, complete coverings, searches for the nearest.
//!
//! `SHAPES_RECORDED=file` compares with another recording.

use std::collections::{BTreeMap, BTreeSet};
use std::str::SplitWhitespace;

use datum::{Datum, json};
use rekindle_reql::Cancel;
use rekindle_reql::geo::cover::{index_cells, search_ranges};
use rekindle_reql::geo::nearest::{Bounds, Search};
use rekindle_reql::geo::{Ellipsoid, Geodesic, LonLat, Shape, distance};

const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/shapes/recorded.txt");

fn shape_of(geojson: &str) -> Option<Shape> {
    match json::parse(geojson.as_bytes()) {
        Ok(Datum::Object(object)) => Shape::of_object(&object, &NEVER).ok(),
        other => panic!("{geojson}: {other:?}"),
    }
}

/// These operations are never cancelled.
static NEVER: Cancel = Cancel::new();

fn meets(a: &Shape, b: &Shape) -> bool {
    a.intersects(b, &NEVER).expect("not stopped")
}

fn cells(shape: &Shape) -> Vec<u64> {
    index_cells(shape, &NEVER).expect("not stopped")
}

fn word<'a>(words: &mut SplitWhitespace<'a>) -> &'a str {
    words.next().expect("another word")
}

fn positions(words: &mut SplitWhitespace<'_>, count: usize) -> String {
    let positions: Vec<String> = (0..count).map(|_| format!("[{},{}]", word(words), word(words))).collect();
    positions.join(",")
}

fn count(words: &mut SplitWhitespace<'_>) -> usize {
    word(words).parse().expect("a count")
}

/// Reads the next shape, if it is valid.
fn read_shape(words: &mut SplitWhitespace<'_>) -> Option<Shape> {
    match word(words) {
        "P" => shape_of(&format!(r#"{{"type":"Point","coordinates":{}}}"#, positions(words, 1))),
        "L" => {
            let points = count(words);
            let points = positions(words, points);
            shape_of(&format!(r#"{{"type":"LineString","coordinates":[{points}]}}"#))
        }
        _ => {
            let rings: Vec<String> = (0..count(words))
                .map(|_| {
                    let points = count(words);
                    format!("[{}]", positions(words, points))
                })
                .collect();
            shape_of(&format!(r#"{{"type":"Polygon","coordinates":[{}]}}"#, rings.join(",")))
        }
    }
}

/// Calls `check` with the shapes of each recorded pair.
fn recorded(mut check: impl FnMut(&str, &str)) {
    let path = std::env::var("SHAPES_RECORDED").unwrap_or_else(|_| RECORDED.to_owned());
    let text = std::fs::read_to_string(path).expect("the recording");
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (asked, answer) = line.split_once('|').expect("an answer");
        check(asked, answer);
    }
}

fn relations(words: &mut SplitWhitespace<'_>, answer: &str) -> String {
    let (first, second) = (read_shape(words), read_shape(words));
    let (Some(a), Some(b)) = (&first, &second) else {
        return format!("{} {}", u8::from(first.is_some()), u8::from(second.is_some()));
    };
    let mut found = format!("1 1 {}", u8::from(meets(a, b)));
    match a {
        Shape::Point(point) => {
            let metres = distance(point, b, &Ellipsoid::WGS84).unwrap_or(-1.0);
            found += &format!(" {}", like_recorded(metres, answer.split(' ').nth(3)));
        }
        Shape::Polygon(area) => {
            found += &format!(" {}", u8::from(b.is_in(area, &NEVER).expect("not stopped")))
        }
        Shape::Line(_) => {}
    }
    found
}

fn ways(words: &mut SplitWhitespace<'_>, answer: &str) -> String {
    let mut number = || word(words).parse::<f64>().expect("a number");
    let ellipsoid = Ellipsoid { equator_m: number(), flattening: number() };
    let from = LonLat { lon: number(), lat: number() };
    let to = LonLat { lon: number(), lat: number() };
    let geodesic = Geodesic::new(&ellipsoid);
    let length = to.lat.abs() * 1e5 * ellipsoid.equator_m / 6_378_137.0;
    let end = geodesic.end(from, to.lon, length);
    let numbers = [geodesic.distance_m(from, to), end.lon, end.lat];
    let recorded = answer.split(' ').map(Some).chain(std::iter::repeat(None));
    let shown = numbers.into_iter().zip(recorded).map(|(number, as_in)| like_recorded(number, as_in));
    shown.collect::<Vec<_>>().join(" ")
}

/// A number in its recorded spelling, if it is the same to the last bit.
fn like_recorded(number: f64, recorded: Option<&str>) -> String {
    match recorded {
        Some(text) if text.parse() == Ok(number) => text.to_owned(),
        _ => number.to_string(),
    }
}

#[test]
fn relations_and_lengths_are_those_of_rethinkdb_to_the_last_bit() {
    let (mut cases, mut differences) = (0, Vec::new());
    recorded(|asked, answer| {
        let mut words = asked.split_whitespace();
        let found =
            if word(&mut words) == "D" { ways(&mut words, answer) } else { relations(&mut words, answer) };
        cases += 1;
        if found != answer {
            differences.push(format!("{asked}\n  recorded {answer}\n  found    {found}"));
        }
    });
    let shown = differences.iter().take(10).cloned().collect::<Vec<_>>().join("\n");
    assert!(differences.is_empty() && cases > 500, "{} of {cases}:\n{shown}", differences.len());
}

fn is_found(kept: &Shape, sought: &Shape) -> bool {
    let ranges = search_ranges(sought, &NEVER).expect("not stopped");
    cells(kept).iter().any(|cell| ranges.iter().any(|(first, last)| first <= cell && cell <= last))
}

#[test]
fn shapes_that_meet_are_found_by_their_cells_and_there_are_few() {
    let mut meeting = 0;
    recorded(|asked, _| {
        let mut words = asked.split_whitespace();
        if word(&mut words) == "D" {
            return;
        }
        let (Some(a), Some(b)) = (read_shape(&mut words), read_shape(&mut words)) else { return };
        for shape in [&a, &b] {
            assert!(cells(shape).len() <= 12, "{} {asked}", cells(shape).len());
            assert!(
                search_ranges(shape, &NEVER).expect(asked).windows(2).all(|pair| pair[0].1 < pair[1].0),
                "{asked}"
            );
        }
        if meets(&a, &b) {
            meeting += 1;
            assert!(is_found(&a, &b) && is_found(&b, &a), "{asked}");
        }
    });
    assert!(meeting > 50, "{meeting}");
}

/// Random numbers from 0 to 1, determined by a seed.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn place(&mut self, around: LonLat, degrees: f64) -> LonLat {
        let turned = |from: f64, most: f64, number: f64| (from + (number - 0.5) * degrees).clamp(-most, most);
        LonLat { lon: turned(around.lon, 180.0, self.next()), lat: turned(around.lat, 90.0, self.next()) }
    }
}

/// Asserts that the point is on the shape, and that an index finds each by the other.
fn check_on(position: &str, shape: &Shape, what: &str) {
    let point = shape_of(&format!(r#"{{"type":"Point","coordinates":{position}}}"#)).expect("a point");
    assert!(meets(&point, shape) && meets(shape, &point), "{position} {what}");
    if let Shape::Polygon(area) = shape {
        assert!(point.is_in(area, &NEVER).expect("not stopped"), "{position} {what}");
    }
    assert!(is_found(&point, shape) && is_found(shape, &point), "{position} {what}");
}

#[test]
fn vertices_of_lines_and_areas_are_on_them() {
    let mut numbers = Numbers(290_424);
    let mut areas = 0;
    for around in [(0.0, 0.0), (-179.95, 10.0), (30.0, 88.0), (-122.4, 37.7), (13.4, -52.5)] {
        for degrees in [1e-6, 0.01, 1.0, 20.0] {
            for round in 0..100 {
                let around = LonLat { lon: around.0, lat: around.1 };
                let places = (0..3 + round % 4).map(|_| numbers.place(around, degrees));
                let mut places: Vec<String> = places.map(|at| format!("[{},{}]", at.lon, at.lat)).collect();
                let line = format!(r#"{{"type":"LineString","coordinates":[{}]}}"#, places.join(","));
                places.push(places[0].clone());
                let area = format!(r#"{{"type":"Polygon","coordinates":[[{}]]}}"#, places.join(","));
                for text in [line, area] {
                    // A ring through random places may cross itself.
                    let Some(shape) = shape_of(&text) else { continue };
                    areas += usize::from(matches!(shape, Shape::Polygon(_)));
                    places[1..].iter().for_each(|position| check_on(position, &shape, &text));
                }
            }
        }
    }
    assert!(areas > 500, "{areas}");
}

#[test]
fn a_point_on_an_edge_is_on_the_shape() {
    for (shape, position) in [
        (r#"{"type":"Polygon","coordinates":[[[0,0],[10,0],[5,5],[0,0]]]}"#, "[3,0]"),
        (r#"{"type":"Polygon","coordinates":[[[0,0],[10,0],[5,-5],[0,0]]]}"#, "[3,0]"),
        (r#"{"type":"Polygon","coordinates":[[[0,-5],[0,5],[5,0],[0,-5]]]}"#, "[0,1.25]"),
        (r#"{"type":"Polygon","coordinates":[[[0,-5],[0,5],[-5,0],[0,-5]]]}"#, "[0,1.25]"),
        (r#"{"type":"LineString","coordinates":[[-20,0],[10,0]]}"#, "[-1.5,0]"),
    ] {
        check_on(position, &shape_of(shape).expect("a shape"), shape);
    }
    let beside = r#"{"type":"Polygon","coordinates":[[[0,0],[10,0],[5,5],[0,0]]]}"#;
    for position in ["[11,0]", "[-1,0]", "[170,0]", "[-175,0]", "[3,-1e-9]"] {
        let point = shape_of(&format!(r#"{{"type":"Point","coordinates":{position}}}"#)).expect("a point");
        assert!(!meets(&point, &shape_of(beside).expect("a shape")), "{position}");
    }
}

/// Shapes by the cells of an index.
#[derive(Default)]
struct Kept {
    shapes: Vec<Shape>,
    cells: BTreeMap<u64, BTreeSet<usize>>,
}

impl Kept {
    fn add(&mut self, geojson: &str) {
        let Some(shape) = shape_of(geojson) else { return };
        for cell in cells(&shape) {
            self.cells.entry(cell).or_default().insert(self.shapes.len());
        }
        self.shapes.push(shape);
    }

    /// Points, and occasionally a line or a triangle, around a position.
    fn scattered(numbers: &mut Numbers, around: LonLat, degrees: f64, count: usize) -> Kept {
        let mut kept = Kept::default();
        for i in 0..count {
            let at = numbers.place(around, degrees);
            let near = [numbers.place(at, degrees / 20.0), numbers.place(at, degrees / 20.0)];
            let [a, b, c] = [at, near[0], near[1]].map(|place| format!("[{},{}]", place.lon, place.lat));
            kept.add(&match i % 10 {
                0 => format!(r#"{{"type":"LineString","coordinates":[{a},{b},{c}]}}"#),
                1 => format!(r#"{{"type":"Polygon","coordinates":[[{a},{b},{c},{a}]]}}"#),
                _ => format!(r#"{{"type":"Point","coordinates":{a}}}"#),
            });
        }
        kept
    }

    /// The distances of the nearest shapes, found by rings, and the number of shapes examined.
    fn nearest(&self, bounds: Bounds) -> (Vec<(f64, usize)>, usize) {
        let mut search = Search::new(bounds);
        let mut looked_at = 0;
        loop {
            for (first, last) in search.ranges().expect("a ring") {
                for shape in self.cells.range(first..=last).flat_map(|(_, shapes)| shapes) {
                    if search.is_new(shape) {
                        looked_at += 1;
                        search.offer(*shape, &self.shapes[*shape], *shape).expect("a distance");
                    }
                }
            }
            if !search.next_ring() {
                let found = search.finish().into_iter();
                return (found.map(|found| (found.dist_m, found.value)).collect(), looked_at);
            }
        }
    }

    /// The same distances, found by examining all shapes.
    fn nearest_of_all(&self, bounds: &Bounds) -> Vec<f64> {
        let center = bounds.center.to_point();
        let all = self.shapes.iter().map(|shape| distance(&center, shape, &bounds.ellipsoid));
        let mut all: Vec<f64> = all.map(|dist| dist.expect("a distance")).collect();
        all.retain(|dist| *dist <= bounds.max_dist_m);
        all.sort_by(f64::total_cmp);
        all.truncate(bounds.max_results);
        all
    }
}

#[test]
fn the_nearest_by_rings_are_the_nearest_of_all() {
    let mut numbers = Numbers(4_711);
    let mut found = 0;
    for around in [(0.0, 0.0), (179.9, 10.0), (30.0, 89.5), (-70.0, -45.0)] {
        let around = LonLat { lon: around.0, lat: around.1 };
        for degrees in [0.001, 0.1, 5.0, 60.0] {
            let kept = Kept::scattered(&mut numbers, around, degrees, 400);
            for (max_dist_m, max_results) in [(100_000.0, 100), (5_000_000.0, 7), (1e6, 1000), (3.0, 5)] {
                let center = numbers.place(around, degrees);
                let bounds = Bounds { center, max_dist_m, max_results, ellipsoid: Ellipsoid::WGS84 };
                let (nearest, _) = kept.nearest(bounds);
                let distances: Vec<f64> = nearest.iter().map(|(dist, _)| *dist).collect();
                assert_eq!(distances, kept.nearest_of_all(&bounds), "{bounds:?} {degrees}");
                let different: BTreeSet<usize> = nearest.iter().map(|(_, shape)| *shape).collect();
                assert_eq!(different.len(), nearest.len());
                found += nearest.len();
            }
        }
    }
    assert!(found > 2_000, "{found}");
}

#[test]
fn a_search_for_few_does_not_look_at_everything() {
    let mut numbers = Numbers(12);
    let center = LonLat { lon: 10.0, lat: 50.0 };
    let kept = Kept::scattered(&mut numbers, center, 2.0, 20_000);
    let bounds = Bounds { center, max_dist_m: 200_000.0, max_results: 10, ellipsoid: Ellipsoid::WGS84 };
    let (nearest, looked_at) = kept.nearest(bounds);
    assert_eq!(nearest.len(), 10);
    assert!(looked_at < 3_000, "{looked_at}");
}

#[test]
fn a_search_around_half_the_earth_is_refused_as_rethinkdb_refuses_it() {
    let center = LonLat { lon: 0.0, lat: 0.0 };
    let bounds = Bounds { center, max_dist_m: 1e7, max_results: 100, ellipsoid: Ellipsoid::WGS84 };
    let mut search: Search<u8, u8> = Search::new(bounds);
    let refusal = loop {
        match search.ranges() {
            Err(error) => break error.to_string(),
            Ok(_) => assert!(search.next_ring(), "a ring reaches too far"),
        }
    };
    assert_eq!(
        refusal,
        "The distance has become too large for continuing the indexed nearest traversal.  Consider \
         specifying a smaller `max_dist` parameter.  (Radius must be smaller than a quarter of the \
         circumference along the minor axis of the reference ellipsoid.  Got 10968937.995244588703m, but \
         must be smaller than 9985163.1855612862855m.)"
    );
}
