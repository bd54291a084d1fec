//! Parts of messages between nodes: pipelines, partial results, errors, values.

use datum::{Bytes, Datum};
use reql::codec::{Codec, Packer, UnpackError, Unpacker};
use reql::wire::parse_term;
use reql::{Closure, EvalError, Pipeline, ResultKind, Scope, Tally, Term, Terminal, Transform};

use super::{Outcome, Target};

pub struct MessageParts;

impl Target for MessageParts {
    fn name(&self) -> &'static str {
        "codec"
    }

    fn seeds(&self) -> Vec<Vec<u8>> {
        let add = closure(b"[69,[[2,[1,2]],[24,[[10,[1]],[10,[2]]]]]]");
        let map = closure(b"[69,[[2,[1]],{\"a\":[10,[1]],\"b\":[2,[1,null]]}]]");
        let mut seeds = Vec::new();
        for terminal in [Terminal::Collect, Terminal::Count, Terminal::Sum(None), Terminal::Distinct] {
            seeds.push(seed(1, &terminal.start_tally()));
        }
        for (step, terminal) in map.map(Transform::Map).into_iter().zip(add.map(Terminal::Reduce)) {
            let (group, grouped_steps) = (None, vec![Transform::Zip]);
            seeds.push(seed(0, &Pipeline { steps: vec![step], group, grouped_steps, terminal }));
        }
        seeds.push(seed(2, &EvalError::logic("wrong").at(1_usize).at("index")));
        let values: Datum = vec![Datum::MaxVal, "text".into(), Datum::Number(0.5), Datum::Null].into();
        seeds.push(seed(3, &values));
        seeds
    }

    fn dictionary(&self) -> &'static [&'static [u8]] {
        &[b"\0", b"\x01", b"\x02", b"\x03", b"\x05", b"\x06\x01\x01a\0", b"\x80\x01", b"\xff\xff\xff\xff\x0f"]
    }

    fn check(&self, input: &[u8]) -> Outcome {
        let Some((kind, rest)) = input.split_first() else { return Outcome::of("nothing") };
        let bytes = Bytes::copy_from_slice(rest);
        match kind % 4 {
            0 => round_trips::<Pipeline>(bytes),
            1 => round_trips::<Tally>(bytes),
            2 => round_trips::<EvalError>(bytes),
            _ => round_trips::<Datum>(bytes),
        }
    }
}

/// An empty tally of a terminal.
trait StartTally {
    fn start_tally(&self) -> Tally;
}

impl StartTally for Terminal {
    fn start_tally(&self) -> Tally {
        Tally::Whole(self.start())
    }
}

fn closure(wire: &[u8]) -> Option<Closure> {
    match parse_term(wire) {
        Ok(Term::Func(func)) => reql::closure(&func, &Scope::empty(), ResultKind::Datum).ok(),
        _ => None,
    }
}

fn seed(kind: u8, value: &impl Codec) -> Vec<u8> {
    let mut bytes = vec![kind];
    bytes.extend_from_slice(&packed(value));
    bytes
}

fn packed(value: &impl Codec) -> Bytes {
    let mut out = Packer::default();
    value.pack(&mut out);
    out.finish().expect("the decoded value is small")
}

fn unpacked<T: Codec>(bytes: Bytes) -> Result<T, UnpackError> {
    let mut from = Unpacker::new(bytes);
    let value = T::unpack(&mut from)?;
    from.end()?;
    Ok(value)
}

/// A decoded value can be encoded and decoded again.
fn round_trips<T: Codec>(bytes: Bytes) -> Outcome {
    match unpacked::<T>(bytes) {
        Err(error) => Outcome::of(error.what),
        Ok(value) => {
            let once = packed(&value);
            match unpacked::<T>(once.clone()) {
                // Groups come in any order.
                Ok(again) => assert_eq!(packed(&again).len(), once.len()),
                Err(error) => panic!("an encoded value is refused: {error}"),
            }
            Outcome::of(("decoded", once.len().min(64) / 8))
        }
    }
}
