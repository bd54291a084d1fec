//! A session of outbound HTTP: one agent that remembers cookies. Each request runs on its own thread, so that a
//! cancelled query does not wait for a server that does not respond.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use query::{HttpClient, HttpFailure, HttpRequest, HttpResponse, HttpSession};
use reql::Cancel;
use ureq::Agent;
use ureq::unversioned::transport::DefaultConnector;

use super::request::{RequestContext, perform};
use super::resolve::FilteringResolver;
use crate::config::HttpReach;

/// The `User-Agent` header.
const USER_AGENT: &str = concat!("Rekindle/", env!("CARGO_PKG_VERSION"));
/// How often a waiting request checks whether its query is cancelled.
const CANCEL_CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// An HTTP client for `r.http`.
#[derive(Clone, Copy, Debug)]
pub struct OutboundHttp {
    reach: HttpReach,
}

impl OutboundHttp {
    /// A client that may connect to the addresses that `reach` allows.
    #[must_use]
    pub fn new(reach: HttpReach) -> OutboundHttp {
        OutboundHttp { reach }
    }
}

impl HttpClient for OutboundHttp {
    fn session(&self) -> Box<dyn HttpSession> {
        let context = RequestContext { agent: agent(self.reach), jar: Arc::default() };
        Box::new(Session { reach: self.reach, context })
    }
}

struct Session {
    reach: HttpReach,
    context: RequestContext,
}

impl HttpSession for Session {
    fn send(&mut self, request: &HttpRequest, cancel: &Cancel) -> Result<HttpResponse, HttpFailure> {
        if request.timeout.is_zero() {
            return Err(HttpFailure::TimedOut);
        }
        let deadline = Instant::now() + request.timeout;
        let (sender, receiver) = mpsc::channel();
        let (context, sent) = (self.context.clone(), request.clone());
        let work = move || drop(sender.send(perform(&context, &sent)));
        if let Err(error) = thread::Builder::new().name("http".to_owned()).spawn(work) {
            return Err(HttpFailure::Failed(format!("no thread for it: {error}")));
        }
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match receiver.recv_timeout(CANCEL_CHECK_INTERVAL.min(left)) {
                Ok(answer) => return answer,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(HttpFailure::Failed("encountered an unknown exception".to_owned()));
                }
                Err(RecvTimeoutError::Timeout) if cancel.is_set() => {
                    self.abort_request();
                    return Err(HttpFailure::Cancelled);
                }
                Err(RecvTimeoutError::Timeout) if left.is_zero() => {
                    self.abort_request();
                    return Err(HttpFailure::TimedOut);
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

impl Session {
    /// Closes the connections of the running request, which ends its thread; a new agent replaces the old one.
    fn abort_request(&mut self) {
        std::mem::replace(&mut self.context.agent, agent(self.reach)).shutdown();
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.context.agent.clone().shutdown();
    }
}

fn agent(reach: HttpReach) -> Agent {
    agent_with(FilteringResolver::new(reach))
}

fn agent_with(resolver: FilteringResolver) -> Agent {
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .proxy(None)
        .user_agent(USER_AGENT)
        .build();
    Agent::with_parts(config, DefaultConnector::default(), resolver)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::{IpAddr, Ipv4Addr, TcpListener};

    use query::{Auth, Method};

    use super::*;

    /// A server on 127.0.0.1 that answers every request with `answer`, in which PORT stands for its port. Returns the
    /// port and the requests it receives.
    fn serve(answer: &str) -> (u16, mpsc::Receiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        let answer = answer.replace("PORT", &port.to_string());
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let lines = BufReader::new(&stream).lines().map_while(Result::ok);
                let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
                drop(sender.send(head.join("\n").to_ascii_lowercase()));
                drop((&stream).write_all(answer.as_bytes()));
            }
        });
        (port, receiver)
    }

    fn request(url: String) -> HttpRequest {
        HttpRequest {
            method: Method::Get,
            url,
            headers: Vec::new(),
            body: Vec::new(),
            auth: None,
            attempts: 1,
            redirects: 3,
            timeout: Duration::from_secs(20),
            verify: true,
            body_bytes_max: 100,
        }
    }

    fn only_one(address: IpAddr) -> bool {
        address == IpAddr::V4(Ipv4Addr::LOCALHOST)
    }

    fn context() -> RequestContext {
        RequestContext { agent: agent_with(FilteringResolver::to(only_one)), jar: Arc::default() }
    }

    #[test]
    fn a_redirection_cannot_lead_inside() {
        let (port, _) = serve(
            "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.2:PORT/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        );
        let failure = perform(&context(), &request(format!("http://127.0.0.1:{port}/")));
        let Err(HttpFailure::Failed(why)) = failure else { panic!("{failure:?}") };
        assert!(why.starts_with("the address is private"), "{why}");
    }

    #[test]
    fn secrets_stay_with_the_server_they_were_meant_for() {
        let (away, away_requests) =
            serve("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
        let (home, home_requests) = serve(&format!(
            "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:{away}/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        ));
        let mut request = request(format!("127.0.0.1:{home}"));
        request.auth = Some(Auth::Basic { user: "u".to_owned(), pass: "p".to_owned() });
        request.headers = vec![("Cookie".to_owned(), "secret".to_owned()), ("X".to_owned(), "y".to_owned())];
        let answer = perform(&context(), &request);
        assert_eq!(answer.map(|answer| answer.body), Ok(b"ok".to_vec()));
        for (asked, secrets) in [(home_requests, true), (away_requests, false)] {
            let head = asked.recv().expect("a request");
            assert!(head.contains("x: y"), "{head}");
            assert_eq!(head.contains("authorization: basic dtpw"), secrets, "{head}");
            assert_eq!(head.contains("cookie: secret"), secrets, "{head}");
        }
    }

    #[test]
    fn a_request_is_cancelled_with_its_query() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        let cancel = Arc::new(Cancel::new());
        let told = cancel.clone();
        thread::spawn(move || {
            // The request arrives and is never answered.
            let stream = listener.accept();
            told.set();
            thread::sleep(Duration::from_secs(60));
            drop(stream);
        });
        let mut session = OutboundHttp::new(HttpReach::Everything).session();
        let request = request(format!("http://127.0.0.1:{port}/"));
        assert_eq!(session.send(&request, &cancel), Err(HttpFailure::Cancelled));
    }
}
