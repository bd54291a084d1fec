//! The OpenMetrics text format: families of samples.

/// A page that is being written.
#[derive(Default)]
pub(super) struct Page(String);

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It only increases.
    Counter,
    /// It increases and decreases.
    Gauge,
}

/// Labels of a sample. The values need no escaping, because this program chooses or filters them.
pub(super) type Labels<'a> = &'a [(&'a str, &'a str)];

impl Page {
    /// Starts a family of counters or gauges.
    pub(super) fn family(&mut self, name: &'static str, kind: Kind, help: &str) -> Family<'_> {
        let (word, suffix) = match kind {
            Kind::Counter => ("counter", "_total"),
            Kind::Gauge => ("gauge", ""),
        };
        self.head(name, word, help);
        Family { page: self, name, suffix }
    }

    /// Writes a family of one sample without labels.
    pub(super) fn single(&mut self, name: &'static str, kind: Kind, help: &str, value: f64) {
        self.family(name, kind, help).sample(&[], value);
    }

    /// Starts a family of histograms.
    pub(super) fn histograms(&mut self, name: &'static str, help: &str) -> Family<'_> {
        self.head(name, "histogram", help);
        Family { page: self, name, suffix: "" }
    }

    /// The finished page.
    pub(super) fn finish(mut self) -> String {
        self.0.push_str("# EOF\n");
        self.0
    }

    fn head(&mut self, name: &str, word: &str, help: &str) {
        self.0.push_str(&format!("# HELP {name} {help}\n# TYPE {name} {word}\n"));
    }

    fn line(&mut self, name: &str, suffix: &str, labels: Labels<'_>, bound: Option<f64>, value: f64) {
        let bound = bound.map(|bound| if bound.is_finite() { bound.to_string() } else { "+Inf".to_owned() });
        let bound = bound.as_deref().map(|bound| ("le", bound));
        let pairs: Vec<String> =
            labels.iter().copied().chain(bound).map(|(key, value)| format!("{key}=\"{value}\"")).collect();
        let labels = if pairs.is_empty() { String::new() } else { format!("{{{}}}", pairs.join(",")) };
        self.0.push_str(&format!("{name}{suffix}{labels} {value}\n"));
    }
}

/// A family with samples that are being written.
pub(super) struct Family<'a> {
    page: &'a mut Page,
    name: &'static str,
    suffix: &'static str,
}

impl Family<'_> {
    pub(super) fn sample(&mut self, labels: Labels<'_>, value: f64) -> &mut Self {
        self.page.line(self.name, self.suffix, labels, None, value);
        self
    }

    /// Writes one histogram from `(upper bound, number of values in this bucket alone)`, of which the last bound is
    /// infinite, and the sum of all values.
    pub(super) fn histogram(
        &mut self,
        labels: Labels<'_>,
        buckets: impl Iterator<Item = (f64, u64)>,
        sum: f64,
    ) -> &mut Self {
        let mut count = 0;
        for (bound, inside) in buckets {
            count += inside;
            self.page.line(self.name, "_bucket", labels, Some(bound), count as f64);
        }
        self.page.line(self.name, "_count", labels, None, count as f64);
        self.page.line(self.name, "_sum", labels, None, sum);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_reads_as_scrapers_expect() {
        let mut page = Page::default();
        page.single("up_seconds", Kind::Gauge, "Time.", 1.5);
        page.family("asked", Kind::Counter, "Questions.")
            .sample(&[("kind", "a")], 2.0)
            .sample(&[("kind", "b")], 3.0);
        let buckets = [(0.5, 1), (f64::INFINITY, 2)];
        page.histograms("took_seconds", "Times.").histogram(&[("kind", "a")], buckets.into_iter(), 9.0);
        let expected = "\
# HELP up_seconds Time.
# TYPE up_seconds gauge
up_seconds 1.5
# HELP asked Questions.
# TYPE asked counter
asked_total{kind=\"a\"} 2
asked_total{kind=\"b\"} 3
# HELP took_seconds Times.
# TYPE took_seconds histogram
took_seconds_bucket{kind=\"a\",le=\"0.5\"} 1
took_seconds_bucket{kind=\"a\",le=\"+Inf\"} 3
took_seconds_count{kind=\"a\"} 3
took_seconds_sum{kind=\"a\"} 9
# EOF
";
        assert_eq!(page.finish(), expected);
    }
}
