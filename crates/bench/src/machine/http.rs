//! A minimal HTTP client that fetches one page from a measured server.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

const FETCH_TIMEOUT: Duration = Duration::from_millis(1500);
const PAGE_BYTES_MAX: u64 = 16 << 20;

/// Fetches `http://host[:port]/path`; `None` without a response with status 200.
pub fn get(url: &str) -> Option<String> {
    let rest = url.strip_prefix("http://")?;
    let (authority, path) = match rest.find('/') {
        Some(slash) => (&rest[..slash], &rest[slash..]),
        None => (rest, "/"),
    };
    let has_port = authority.rsplit(':').next().is_some_and(|p| p.parse::<u16>().is_ok());
    let target = if has_port { authority.to_owned() } else { format!("{authority}:80") };
    let address = target.to_socket_addrs().ok()?.next()?;
    let mut stream = TcpStream::connect_timeout(&address, FETCH_TIMEOUT).ok()?;
    stream.set_read_timeout(Some(FETCH_TIMEOUT)).ok()?;
    // HTTP/1.0, so that the end of the connection is the end of the response.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {authority}\r\nConnection: close\r\n\r\n").ok()?;
    let mut bytes = Vec::new();
    stream.take(PAGE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    body_of(&String::from_utf8_lossy(&bytes))
}

fn body_of(response: &str) -> Option<String> {
    let (head, body) = response.split_once("\r\n\r\n")?;
    let status = head.split_whitespace().nth(1)?;
    (head.starts_with("HTTP/1.") && status == "200").then(|| body.to_owned())
}

#[cfg(test)]
mod tests {
    use super::body_of;

    #[test]
    fn only_a_page_with_status_200_counts() {
        assert_eq!(body_of("HTTP/1.1 200 OK\r\nA: b\r\n\r\nbody").as_deref(), Some("body"));
        assert_eq!(body_of("HTTP/1.1 404 Not Found\r\n\r\nx"), None);
        assert_eq!(body_of("SSH-2.0"), None);
    }
}
