//! How long a function can take, seen from its text alone: who serves many clients on one thread runs there
//! only what is soon over, and leaves the rest to a thread of its own, where it can be told to stop.

use crate::signature::Op;
use crate::term::{FuncTerm, Term};

/// How long a call of a function can take, least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effort {
    /// No longer than it takes to look at its arguments a few times: no function within it, few terms.
    Brief,
    /// No longer than it takes to walk over what its arguments hold: functions within it, none of which holds
    /// another.
    Walk,
    /// Nobody knows.
    Open,
}

/// A function of more terms is not brief, whatever they are.
const TERMS_MAX: usize = 500;

/// How long a call of `func` can take.
#[must_use]
pub fn of_func(func: &FuncTerm) -> Effort {
    let mut terms = TERMS_MAX;
    of_term(&func.body, 0, &mut terms)
}

/// `depth` functions of those within stand around it; `terms` more may follow.
fn of_term(term: &Term, depth: usize, terms: &mut usize) -> Effort {
    match terms.checked_sub(1) {
        Some(left) => *terms = left,
        None => return Effort::Open,
    }
    match term {
        Term::Datum(_) | Term::Var(_) => Effort::Brief,
        Term::Func(func) if depth == 0 => of_term(&func.body, 1, terms).max(Effort::Walk),
        Term::Func(_) => Effort::Open,
        // What they make has no bound in their arguments, or one that grows with every step.
        Term::Call(call) if matches!(call.op, Op::Range | Op::Reduce | Op::Fold | Op::Circle) => Effort::Open,
        Term::Call(call) => {
            let optargs = call.optargs.iter().map(|(_, term)| term);
            let mut most = Effort::Brief;
            for part in call.args.iter().chain(optargs) {
                most = most.max(of_term(part, depth, terms));
                if most == Effort::Open {
                    break;
                }
            }
            most
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stored::StoredFunc;

    #[track_caller]
    fn takes(body: &str, effort: Effort) {
        let text = format!("[69,[[2,[1]],{body}]]");
        assert_eq!(StoredFunc::parse(text.into()).expect("a function").effort(), effort, "{body}");
    }

    const ROW: &str = "[10,[1]]";

    #[test]
    fn what_looks_at_a_row_is_brief() {
        takes(&format!(r#"[24,[[170,[{ROW},"n"]],1]]"#), Effort::Brief);
        takes(&format!(r#"{{"n":[24,[[170,[{ROW},"n"]],1]]}}"#), Effort::Brief);
    }

    #[test]
    fn what_walks_over_an_array_of_the_row_says_so() {
        let inner = |body: &str| format!("[69,[[2,[2]],{body}]]");
        let map = |func: &str| format!(r#"[38,[[170,[{ROW},"tags"]],{func}]]"#);
        takes(&map(&inner("[142,[[10,[2]]]]")), Effort::Walk);
        let nested = "[69,[[2,[3]],[10,[3]]]]";
        takes(&map(&inner(&format!("[38,[[10,[2]],{nested}]]"))), Effort::Open);
    }

    #[test]
    fn what_makes_much_of_little_has_no_bound() {
        takes("[43,[[173,[1000000000000]]]]", Effort::Open);
        let many = format!("[24,[{}1]]", "1,".repeat(TERMS_MAX));
        takes(&many, Effort::Open);
    }
}
