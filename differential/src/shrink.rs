//! Reduces a query that differs.

use serde_json::Value as Json;

/// The most smaller queries that are tried.
const TRIES: usize = 4_000;

/// The smallest query found for which `differs` holds, beginning with `query`.
pub fn shrink(query: Json, mut differs: impl FnMut(&Json) -> bool) -> Json {
    let mut best = query;
    let mut tries = 0;
    'again: loop {
        for smaller in smaller(&best) {
            tries += 1;
            if tries > TRIES {
                return best;
            }
            if size(&smaller) < size(&best) && differs(&smaller) {
                best = smaller;
                continue 'again;
            }
        }
        return best;
    }
}

/// The size for a reader; plain constants are the smallest.
fn size(query: &Json) -> usize {
    match query {
        Json::Array(parts) => 2 + parts.iter().map(size).sum::<usize>(),
        Json::Object(members) => 2 + members.values().map(|value| 1 + size(value)).sum::<usize>(),
        Json::Number(n) if n.as_f64() == Some(1.0) => 1,
        Json::Null => 1,
        _ => 2,
    }
}

/// Queries with one part of `query` removed or simplified.
fn smaller(query: &Json) -> Vec<Json> {
    let mut out = Vec::new();
    match query {
        Json::Array(parts) if parts.len() >= 2 => {
            let args = parts[1].as_array().cloned().unwrap_or_default();
            // A term is replaced by one of its arguments, or a constant.
            out.extend(
                args.iter().filter(|arg| !matches!(arg, Json::Array(inner) if inner.is_empty())).cloned(),
            );
            if parts[0] == 69 {
                let mut with_body = |body: Json| {
                    out.push(Json::from(vec![parts[0].clone(), Json::from(vec![args[0].clone(), body])]))
                };
                smaller(&args[1]).into_iter().for_each(&mut with_body);
                with_body(Json::from(1));
                return out;
            }
            out.extend([Json::from(1), Json::Null]);
            if parts.len() > 2 {
                out.push(Json::from(parts[..2].to_vec()));
                let with_options =
                    |options: Json| Json::from(vec![parts[0].clone(), parts[1].clone(), options]);
                out.extend(smaller_members(&parts[2]).into_iter().map(with_options));
            }
            let with_args = |args: Vec<Json>| {
                let mut parts = parts.clone();
                parts[1] = Json::from(args);
                Json::from(parts)
            };
            for i in 0..args.len() {
                let mut fewer = args.clone();
                fewer.remove(i);
                out.push(with_args(fewer));
                for part in smaller(&args[i]) {
                    let mut args = args.clone();
                    args[i] = part;
                    out.push(with_args(args));
                }
            }
        }
        Json::Object(_) => {
            out.push(Json::from(1));
            out.extend(smaller_members(query));
        }
        Json::String(text) if !text.is_empty() => out.extend([Json::from(1), Json::Null]),
        Json::Number(n) if n.as_f64() != Some(1.0) => out.push(Json::from(1)),
        _ => {}
    }
    out
}

fn smaller_members(members: &Json) -> Vec<Json> {
    let Some(members) = members.as_object() else { return Vec::new() };
    let mut out = Vec::new();
    for (name, value) in members {
        let mut fewer = members.clone();
        fewer.remove(name);
        out.push(Json::from(fewer));
        for part in smaller(value) {
            let mut members = members.clone();
            members.insert(name.clone(), part);
            out.push(Json::from(members));
        }
    }
    out
}
