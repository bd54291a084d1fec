//! Which names a request may give this server, and which pages may send it one.
//!
//! A page of another site cannot read answers, but its requests carry the session's cookie; and a name under the control of
//! another site can be made to lead here (DNS rebinding), so that its page has our origin. The first is refused by the
//! `Origin` that browsers add, the second by the name in `Host`.

use std::net::IpAddr;
use std::path::Path;

use axum::http::{HeaderMap, header};
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;

use crate::config::Config;

/// The names of this server, in small letters.
pub(super) struct HostNames(Vec<String>);

impl HostNames {
    /// `localhost`, `hostname`, and the names of the configuration and of the certificate. An address needs no entry.
    pub(super) fn new(config: &Config, hostname: &str) -> HostNames {
        let mut names = vec!["localhost".to_owned(), hostname.to_owned()];
        names.extend(config.http_allowed_hosts.iter().cloned());
        names.extend(config.peers.canonical_addresses.iter().map(|place| name_of(place).to_owned()));
        let tls = config.http.as_ref().and_then(|http| http.tls.as_ref());
        names.extend(tls.into_iter().flat_map(|files| certificate_names(&files.certificate)));
        HostNames(names.into_iter().map(|name| name.to_ascii_lowercase()).collect())
    }

    /// Whether `host` (with or without a port) names this server.
    pub(super) fn allows(&self, host: &str) -> bool {
        let name = name_of(host).trim_end_matches('.').to_ascii_lowercase();
        if name.parse::<IpAddr>().is_ok() {
            return true;
        }
        self.0.iter().any(|allowed| match allowed.strip_prefix("*.") {
            None => *allowed == name,
            Some(parent) => {
                name.split_once('.').is_some_and(|(first, rest)| !first.is_empty() && rest == parent)
            }
        })
    }
}

/// The name or address in `host`, `host:port`, `[address]` or `[address]:port`.
fn name_of(place: &str) -> &str {
    if let Some(rest) = place.strip_prefix('[') {
        return rest.split_once(']').map_or("", |(address, _)| address);
    }
    match place.rsplit_once(':') {
        // More than one colon: a bare IPv6 address.
        Some((host, _)) if !host.contains(':') => host,
        _ => place,
    }
}

/// The DNS names of the first certificate in a file.
fn certificate_names(path: &Path) -> Vec<String> {
    // The port has been opened with this file already, so what cannot be read has no names.
    let Ok(certificate) = CertificateDer::from_pem_file(path) else { return Vec::new() };
    match webpki::EndEntityCert::try_from(&certificate) {
        Ok(parsed) => parsed.valid_dns_names().map(str::to_owned).collect(),
        Err(_) => Vec::new(),
    }
}

/// The `Host` of a request.
pub(super) fn host(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::HOST)?.to_str().ok()
}

/// Whether a request comes from a page of this server: its `Origin` names the host that the request names.
pub(super) fn is_own(headers: &HeaderMap) -> bool {
    let origin = headers.get(header::ORIGIN).and_then(|origin| origin.to_str().ok());
    let authority =
        origin.and_then(|origin| origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://")));
    matches!((authority, host(headers)), (Some(authority), Some(host)) if authority.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    #[test]
    fn names_are_compared_whole() {
        let names = HostNames(vec!["localhost".into(), "db1".into(), "*.example.com".into()]);
        for host in
            ["localhost", "LOCALHOST:8080", "127.0.0.1:8080", "[::1]:8080", "::1", "db1:1", "a.example.com"]
        {
            assert!(names.allows(host), "{host}");
        }
        for host in [
            "localhost.evil.com",
            "evil.com:8080",
            "xdb1",
            "",
            "example.com",
            "a.b.example.com",
            "[evil.com]",
        ] {
            assert!(!names.allows(host), "{host}");
        }
    }

    #[test]
    fn an_origin_is_own_if_it_names_the_host() {
        let own = |origin: &str, host: &str| {
            let values = [(header::ORIGIN, origin), (header::HOST, host)];
            is_own(
                &values
                    .map(|(name, value)| (name, HeaderValue::from_str(value).unwrap()))
                    .into_iter()
                    .collect(),
            )
        };
        assert!(own("http://localhost:8080", "localhost:8080"));
        assert!(own("https://db.example.com", "db.example.com"));
        for origin in
            ["http://localhost:3000", "null", "", "localhost:8080", "http://localhost:8080.evil.com"]
        {
            assert!(!own(origin, "localhost:8080"), "{origin}");
        }
        assert!(!is_own(&HeaderMap::new()));
    }
}
