//! Doc comments of one line that only repeat the item under them.

use super::Finding;
use super::members::Source;

/// Words that add nothing to a name.
#[rustfmt::skip]
const EMPTY_WORDS: [&str; 55] = [
    "the", "a", "an", "its", "it", "of", "this", "that", "these", "is", "are", "was", "be", "has", "have", "for", "to",
    "returns", "return", "in", "on", "at", "by", "with", "as", "and", "or", "from", "into", "one", "each", "every", "all",
    "any", "they", "them", "their", "whether", "which", "whose", "what", "who", "if", "there", "here", "self", "own",
    "holds", "hold", "gives", "give", "given", "does", "do", "itself",
];

/// Finds the comments whose words are all in the line of their item, without [`EMPTY_WORDS`] and endings.
pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    sources.iter().flat_map(in_source).collect()
}

fn in_source(source: &Source) -> Vec<Finding> {
    let lines: Vec<&str> = source.text.lines().map(str::trim).collect();
    let repeats = |i: &usize| {
        let text = comment_alone(&lines, *i);
        text.zip(item(&lines[i + 1..])).is_some_and(|(text, item)| is_repetition(text, item))
    };
    (0..lines.len())
        .filter(repeats)
        .map(|i| {
            Finding::at(&source.path, i + 1, "repeats the item under it: say what that does not, or drop it")
        })
        .collect()
}

/// The text of a doc comment that is not part of a longer one.
fn comment_alone<'a>(lines: &[&'a str], i: usize) -> Option<&'a str> {
    let is_comment = |line: Option<&&str>| line.is_some_and(|line| line.starts_with("///"));
    let before = i.checked_sub(1).and_then(|before| lines.get(before));
    let text = lines[i].strip_prefix("/// ")?;
    (!is_comment(before) && !is_comment(lines.get(i + 1))).then_some(text)
}

/// The first line after the attributes. `None` where `clap` prints the comment as help.
fn item<'a>(lines: &[&'a str]) -> Option<&'a str> {
    let mut is_inside = false;
    for line in lines {
        if line.starts_with("#[arg") || line.starts_with("#[command") {
            return None;
        }
        if !is_inside && !line.starts_with("#[") {
            return line.split("//").next();
        }
        is_inside = !line.ends_with(']');
    }
    None
}

fn is_repetition(text: &str, item: &str) -> bool {
    let known: Vec<String> = words(item).iter().map(|word| stem(word)).collect();
    words(text)
        .iter()
        .filter(|word| !EMPTY_WORDS.contains(&word.as_str()))
        .all(|word| known.contains(&stem(word)))
}

/// Lower-case words and numbers; `snake_case` and `CamelCase` are several words.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut before = ' ';
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c.is_alphanumeric() {
            let ends_capitals = before.is_uppercase() && chars.peek().is_some_and(|next| next.is_lowercase());
            let starts = !before.is_alphanumeric()
                || before.is_numeric() != c.is_numeric()
                || (c.is_uppercase() && (before.is_lowercase() || ends_capitals));
            if starts {
                words.push(String::new());
            }
            words.last_mut().expect("invariant: the first character starts a word").extend(c.to_lowercase());
        }
        before = c;
    }
    words
}

/// The word without the endings of plurals and of verbs.
fn stem(word: &str) -> String {
    let singular = match word {
        _ if word.len() <= 2 || word.ends_with("ss") => word.to_owned(),
        _ if word.ends_with("ies") && word.len() > 4 => format!("{}y", word.trim_end_matches("ies")),
        _ if ["sses", "xes", "ches", "shes"].iter().any(|end| word.ends_with(end)) => {
            word.trim_end_matches("es").to_owned()
        }
        _ => word.trim_end_matches('s').to_owned(),
    };
    if singular.len() > 2 { singular.trim_end_matches('e').to_owned() } else { singular }
}

#[cfg(test)]
mod tests {
    use super::{comment_alone, is_repetition, item, stem, words};

    #[test]
    fn a_comment_of_the_name_alone_is_a_repetition() {
        assert!(is_repetition("The group.", "group: GroupId,"));
        assert!(is_repetition("Runs it.", "pub(crate) fn run(arguments: &[String]) -> ExitCode {"));
        assert!(is_repetition("Closes a cursor.", "Close { cursor: u64 },"));
        assert!(is_repetition("Whether the queue is empty.", "pub fn is_queue_empty(&self) -> bool {"));
        assert!(is_repetition("`GET`", "Get,"));
    }

    #[test]
    fn a_comment_that_adds_a_word_is_none() {
        assert!(!is_repetition("The group, or the last one.", "group: GroupId,"));
        assert!(!is_repetition("In microseconds.", "period: u64,"));
        assert!(!is_repetition("Not durable.", "fn write(&self);"));
    }

    #[test]
    fn only_comments_of_one_line_count() {
        let lines = ["/// A group.", "group: GroupId,", "/// A group.", "/// Zero is none.", "/// A group."];
        let alone: Vec<bool> = (0..lines.len()).map(|i| comment_alone(&lines, i).is_some()).collect();
        assert_eq!(alone, [true, false, false, false, false]);
    }

    #[test]
    fn attributes_may_stand_between_comment_and_item() {
        assert_eq!(item(&["#[derive(", "Clone", ")]", "pub struct A; // the first"]), Some("pub struct A; "));
        assert_eq!(item(&["#[arg(long)]", "nodes: u16,"]), None);
    }

    #[test]
    fn words_end_at_case_digits_and_underscores() {
        assert_eq!(
            words("HTTPServer max_bytes u64 `a.B`"),
            ["http", "server", "max", "bytes", "u", "64", "a", "b"]
        );
    }

    #[test]
    fn endings_do_not_count() {
        for (one, other) in [("entries", "entry"), ("closes", "close"), ("classes", "class"), ("runs", "run")]
        {
            assert_eq!(stem(one), stem(other));
        }
        assert_ne!(stem("is"), stem("i"));
    }
}
