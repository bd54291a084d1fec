//! A blocking connection for unmeasured queries: creating tables, reading versions and side tables.

use serde_json::{Value, json};

use crate::answer::{self, Failure, PARTIAL};
use crate::dial::{DialError, dial};
use crate::handshake::Login;
use crate::session::Session;
use crate::transport::Transport;

/// Why a query failed.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The server returned an error.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// The connection was lost.
    #[error("the connection broke")]
    Io(#[from] std::io::Error),
}

/// A logged-in connection for one query at a time.
pub struct Admin {
    session: Session,
    /// The server's version text.
    pub server_version: String,
}

impl From<Session> for Admin {
    fn from(session: Session) -> Admin {
        Admin { server_version: session.server_version.clone(), session }
    }
}

impl Admin {
    /// Connects and logs in.
    pub fn connect(address: &str, login: &Login) -> Result<Self, DialError> {
        Session::over(Transport::Plain(dial(address)?), address, login).map(Admin::from)
    }

    /// Runs `term` and returns its value; for a stream, its first batch as an array.
    pub fn ask(&mut self, term: &Value) -> Result<Value, AskError> {
        self.ask_with(term, &json!({}))
    }

    /// [`Admin::ask`] with query options.
    pub fn ask_with(&mut self, term: &Value, options: &Value) -> Result<Value, AskError> {
        let mut rows = Vec::new();
        let (token, t) = self.start(term, options, |row| rows.push(row))?;
        if t == PARTIAL {
            self.session.send_stop(token)?;
            self.receive()?;
        }
        Ok(match t {
            answer::ATOM => rows.pop().unwrap_or(Value::Null),
            _ => Value::Array(rows),
        })
    }

    /// Runs `term` and calls `each` with every row of its stream.
    pub fn stream(&mut self, term: &Value, mut each: impl FnMut(Value)) -> Result<(), AskError> {
        let (token, mut t) = self.start(term, &json!({}), &mut each)?;
        while t == PARTIAL {
            self.session.send_continue(token)?;
            let answer = self.receive()?;
            t = answer.t;
            answer.r.into_iter().for_each(&mut each);
        }
        Ok(())
    }

    /// Name and id of the server.
    pub fn server_info(&mut self) -> Result<(Option<String>, Option<String>), AskError> {
        self.session.send(b"[5]")?;
        let answer = self.receive()?;
        let info = answer.r.first().cloned().unwrap_or(Value::Null);
        let text = |name: &str| info[name].as_str().map(str::to_owned);
        Ok((text("name"), text("id")))
    }

    fn start(
        &mut self,
        term: &Value,
        options: &Value,
        each: impl FnMut(Value),
    ) -> Result<(u64, u8), AskError> {
        let token = self.session.send(json!([1, term, options]).to_string().as_bytes())?;
        let answer = self.receive()?;
        answer.r.into_iter().for_each(each);
        Ok((token, answer.t))
    }

    fn receive(&mut self) -> Result<answer::Answer, AskError> {
        Ok(answer::parse(&self.session.receive()?.body)?)
    }
}
