//! The output of a command: lines for people, or one JSON object a line.

use serde_json::{Value, json};

/// The form of the output. Results go to standard output, progress to standard error (with JSON all goes to standard output).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Output {
    Lines,
    Json,
}

impl Output {
    /// A result: as lines, or as an object with `event`.
    pub fn result(self, event: &str, lines: &[String], value: Value) {
        match self {
            Output::Lines => lines.iter().for_each(|line| println!("{line}")),
            Output::Json => println!("{}", with_event(event, value)),
        }
    }

    /// A sentence about what happens.
    pub fn say(self, text: &str) {
        match self {
            Output::Lines => eprintln!("{text}"),
            Output::Json => println!("{}", json!({"event": "message", "text": text})),
        }
    }
}

fn with_event(event: &str, value: Value) -> Value {
    match value {
        Value::Object(mut members) => {
            members.insert("event".to_owned(), json!(event));
            Value::Object(members)
        }
        other => json!({"event": event, "value": other}),
    }
}
