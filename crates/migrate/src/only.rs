//! `--only db[.table]`: the part of a cluster that is moved.

use std::str::FromStr;

use crate::error::InputError;

/// A database, or one table of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Only {
    pub db: String,
    pub table: Option<String>,
}

impl FromStr for Only {
    type Err = InputError;

    fn from_str(text: &str) -> Result<Only, InputError> {
        let (db, table) = match text.split_once('.') {
            None => (text, None),
            Some((db, table)) => (db, Some(table)),
        };
        if [Some(db), table].into_iter().flatten().any(|name| name.is_empty() || name.contains('.')) {
            return Err(InputError::new("give a database, or database.table"));
        }
        Ok(Only { db: db.to_owned(), table: table.map(str::to_owned) })
    }
}

impl std::fmt::Display for Only {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.table {
            None => f.write_str(&self.db),
            Some(table) => write!(f, "{}.{table}", self.db),
        }
    }
}

/// Whether the database is moved, wholly or in part. Everything is without `--only`.
pub fn has_db(only: &[Only], db: &str) -> bool {
    only.is_empty() || only.iter().any(|one| one.db == db)
}

/// Whether the table is moved.
pub fn has_table(only: &[Only], db: &str, table: &str) -> bool {
    let matches = |one: &Only| one.db == db && one.table.as_deref().is_none_or(|name| name == table);
    only.is_empty() || only.iter().any(matches)
}

/// Finds the first of `only` that the source does not have; the error names a similar name. `names` are all databases with their
/// tables.
pub fn check(only: &[Only], names: &[(String, Vec<String>)]) -> Result<(), InputError> {
    for one in only {
        let Some((_, tables)) = names.iter().find(|(db, _)| *db == one.db) else {
            return Err(missing(one, "database", &one.db, names.iter().map(|(db, _)| db.as_str())));
        };
        if let Some(table) = &one.table
            && !tables.contains(table)
        {
            return Err(missing(one, "table", table, tables.iter().map(String::as_str)));
        }
    }
    Ok(())
}

fn missing<'a>(one: &Only, what: &str, name: &str, known: impl Iterator<Item = &'a str>) -> InputError {
    let known: Vec<&str> = known.collect();
    let other_case = known.iter().find(|other| other.eq_ignore_ascii_case(name));
    let hint = match (other_case, known.is_empty()) {
        (Some(other), _) => format!("there is `{other}`; names differ by case"),
        (None, true) => "there is none".to_owned(),
        (None, false) => format!("there are {}", known.join(", ")),
    };
    InputError::new(format!("--only {one}: the source has no {what} `{name}`: {hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(texts: &[&str]) -> Vec<Only> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn parts_are_chosen_by_name() {
        let chosen = only(&["shop", "blog.posts"]);
        assert!(has_db(&chosen, "blog") && !has_db(&chosen, "other") && has_db(&[], "other"));
        assert!(has_table(&chosen, "shop", "x") && has_table(&chosen, "blog", "posts"));
        assert!(!has_table(&chosen, "blog", "users") && has_table(&[], "blog", "users"));
        for bad in ["", ".a", "a.", "a.b.c"] {
            // The command line puts the flag before it.
            assert_eq!(bad.parse::<Only>().unwrap_err().to_string(), "give a database, or database.table");
        }
    }

    #[test]
    fn a_missing_name_is_named_with_a_similar_one() {
        let names = [("shop".to_owned(), vec!["Users".to_owned()])];
        assert!(check(&only(&["shop.Users", "shop"]), &names).is_ok());
        let said = check(&only(&["shop.users"]), &names).unwrap_err().to_string();
        assert!(said.contains("no table `users`: there is `Users`"), "{said}");
        assert!(check(&only(&["Shop"]), &names).unwrap_err().to_string().contains("there is `shop`"));
    }
}
