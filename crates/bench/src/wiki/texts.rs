//! Finds texts on this machine: documentation, as plain text or as HTML without its tags.

use std::fs;
use std::path::{Path, PathBuf};

/// The endings of files that are read.
const ENDINGS: [&str; 9] = ["txt", "md", "rst", "html", "htm", "xhtml", "pod", "adoc", "tex"];
/// A larger file is hardly documentation.
const FILE_BYTES_MAX: u64 = 32 << 20;
/// Elements of HTML whose content is no text.
const HIDDEN: [&str; 3] = ["script", "style", "head"];

/// The files with texts under `folders`, in a fixed order. Links are not followed. Fails if one of the folders cannot be
/// read; folders inside that cannot be read are left out.
pub fn find(folders: &[PathBuf]) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for folder in folders {
        match fs::metadata(folder)?.is_dir() {
            true => {
                fs::read_dir(folder)?;
                collect(folder, &mut found);
            }
            false => found.push(folder.clone()),
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(kind) = entry.file_type() else { continue };
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        if kind.is_dir() {
            collect(&path, found);
        } else if kind.is_file() && ENDINGS.contains(&&*ending.to_ascii_lowercase()) {
            found.push(path);
        }
    }
}

/// The paragraphs of a file; `None` if it is not UTF-8, is too large, or cannot be read.
pub fn paragraphs(path: &Path) -> Option<Vec<String>> {
    if fs::metadata(path).ok()?.len() > FILE_BYTES_MAX {
        return None;
    }
    let text = String::from_utf8(fs::read(path).ok()?).ok()?;
    let is_html = text.trim_start().starts_with('<');
    let text = if is_html { without_tags(&text) } else { text };
    let paragraph = |lines: &str| lines.trim().to_owned();
    Some(text.split("\n\n").map(paragraph).filter(|paragraph| !paragraph.is_empty()).collect())
}

/// The text of HTML. Elements that begin a paragraph begin one here.
fn without_tags(html: &str) -> String {
    let mut text = String::with_capacity(html.len() / 2);
    let mut rest = html;
    while let Some(start) = rest.find('<') {
        text.push_str(&decoded(&rest[..start]));
        let Some(end) = rest[start..].find('>') else { return text };
        let tag = &rest[start + 1..start + end];
        rest = &rest[start + end + 1..];
        let name = tag.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
        if let Some(hidden) = HIDDEN.iter().find(|hidden| name.eq_ignore_ascii_case(hidden)) {
            let closing = format!("</{hidden}");
            rest = rest.find(&closing).map_or("", |at| &rest[at..]);
        }
        if matches!(
            name,
            "p" | "div" | "li" | "tr" | "h1" | "h2" | "h3" | "h4" | "dt" | "dd" | "pre" | "table"
        ) {
            text.push_str("\n\n");
        }
    }
    text.push_str(&decoded(rest));
    text
}

fn decoded(text: &str) -> String {
    let mut text = text.to_owned();
    for (entity, character) in
        [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&nbsp;", " "), ("&amp;", "&")]
    {
        if text.contains(entity) {
            text = text.replace(entity, character);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn html_becomes_its_paragraphs() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("inner");
        fs::create_dir(&inner).unwrap();
        let html = "<html><head><title>t</title></head><body><p class='x'>One &amp;\ntwo</p>\
                    <script>if (a < b) {}</script><p>three &lt;tag&gt;</body>";
        fs::write(inner.join("a.HTML"), html).unwrap();
        fs::write(folder.path().join("b.txt"), "x\n\n\n\ny\nz\n").unwrap();
        fs::write(folder.path().join("c.png"), "x").unwrap();
        fs::write(folder.path().join("d.txt"), b"\xFF").unwrap();
        let found = find(&[folder.path().to_owned()]).unwrap();
        let names: Vec<_> = found.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["b.txt", "d.txt", "a.HTML"]);
        assert_eq!(paragraphs(&found[0]), Some(vec!["x".to_owned(), "y\nz".to_owned()]));
        assert_eq!(paragraphs(&found[1]), None);
        assert_eq!(paragraphs(&found[2]), Some(vec!["One &\ntwo".to_owned(), "three <tag>".to_owned()]));
        assert!(find(&[folder.path().join("none")]).is_err());
    }
}
