//! Circles of a directed graph.

use std::collections::{BTreeMap, BTreeSet};

/// For each node the nodes that it has an edge to.
pub(super) type Edges<N> = BTreeMap<N, BTreeSet<N>>;

/// Sets of nodes that reach each other.
pub(super) fn circles<N: Ord + Clone>(edges: &Edges<N>) -> Vec<Vec<N>> {
    let mut found: Vec<Vec<N>> = Vec::new();
    for start in edges.keys() {
        let reached = reach(start, edges);
        if reached.contains(start) {
            let circle: Vec<N> =
                reached.into_iter().filter(|other| reach(other, edges).contains(start)).collect();
            if !found.contains(&circle) {
                found.push(circle);
            }
        }
    }
    found
}

fn reach<N: Ord + Clone>(start: &N, edges: &Edges<N>) -> BTreeSet<N> {
    let mut reached = BTreeSet::new();
    let mut todo = vec![start];
    while let Some(node) = todo.pop() {
        for next in edges.get(node).into_iter().flatten() {
            if reached.insert(next.clone()) {
                todo.push(next);
            }
        }
    }
    reached
}
