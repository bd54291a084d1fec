//! The URLs of requests and of redirects.

use ureq::http::Uri;
use ureq::http::uri::Scheme;

use super::failure::AttemptError;

/// An HTTP URL without fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HttpUrl(Uri);

impl HttpUrl {
    /// Parses `text`; without a scheme it means `http`.
    pub(super) fn parse(text: &str) -> Result<HttpUrl, AttemptError> {
        let text = text.trim();
        match scheme(text) {
            Some("http" | "https") => HttpUrl::of(text),
            Some(_) => Err(AttemptError::failed("Unsupported protocol")),
            None => HttpUrl::of(&format!("http://{text}")),
        }
    }

    /// Resolves the reference `text` against this URL (RFC 3986, 5.2).
    pub(super) fn join(&self, text: &str) -> Result<HttpUrl, AttemptError> {
        let text = text.trim();
        if scheme(text).is_some() {
            return HttpUrl::parse(text);
        }
        let scheme = self.0.scheme_str().unwrap_or("http");
        if let Some(rest) = text.strip_prefix("//") {
            return HttpUrl::of(&format!("{scheme}://{rest}"));
        }
        let target = match text.as_bytes().first() {
            Some(b'/') => without_dot_segments(text),
            Some(b'?') => format!("{}{text}", self.0.path()),
            None | Some(b'#') => self.target().to_owned(),
            Some(_) => {
                let folder = self.0.path().rsplit_once('/').map_or("", |(folder, _)| folder);
                without_dot_segments(&format!("{folder}/{text}"))
            }
        };
        let authority = self.0.authority().map_or("", |authority| authority.as_str());
        HttpUrl::of(&format!("{scheme}://{authority}{target}"))
    }

    fn of(text: &str) -> Result<HttpUrl, AttemptError> {
        let text = text.split_once('#').map_or(text, |(text, _)| text);
        let uri: Uri = percent_encoded(text).parse().map_err(|_| malformed())?;
        match uri.host() {
            Some(host) if !host.is_empty() => Ok(HttpUrl(uri)),
            _ => Err(malformed()),
        }
    }

    pub(super) fn uri(&self) -> &Uri {
        &self.0
    }

    /// Path and query string.
    pub(super) fn target(&self) -> &str {
        self.0.path_and_query().map_or("/", |target| target.as_str())
    }

    pub(super) fn host(&self) -> &str {
        self.0.host().unwrap_or("")
    }

    /// Whether both have the same scheme, host and port.
    pub(super) fn is_same_server(&self, other: &HttpUrl) -> bool {
        let place = |location: &HttpUrl| {
            let secure = location.0.scheme() == Some(&Scheme::HTTPS);
            let port = location.0.port_u16().unwrap_or(if secure { 443 } else { 80 });
            (secure, location.host().to_ascii_lowercase(), port)
        };
        place(self) == place(other)
    }
}

/// The text before `://`, if it can be a scheme.
fn scheme(text: &str) -> Option<&str> {
    let (scheme, _) = text.split_once("://")?;
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    (!scheme.is_empty() && scheme.chars().all(fits)).then_some(scheme)
}

/// A path without `.` and `..` (RFC 3986, 5.2.4), with its query string.
fn without_dot_segments(target: &str) -> String {
    let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
    let mut kept: Vec<&str> = Vec::new();
    let mut open = false;
    for part in path.split('/').skip(1) {
        open = matches!(part, "." | "..");
        match part {
            "." => {}
            ".." => drop(kept.pop()),
            part => kept.push(part),
        }
    }
    let end = if open { "/" } else { "" };
    let path = format!("/{}{}", kept.join("/"), if kept.is_empty() { "" } else { end });
    query.map_or(path.clone(), |query| format!("{path}?{query}"))
}

/// Encodes spaces, control characters and non-ASCII bytes as `%XX`.
fn percent_encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'!'..=b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

fn malformed() -> AttemptError {
    AttemptError::failed("URL using bad/illegal format or missing URL")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(location: Result<HttpUrl, AttemptError>) -> String {
        match location {
            Ok(location) => location.uri().to_string(),
            Err(_) => "refused".to_owned(),
        }
    }

    #[test]
    fn a_url_is_read_as_it_is_meant() {
        for (text, expected) in [
            ("example.org", "http://example.org/"),
            ("example.org:8080/a?b=http://c/#d", "http://example.org:8080/a?b=http://c/"),
            ("https://example.org/a b/ü", "https://example.org/a%20b/%C3%BC"),
            ("http://[::1]:80/x", "http://[::1]:80/x"),
            ("file:///etc/passwd", "refused"),
            ("gopher://example.org", "refused"),
            ("http://", "refused"),
            ("http://[", "refused"),
            ("", "refused"),
        ] {
            assert_eq!(shown(HttpUrl::parse(text)), expected, "{text}");
        }
    }

    #[test]
    fn a_redirection_is_seen_from_where_it_came() {
        let Ok(base) = HttpUrl::parse("http://a:81/b/c/d?q") else { panic!("a location") };
        for (text, expected) in [
            ("https://x/y", "https://x/y"),
            ("//x/y", "http://x/y"),
            ("/x?y", "http://a:81/x?y"),
            ("x", "http://a:81/b/c/x"),
            ("../x", "http://a:81/b/x"),
            ("./x/.", "http://a:81/b/c/x/"),
            ("../../../../x", "http://a:81/x"),
            ("?y", "http://a:81/b/c/d?y"),
            ("", "http://a:81/b/c/d?q"),
            ("#f", "http://a:81/b/c/d?q"),
            ("file:///x", "refused"),
        ] {
            assert_eq!(shown(base.join(text)), expected, "{text}");
        }
    }

    #[test]
    fn servers_are_distinguished() {
        let at = |text| match HttpUrl::parse(text) {
            Ok(location) => location,
            Err(_) => panic!("{text}"),
        };
        assert!(at("http://A/x").is_same_server(&at("http://a:80/y")));
        assert!(!at("http://a").is_same_server(&at("https://a")));
        assert!(!at("http://a").is_same_server(&at("http://a:81")));
        assert!(!at("http://a").is_same_server(&at("http://b")));
    }
}
