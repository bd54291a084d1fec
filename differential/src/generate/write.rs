//! Writes, into the table `w`.

use serde_json::{Value as Json, json};

use super::{Generator, Kind, term, term_with};

impl Generator {
    pub(super) fn write(&mut self, depth: usize) -> Json {
        let told = self
            .chance
            .pick(&[json!({}), json!({"return_changes": true}), json!({"return_changes": "always"})])
            .clone();
        let depth = depth.min(3);
        let target = self.target(depth);
        match self.chance.below(9) {
            0..=2 => {
                let rows: Vec<Json> = (0..1 + self.chance.below(3)).map(|_| self.written()).collect();
                let conflict = *self.chance.pick(&["error", "replace", "update", "error"]);
                let mut options = told;
                options["conflict"] = json!(conflict);
                term_with(56, [term(15, [json!("w")]), term(2, rows)], options)
            }
            3..=5 => {
                let patch = self.patch(depth);
                term_with(53, [target, patch], told)
            }
            6 => {
                let row = self.func(&[Kind::Row], Kind::Row, depth);
                term_with(55, [target, row], told)
            }
            7 => term_with(54, [target], told),
            _ => {
                let insert = term_with(
                    56,
                    [term(15, [json!("w")]), term(10, [json!(905)])],
                    json!({"conflict": "replace"}),
                );
                let rows = term(51, [self.ordered_rows(1), json!("array")]);
                term(68, [term(71, [rows, json!(3)]), term(69, [term(2, [json!(905)]), insert])])
            }
        }
    }

    pub(super) fn written(&mut self) -> Json {
        let mut row = self.row_constant();
        if self.chance.once_in(12) {
            return self.number();
        }
        row["id"] = self.key();
        row
    }

    fn target(&mut self, depth: usize) -> Json {
        let table = term(15, [json!("w")]);
        match self.chance.below(5) {
            0 => table,
            1 => term(182, [table, json!(2), json!(7)]),
            2 => {
                let test = self.func(&[Kind::Row], Kind::Bool, depth);
                term(39, [table, test])
            }
            _ => term(16, [table, json!(self.chance.below(14))]),
        }
    }
}
