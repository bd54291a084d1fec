//! Encodes a session's answer as the frame that is sent.

use protocol::response::{self, BatchParts, More};
use protocol::{Failure, Token};

use crate::service::{Answer, Batch, Cursor};

/// Appends the frame of `answer`. Returns the cursor if more batches may follow.
pub fn write(out: &mut Vec<u8>, token: Token, answer: Result<Answer, Failure>) -> Option<Box<dyn Cursor>> {
    match answer {
        Err(failure) => {
            response::write_failure(out, token, &failure);
            None
        }
        Ok(Answer::Atom { value, profile }) => {
            response::write_atom(out, token, &value, profile.as_ref());
            None
        }
        Ok(Answer::Texts(items)) => {
            response::write_texts(out, token, items);
            None
        }
        Ok(Answer::Stream { batch, cursor }) => {
            let cursor = cursor.filter(|_| !batch.done);
            write_batch(out, token, &batch);
            cursor
        }
    }
}

fn write_batch(out: &mut Vec<u8>, token: Token, batch: &Batch) {
    let more = if batch.done { More::Ended } else { More::MayFollow };
    let profile = batch.profile.as_ref();
    response::write_batch(out, token, BatchParts { items: &batch.items, more, notes: &batch.notes, profile });
}
