//! The console's files, in the program or in the folder of `--web-static-directory`.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use flate2::read::GzDecoder;
use sha2::{Digest, Sha256};

/// The page; every answer has another nonce in it.
const PAGE: &str = "index.html";

/// The page of the frame in which the explorer's scripts run. It has its own policy.
const SANDBOX: &str = "sandbox.html";

/// What `index.html` has in the place of the nonce.
const NONCE_MARK: &str = "%NONCE%";

/// A file in the program.
struct EmbeddedFile {
    name: &'static str,
    /// The entity tag, with its quotes.
    tag: &'static str,
    gzip: &'static [u8],
}

mod embedded {
    use super::EmbeddedFile;

    include!(concat!(env!("OUT_DIR"), "/console_files.rs"));
}

/// Where the files come from.
pub(super) enum Assets {
    /// The program.
    Embedded,
    /// A folder, read for each request.
    Folder(PathBuf),
}

/// How a file is protected.
pub(super) enum Policy {
    /// The page: styles need this nonce.
    Page { nonce: String },
    /// The frame for scripts: only the script with this hash runs in it.
    Sandbox { script_hash: String },
    /// Everything else.
    File,
}

impl Assets {
    /// Fails if `folder` has no page.
    pub(super) fn new(folder: Option<&Path>) -> io::Result<Assets> {
        let Some(folder) = folder else { return Ok(Assets::Embedded) };
        std::fs::metadata(folder.join(PAGE))?;
        Ok(Assets::Folder(folder.to_owned()))
    }

    /// Identifies the version of all files, so that an open page notices an upgrade.
    pub(super) fn version(&self) -> String {
        match self {
            Assets::Embedded => {
                let mut digest = Sha256::new();
                embedded::FILES.iter().for_each(|file| digest.update(file.tag));
                digest.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
            }
            Assets::Folder(_) => "folder".to_owned(),
        }
    }

    /// The answer to a request for `path`, and how it is to be protected. `nonce` must be fresh.
    pub(super) async fn answer(&self, path: &str, headers: &HeaderMap, nonce: &str) -> (Response, Policy) {
        let name = path.strip_prefix('/').filter(|name| !name.is_empty()).unwrap_or(PAGE);
        match self.find(name).await {
            None => ((StatusCode::NOT_FOUND, "There is no such page.\n").into_response(), Policy::File),
            Some(file) if name == PAGE => file.page(nonce),
            Some(file) if name == SANDBOX => file.sandbox(),
            Some(file) => (file.response(name, headers), Policy::File),
        }
    }

    async fn find(&self, name: &str) -> Option<Found> {
        match self {
            Assets::Embedded => {
                let file = embedded::FILES.iter().find(|file| file.name == name)?;
                Some(Found { tag: file.tag.to_owned(), content: Content::Gzip(file.gzip) })
            }
            Assets::Folder(folder) => {
                // A plain name, so that no request leaves the folder.
                let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
                if !is_plain || name.starts_with('.') {
                    return None;
                }
                let bytes = tokio::fs::read(folder.join(name)).await.ok()?;
                let tag = format!("\"{}\"", BASE64.encode(Sha256::digest(&bytes)));
                Some(Found { tag, content: Content::Plain(bytes) })
            }
        }
    }
}

enum Content {
    Gzip(&'static [u8]),
    Plain(Vec<u8>),
}

struct Found {
    tag: String,
    content: Content,
}

impl Found {
    fn response(self, name: &str, headers: &HeaderMap) -> Response {
        let cached = headers.get(header::IF_NONE_MATCH).and_then(|tags| tags.to_str().ok());
        let is_cached = cached.is_some_and(|tags| tags.split(',').any(|tag| tag.trim() == self.tag));
        let mut response = match is_cached {
            true => StatusCode::NOT_MODIFIED.into_response(),
            false => self.full(name, headers),
        };
        if let Ok(tag) = HeaderValue::from_str(&self.tag) {
            response.headers_mut().insert(header::ETAG, tag);
        }
        response
    }

    fn full(&self, name: &str, headers: &HeaderMap) -> Response {
        let kind = [(header::CONTENT_TYPE, content_type(name))];
        match &self.content {
            Content::Gzip(bytes) if accepts_gzip(headers) => {
                let encoding = [(header::CONTENT_ENCODING, "gzip"), (header::VARY, "accept-encoding")];
                (kind, encoding, *bytes).into_response()
            }
            _ => (kind, self.text()).into_response(),
        }
    }

    fn page(&self, nonce: &str) -> (Response, Policy) {
        let html = self.text().replace(NONCE_MARK, nonce);
        let response = ([(header::CONTENT_TYPE, content_type(PAGE))], html).into_response();
        (response, Policy::Page { nonce: nonce.to_owned() })
    }

    fn sandbox(&self) -> (Response, Policy) {
        let html = self.text();
        let script = html.split_once("<script>").and_then(|(_, rest)| rest.rsplit_once("</script>"));
        let script_hash = BASE64.encode(Sha256::digest(script.map_or("", |(script, _)| script)));
        let response = ([(header::CONTENT_TYPE, content_type(SANDBOX))], html).into_response();
        (response, Policy::Sandbox { script_hash })
    }

    fn text(&self) -> String {
        match &self.content {
            Content::Plain(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Content::Gzip(bytes) => {
                let mut text = String::new();
                if let Err(error) = GzDecoder::new(*bytes).read_to_string(&mut text) {
                    tracing::error!("a file of the console cannot be unpacked: {error}");
                }
                text
            }
        }
    }
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
    accepted.is_some_and(|list| list.split(',').any(|one| one.trim().split(';').next() == Some("gzip")))
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, ending)| ending) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "text/plain; charset=utf-8",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<&'static str> {
        embedded::FILES.iter().map(|file| file.name).collect()
    }

    #[tokio::test]
    async fn the_page_has_its_nonce_and_each_file_its_tag() {
        let (page, policy) = Assets::Embedded.answer("/", &HeaderMap::new(), "abc").await;
        assert_eq!(page.status(), StatusCode::OK);
        assert!(matches!(policy, Policy::Page { nonce } if nonce == "abc"));
        for name in names().into_iter().filter(|name| ![PAGE, SANDBOX].contains(name)) {
            let (file, _) = Assets::Embedded.answer(&format!("/{name}"), &HeaderMap::new(), "").await;
            let tag = file.headers()[header::ETAG].clone();
            let headers = HeaderMap::from_iter([(header::IF_NONE_MATCH, tag)]);
            let (again, _) = Assets::Embedded.answer(&format!("/{name}"), &headers, "").await;
            assert_eq!(again.status(), StatusCode::NOT_MODIFIED, "{name}");
        }
    }

    #[tokio::test]
    async fn a_folder_serves_its_own_files_only() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Assets::new(Some(folder.path())).is_err(), "there is no page");
        std::fs::write(folder.path().join(PAGE), "<p>mine %NONCE%").unwrap();
        let assets = Assets::new(Some(folder.path())).unwrap();
        for (path, status) in
            [("/", 200), ("/index.html", 200), ("/../Cargo.toml", 404), ("/.x", 404), ("/no", 404)]
        {
            let (answer, _) = assets.answer(path, &HeaderMap::new(), "n").await;
            assert_eq!(answer.status(), status, "{path}");
        }
    }
}
