//! Puts results, published figures, style and scripts into one page.

use serde_json::{Value, json};

const PAGE: &str = include_str!("../../assets/page.html");
const PUBLISHED: &str = include_str!("../../assets/published.json");
const PARTS: [(&str, &str); 5] = [
    ("{{uplot_css}}", include_str!("../../assets/uplot/uPlot.min.css")),
    ("{{report_css}}", include_str!("../../assets/report.css")),
    ("{{uplot_js}}", include_str!("../../assets/uplot/uPlot.iife.min.js")),
    ("{{charts_js}}", include_str!("../../assets/charts.js")),
    ("{{report_js}}", include_str!("../../assets/report.js")),
];

/// The page for these results (`docs/formats/bench-result.md`), as HTML. It also says what was
/// `skipped`.
#[must_use]
pub fn render(runs: &[Value], skipped: &[String]) -> String {
    let published: Value =
        serde_json::from_str(PUBLISHED).expect("invariant: a test parses the published figures");
    let data = json!({ "runs": runs, "skipped": skipped, "published": published }).to_string();
    let mut page = String::with_capacity(data.len() + 100_000);
    let mut rest = PAGE;
    while let Some(start) = rest.find("{{") {
        page.push_str(&rest[..start]);
        rest = &rest[start..];
        let end = rest.find("}}").map_or(rest.len(), |end| end + 2);
        page.push_str(&part(&rest[..end], &data));
        rest = &rest[end..];
    }
    page.push_str(rest);
    page
}

/// What stands for a placeholder. Inside a script element `<` would be able to end it.
fn part(name: &str, data: &str) -> String {
    if name == "{{data}}" {
        return data.replace('<', "\\u003c");
    }
    PARTS.iter().find(|(part, _)| *part == name).map_or_else(String::new, |(_, text)| (*text).to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{PARTS, PUBLISHED, render};

    #[test]
    fn the_page_needs_no_network_and_holds_the_data() {
        let page = render(&[json!({"name": "</script><script>alert(1)"})], &["x.json is broken".to_owned()]);
        assert!(page.contains("x.json is broken"));
        assert!(page.contains("\\u003c/script>"));
        assert!(!page.contains("{{"));
        assert!(!page.contains("src=\"http") && !page.contains("href=\"http"));
        assert!(page.contains("uPlot="));
    }

    #[test]
    fn parts_cannot_end_their_element() {
        assert!(PARTS.iter().all(|(_, text)| !text.contains("</script") && !text.contains("</style")));
    }

    #[test]
    fn published_figures_can_be_read() {
        let published: serde_json::Value = serde_json::from_str(PUBLISHED).expect("JSON");
        assert_eq!(published["rethinkdb-2.1.5"]["workloads"]["a"]["raw"]["16"], 114_457.4);
        let analytic = &published["rethinkdb-2.1.5"]["workloads"]["analytic"]["raw"];
        assert_eq!(analytic["16"], (25_000_000.0f64 / 4.3975).round());
    }
}
