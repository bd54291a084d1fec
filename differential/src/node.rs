//! The node under test: in this process and in memory, or a program.

use query::QueryError;
use reql::ErrorClass;
use serde_json::{Value as Json, json};

use crate::fault::Class;
use crate::generate::{Query, term};
use crate::test_node::{Outcome, TestNode};
use crate::test_tables::TestTables;
use crate::value::Val;
use crate::verdict::Answer;
use crate::wire::Wire;

/// A node with the test tables.
pub enum Node {
    /// In this process, in memory.
    Test(Box<TestNode>),
    /// A program, by the driver protocol.
    Program(Wire),
}

/// The kind of node.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    /// A node in memory.
    Local,
    /// A node in memory without replicas, which sends every request to another node.
    Remote,
    /// The program at this address; all tables of its database `test` are dropped.
    Program(&'a str),
}

/// Drops every table of the database `test`.
fn clearing() -> Json {
    let test = || term(14, [json!("test")]);
    let drop = term(61, [test(), term(10, [json!(1)])]);
    term(68, [term(62, [test()]), term(69, [term(2, [json!(1)]), drop])])
}

impl Node {
    /// Starts or connects to the node and creates exactly these tables.
    pub fn of(tables: &TestTables, target: Target<'_>) -> anyhow::Result<Node> {
        let mut node = match target {
            Target::Local => Node::Test(Box::new(TestNode::new())),
            Target::Remote => Node::Test(Box::new(TestNode::remote(None))),
            Target::Program(address) => Node::Program(Wire::connect(address)?),
        };
        let clearing = matches!(target, Target::Program(_)).then(clearing);
        for term in clearing.iter().chain(&tables.setup) {
            if let Answer::Fault(class) = node.run(&term.clone().into())?.0 {
                anyhow::bail!("{term} failed: {class:?}");
            }
        }
        Ok(node)
    }

    /// The result of the node, and the text of its error if it is one.
    pub fn run(&mut self, query: &Query) -> anyhow::Result<(Answer, String)> {
        let test_node = match self {
            Node::Test(node) => node,
            Node::Program(wire) => return wire.run(query),
        };
        let class = |error: &reql::EvalError| match error.class() {
            ErrorClass::QueryLogic => Ok(Class::Logic),
            ErrorClass::NonExistence => Ok(Class::NonExistence),
            ErrorClass::ResourceLimit => Ok(Class::Resource),
            ErrorClass::User => Ok(Class::User),
            ErrorClass::OpFailed => Ok(Class::OpFailed),
            other => anyhow::bail!("{} {}", other.name(), error.message()),
        };
        Ok(match test_node.run("admin", query.term.clone(), query.options()) {
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

    /// Whether it has the pages and scripts that the reference knows.
    #[must_use]
    pub fn has_test_pages(&self) -> bool {
        matches!(self, Node::Test(_))
    }
}

fn value(text: &str) -> anyhow::Result<Val> {
    Ok(Val::of_json(&serde_json::from_str(text)?))
}
