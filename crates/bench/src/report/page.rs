//! Combines results, published figures, style and scripts to one page.

use serde_json::{Value, json};

use crate::published;

const PAGE: &str = include_str!("../../assets/page.html");
const PARTS: [(&str, &str); 8] = [
    ("{{uplot_css}}", include_str!("../../assets/uplot/uPlot.min.css")),
    ("{{report_css}}", include_str!("../../assets/report.css")),
    ("{{uplot_js}}", include_str!("../../assets/uplot/uPlot.iife.min.js")),
    ("{{charts_js}}", include_str!("../../assets/charts.js")),
    ("{{sweep_js}}", include_str!("../../assets/sweep.js")),
    ("{{units_js}}", include_str!("../../assets/units.js")),
    ("{{wiki_js}}", include_str!("../../assets/wiki.js")),
    ("{{report_js}}", include_str!("../../assets/report.js")),
];

/// The HTML page for these results (`docs/formats/bench-result.md`). It also lists the `skipped` files.
#[must_use]
pub fn render(runs: &[Value], sweeps: &[Value], skipped: &[String]) -> String {
    let published = published::figures();
    let data = json!({ "runs": runs, "sweeps": sweeps, "skipped": skipped, "published": published });
    let data = data.to_string();
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

/// The text that replaces a placeholder. `<` is escaped in the data, because it could end the script element.
fn part(name: &str, data: &str) -> String {
    if name == "{{data}}" {
        return data.replace('<', "\\u003c");
    }
    PARTS.iter().find(|(part, _)| *part == name).map_or_else(String::new, |(_, text)| (*text).to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{PARTS, render};

    #[test]
    fn the_page_needs_no_network_and_holds_the_data() {
        let page =
            render(&[json!({"name": "</script><script>alert(1)"})], &[], &["x.json is broken".to_owned()]);
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
}
