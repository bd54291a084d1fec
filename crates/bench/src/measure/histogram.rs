//! HdrHistograms in nanoseconds, and their conversion to a [`Latency`].

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};

use crate::result::Latency;

/// Three significant digits. The histograms grow as needed, so that every latency can be recorded.
const DIGITS: u8 = 3;
/// Points of the percentile curve per halving of the distance to 100 %.
const CURVE_STEPS_PER_HALF: u32 = 8;

/// An empty histogram of nanoseconds.
pub fn empty() -> Histogram<u64> {
    Histogram::new(DIGITS).expect("invariant: three digits are allowed")
}

/// Records one latency; 0 counts as 1 ns.
pub fn record(histogram: &mut Histogram<u64>, nanoseconds: u64) {
    // Only fixed-size histograms reject values.
    let _ = histogram.record(nanoseconds.max(1));
}

/// Adds every value of `other`.
pub fn merge(into: &mut Histogram<u64>, other: &Histogram<u64>) {
    // Only fixed-size histograms reject values.
    let _ = into.add(other);
}

/// The percentile `quantile` (0..1) in microseconds.
pub fn quantile_us(histogram: &Histogram<u64>, quantile: f64) -> f64 {
    micros(histogram.value_at_quantile(quantile))
}

/// The longest latency in microseconds.
pub fn max_us(histogram: &Histogram<u64>) -> f64 {
    micros(histogram.max())
}

/// The latency statistics of a result.
pub fn latency(histogram: &Histogram<u64>) -> Latency {
    if histogram.is_empty() {
        return Latency::default();
    }
    let at = |quantile| Some(quantile_us(histogram, quantile));
    Latency {
        count: histogram.len(),
        min_us: Some(micros(histogram.min())),
        mean_us: Some(micros_of(histogram.mean())),
        stddev_us: Some(micros_of(histogram.stdev())),
        p50_us: at(0.5),
        p90_us: at(0.9),
        p95_us: at(0.95),
        p99_us: at(0.99),
        p999_us: at(0.999),
        p9999_us: at(0.9999),
        max_us: Some(max_us(histogram)),
        curve: curve(histogram),
        hdr: encode(histogram),
    }
}

/// The encoded histogram for a result.
pub fn encode(histogram: &Histogram<u64>) -> Option<String> {
    let mut bytes = Vec::new();
    V2DeflateSerializer::new().serialize(histogram, &mut bytes).ok()?;
    Some(STANDARD.encode(bytes))
}

/// Decodes a histogram of a result; `None` if the text is invalid.
pub fn decode(text: &str) -> Option<Histogram<u64>> {
    let bytes = STANDARD.decode(text).ok()?;
    Deserializer::new().deserialize(&mut bytes.as_slice()).ok()
}

fn curve(histogram: &Histogram<u64>) -> Vec<(f64, f64, u64)> {
    let minimum = histogram.min();
    let mut points = vec![(0.0, micros(minimum), histogram.count_at(minimum))];
    let mut below = 0;
    for step in histogram.iter_quantiles(CURVE_STEPS_PER_HALF) {
        below += step.count_since_last_iteration();
        let percentile = step.quantile_iterated_to() * 100.0;
        if percentile > 0.0 {
            points.push((percentile, micros(step.value_iterated_to()), below));
        }
    }
    points
}

fn micros(nanoseconds: u64) -> f64 {
    micros_of(nanoseconds as f64)
}

/// Rounds to a hundredth of a microsecond, finer than the three digits of a histogram.
fn micros_of(nanoseconds: f64) -> f64 {
    (nanoseconds / 10.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    fn skewed(seed: u64, count: usize) -> Vec<u64> {
        let mut rng = Rng::new(seed, 0);
        (0..count).map(|_| (10_000.0 / (rng.unit() + 1e-6)) as u64).collect()
    }

    #[test]
    fn merged_histograms_equal_the_histogram_of_merged_data() {
        let seed = 7;
        let data = skewed(seed, 20_000);
        let mut parts = empty();
        let mut whole = empty();
        for chunk in data.chunks(777) {
            let mut part = empty();
            chunk.iter().for_each(|v| record(&mut part, *v));
            merge(&mut parts, &part);
        }
        data.iter().for_each(|v| record(&mut whole, *v));
        assert_eq!(parts, whole, "seed {seed}");
        assert_eq!(latency(&parts).curve, latency(&whole).curve);
    }

    #[test]
    fn percentiles_are_within_a_thousandth_of_the_sorted_data() {
        let mut data = skewed(11, 50_000);
        let mut histogram = empty();
        data.iter().for_each(|v| record(&mut histogram, *v));
        data.sort_unstable();
        for quantile in [0.5, 0.9, 0.95, 0.99, 0.999, 0.9999] {
            let exact = data[(quantile * data.len() as f64).ceil() as usize - 1] as f64 / 1000.0;
            let found = quantile_us(&histogram, quantile);
            assert!((found / exact - 1.0).abs() < 0.002, "{quantile}: {found} for {exact}");
        }
    }

    #[test]
    fn the_curve_ends_with_every_operation_and_the_text_form_loses_nothing() {
        let mut histogram = empty();
        skewed(3, 5_000).iter().for_each(|v| record(&mut histogram, *v));
        let described = latency(&histogram);
        let last = described.curve.last().expect("points");
        assert_eq!((last.0, last.2), (100.0, 5_000));
        assert!(described.curve.windows(2).all(|w| w[0].0 <= w[1].0 && w[0].1 <= w[1].1));
        assert_eq!(decode(&described.hdr.expect("text")), Some(histogram));
        assert_eq!(decode("AAAA"), None);
    }
}
