//! The cookies of one session. A cookie is only returned to the host that set it, even if it asked for a wider domain:
//! sessions are short, and this way no list of public suffixes is needed.

use super::url::HttpUrl;

/// The most cookies a session keeps.
const COOKIES_MAX: usize = 100;

/// The cookies that servers set.
#[derive(Clone, Debug, Default)]
pub(super) struct CookieJar(Vec<Cookie>);

#[derive(Clone, Debug)]
struct Cookie {
    host: String,
    path: String,
    name: String,
    value: String,
    secure: bool,
}

impl CookieJar {
    /// Stores the cookie of a `Set-Cookie` header in a response from `from` (RFC 6265, 5.2).
    pub(super) fn take(&mut self, line: &str, from: &HttpUrl) {
        let mut parts = line.split(';').map(str::trim);
        let Some((name, value)) = parts.next().and_then(|pair| pair.split_once('=')) else { return };
        let folder = from.uri().path().rsplit_once('/').map_or("/", |(folder, _)| folder);
        let mut cookie = Cookie {
            host: from.host().to_ascii_lowercase(),
            path: if folder.is_empty() { "/" } else { folder }.to_owned(),
            name: name.trim().to_owned(),
            value: value.trim().to_owned(),
            secure: false,
        };
        let mut is_expired = false;
        for part in parts {
            let (attribute, value) = part.split_once('=').unwrap_or((part, ""));
            match attribute.to_ascii_lowercase().as_str() {
                "path" if value.starts_with('/') => value.clone_into(&mut cookie.path),
                "secure" => cookie.secure = true,
                "max-age" => is_expired = value.parse::<i64>().is_ok_and(|seconds| seconds <= 0),
                _ => {}
            }
        }
        self.0.retain(|old| (&old.host, &old.path, &old.name) != (&cookie.host, &cookie.path, &cookie.name));
        if !is_expired && self.0.len() < COOKIES_MAX {
            self.0.push(cookie);
        }
    }

    /// The `Cookie` header for a request to `to`, if there is a cookie for it.
    pub(super) fn line(&self, to: &HttpUrl) -> Option<String> {
        let (host, path) = (to.host().to_ascii_lowercase(), to.uri().path());
        let secure = to.uri().scheme_str() == Some("https");
        let fits = |cookie: &&Cookie| {
            cookie.host == host && (secure || !cookie.secure) && covers(&cookie.path, path)
        };
        let pairs = self.0.iter().filter(fits).map(|cookie| format!("{}={}", cookie.name, cookie.value));
        let pairs: Vec<String> = pairs.collect();
        (!pairs.is_empty()).then(|| pairs.join("; "))
    }
}

/// Whether a cookie with the path `folder` is sent with a request for `path`.
fn covers(folder: &str, path: &str) -> bool {
    match path.strip_prefix(folder) {
        Some(rest) => rest.is_empty() || folder.ends_with('/') || rest.starts_with('/'),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> HttpUrl {
        match HttpUrl::parse(text) {
            Ok(location) => location,
            Err(_) => panic!("{text}"),
        }
    }

    #[test]
    fn cookies_go_back_where_they_came_from() {
        let mut jar = CookieJar::default();
        jar.take("a=1", &at("http://h/x/y"));
        jar.take("b=2; Path=/; HttpOnly", &at("http://h/x/y"));
        jar.take("c=3; path=/; secure; Domain=example", &at("http://h/x/y"));
        assert_eq!(jar.line(&at("http://h/x/z")).as_deref(), Some("a=1; b=2"));
        assert_eq!(jar.line(&at("http://h/xx")).as_deref(), Some("b=2"));
        assert_eq!(jar.line(&at("https://H/")).as_deref(), Some("b=2; c=3"));
        assert_eq!(jar.line(&at("http://example/")), None);
        jar.take("b=4; Path=/", &at("http://h/"));
        jar.take("a=; Path=/x; Max-Age=0", &at("http://h/"));
        assert_eq!(jar.line(&at("http://h/x/z")).as_deref(), Some("b=4"));
        jar.take("nothing", &at("http://h/"));
        assert_eq!(jar.line(&at("http://h/x/z")).as_deref(), Some("b=4"));
    }
}
