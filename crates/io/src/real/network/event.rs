//! The tokens and events of the event queue.

use mio::Token;

use crate::network::ConnectionId;

/// The token of wake-ups: by a `LoopWaker`, or by a finished name lookup.
pub(super) const WAKER: Token = Token(usize::MAX);
/// The most listeners; their tokens are those below the waker's.
pub(super) const LISTENERS_MAX: usize = 1024;

/// The readiness of a connection.
pub(super) struct Readiness {
    pub(super) readable: bool,
    pub(super) writable: bool,
    pub(super) ending: bool,
    pub(super) failed: bool,
}

impl Readiness {
    pub(super) fn of(event: &mio::event::Event) -> Readiness {
        Readiness {
            readable: event.is_readable(),
            writable: event.is_writable(),
            ending: event.is_read_closed() || event.is_error(),
            failed: event.is_error() || event.is_write_closed(),
        }
    }
}

// A token is the number of the id; ids never get near the reserved tokens.
pub(super) fn token_of(id: ConnectionId) -> Token {
    Token(id.number() as usize)
}

pub(super) fn id_of(token: Token) -> ConnectionId {
    ConnectionId::from_number(token.0 as u64)
}

pub(super) fn listener_token(index: usize) -> Token {
    Token(usize::MAX - 1 - index)
}

pub(super) fn listener_index(token: Token) -> Option<usize> {
    let index = (usize::MAX - 1).checked_sub(token.0)?;
    (index < LISTENERS_MAX).then_some(index)
}
