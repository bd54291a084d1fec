//! Room for large responses: a client that takes its responses slowly, or not at all, must not use up the memory.

use ::io::memory::{Budget, OverBudget, Owner, Reservation};
use protocol::{Failure, Token, response};
use reql::EvalError;

use crate::service::Answer;

/// A value of at least this size is only encoded, and a batch only kept for the client, if the memory for connections has
/// room for it.
const LARGE_RESPONSE_BYTES: u64 = 64 << 10;

/// Checks that a large value fits: parts that are shared in memory are repeated in the encoding.
pub(super) fn with_room(answer: Result<Answer, Failure>, memory: &Budget) -> Result<Answer, Failure> {
    let bytes = match &answer {
        Ok(Answer::Atom { value, .. }) => value.json_size_to(u32::MAX as usize) as u64,
        Ok(Answer::Texts(texts)) => texts.len() as u64,
        // A batch ends after a megabyte, and is checked when it is encoded.
        Ok(Answer::Stream { .. }) | Err(_) => 0,
    };
    if bytes >= LARGE_RESPONSE_BYTES {
        memory.check(Owner::Connections, bytes).map_err(EvalError::memory)?;
    }
    answer
}

/// Charges the memory for connections with an encoded response. Fails if the response is large and there is no room.
pub(super) fn charge(hold: &mut Reservation, frame: &[u8], capacity: usize) -> Result<(), OverBudget> {
    if frame.len() as u64 >= LARGE_RESPONSE_BYTES {
        return hold.grow_to(capacity as u64);
    }
    hold.set(capacity as u64);
    Ok(())
}

/// The response to a query whose real response finds no room.
pub(super) fn refusal(token: Token, over: OverBudget) -> Vec<u8> {
    let mut frame = Vec::new();
    response::write_failure(&mut frame, token, &Failure::from(EvalError::memory(over)));
    frame
}
