//! `rethinkdb._metrics`: the figures of each server in the last hour and in the last day.

use cluster::ServerId;
use datum::{Datum, Object, Text};
use reql::EvalError;

use super::fields::object;
use super::table_config::server_name;
use crate::context::Cx;
use crate::service::{MetricsHistory, MetricsSample};
use crate::table::{Identifiers, SystemTable};

/// The rows of a server: the seconds that a sample covers, and the seconds that the row covers.
const ROWS: [(u64, u64); 2] = [(10, 3_600), (120, 86_400)];

pub(super) struct Metrics;

impl SystemTable for Metrics {
    fn name(&self) -> &'static str {
        "_metrics"
    }

    fn is_per_server(&self) -> bool {
        true
    }

    fn rows(&self, cx: &Cx, identifiers: Identifiers) -> Result<Vec<Object>, EvalError> {
        let (id, server) = (cx.node().identity().server, server_name(cx, identifiers));
        let now = cx.node().clock().unix().as_secs();
        let rows = ROWS.into_iter().map(|(interval, covered)| {
            let samples = cx.service.facts.metrics.since(now.saturating_sub(covered), interval);
            row(id, &server, interval, &samples)
        });
        Ok(rows.collect())
    }
}

fn row(id: ServerId, server: &Text, interval: u64, samples: &[MetricsSample]) -> Object {
    let column = |read: &dyn Fn(&MetricsSample) -> f64| -> Datum {
        samples.iter().map(read).map(Datum::Number).collect::<Vec<_>>().into()
    };
    let mut fields: Vec<(Text, Datum)> = object([
        ("id", vec![id.to_string().into(), Datum::Number(interval as f64)].into()),
        ("server", Datum::String(server.clone())),
        ("interval_sec", Datum::Number(interval as f64)),
        ("at", column(&|sample| sample.at as f64)),
    ])
    .iter()
    .collect();
    for (i, name) in MetricsHistory::NAMES.into_iter().enumerate() {
        let figures = column(&|sample| rounded(f64::from(sample.values[i])));
        fields.push((Text::from_static(name), figures));
    }
    fields.into_iter().collect()
}

/// The number with four significant digits, which are enough for a picture.
#[allow(clippy::cast_possible_truncation)] // a number of digits
fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    let digits = 3 - value.abs().log10().floor() as i32;
    match digits {
        ..=0 => value.round(),
        digits => {
            let scale = 10f64.powi(digits.min(9));
            (value * scale).round() / scale
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_few_digits() {
        for (value, expected) in
            [(0.0, 0.0), (0.123_456, 0.1235), (12.345_678, 12.35), (123_456.7, 123_457.0), (f64::NAN, 0.0)]
        {
            assert_eq!(rounded(value), expected, "{value}");
        }
    }
}
