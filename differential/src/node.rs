//! The node that is tested: in this process, in memory.

use serde_json::{Map, Value as Json};

use query::QueryError;
use reql::ErrorClass;

use crate::fault::Class;
use crate::house::{House, Outcome};
use crate::stage::Stage;
use crate::value::Val;
use crate::verdict::Answer;

/// A node with the tables of a stage.
pub struct Node(House);

impl Node {
    /// A new node; `far` puts everything it does behind questions to another one.
    pub fn of(stage: &Stage, far: bool) -> anyhow::Result<Node> {
        let node = Node(if far { House::far(None) } else { House::new() });
        for term in &stage.setup {
            if let Answer::Fault(class) = node.run(term)?.0 {
                anyhow::bail!("{term} failed: {class:?}");
            }
        }
        Ok(node)
    }

    /// What the node answers, and the text of the error if that is an error.
    pub fn run(&self, term: &Json) -> anyhow::Result<(Answer, String)> {
        let class = |error: &reql::EvalError| match error.class() {
            ErrorClass::QueryLogic => Ok(Class::Logic),
            ErrorClass::NonExistence => Ok(Class::NonExistence),
            ErrorClass::ResourceLimit => Ok(Class::Resource),
            ErrorClass::User => Ok(Class::User),
            ErrorClass::OpFailed => Ok(Class::OpFailed),
            other => anyhow::bail!("{} {}", other.name(), error.message()),
        };
        Ok(match self.0.run("admin", term.clone(), Map::new()) {
            Ok(Outcome::Atom(datum)) => (Answer::Atom(value(&datum.to_json_string())?), String::new()),
            Ok(Outcome::Stream(batches)) => {
                let items = batches.concat();
                let items: Result<Vec<Val>, _> =
                    items.iter().map(|item| value(&item.to_json_string())).collect();
                (Answer::Stream(items?), String::new())
            }
            Err(QueryError::Eval(error)) => (Answer::Fault(class(&error)?), error.message().to_owned()),
            Err(other) => anyhow::bail!("{other}"),
        })
    }
}

fn value(text: &str) -> anyhow::Result<Val> {
    Ok(Val::of_json(&serde_json::from_str(text)?))
}
