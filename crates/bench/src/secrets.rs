//! Removes passwords from command lines before they are stored in a result.

const HIDDEN: &str = "***";
/// Its value is an argument of a node's command line.
const NODE_FLAG: &str = "--node-flag";

/// Replaces the values of flags about passwords, whether they are in the same argument or the next, or themselves in
/// the value of `--node-flag`.
pub fn without_passwords(words: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut is_wanted = false;
    let hide = |word: String| {
        if is_wanted {
            if word == NODE_FLAG {
                return word;
            }
            is_wanted = false;
            // A password may begin like a flag: the argument after such a flag is always replaced.
            let is_of_node = word.starts_with(NODE_FLAG) && word.contains('=');
            return if is_of_node { format!("{NODE_FLAG}={HIDDEN}") } else { HIDDEN.to_owned() };
        }
        let about = word.to_ascii_lowercase().find("password").filter(|_| word.starts_with('-'));
        let Some(about) = about else { return word };
        match word.get(about..).and_then(|rest| rest.find('=')) {
            Some(value) => format!("{}={HIDDEN}", word.get(..about + value).unwrap_or_default()),
            None => {
                is_wanted = true;
                word
            }
        }
    };
    words.into_iter().map(hide).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn is_shown_as(words: &str, shown: &str) {
        assert_eq!(without_passwords(words.split(' ').map(str::to_owned)).join(" "), shown);
    }

    #[test]
    fn no_password_is_printed() {
        is_shown_as(
            "sweep --password a --password=b=c --user password=d",
            "sweep --password *** --password=*** --user password=d",
        );
        is_shown_as("--log=all --Password -e --cores 1", "--log=all --Password *** --cores 1");
    }

    #[test]
    fn nor_one_of_a_node() {
        is_shown_as("--node-flag=--initial-password=d -q", "--node-flag=--initial-password=*** -q");
        is_shown_as("--node-flag --initial-password=d -q", "--node-flag --initial-password=*** -q");
        is_shown_as(
            "--node-flag --initial-password --node-flag e -q",
            "--node-flag --initial-password --node-flag *** -q",
        );
        is_shown_as(
            "--node-flag=--initial-password --node-flag=e -q",
            "--node-flag=--initial-password --node-flag=*** -q",
        );
    }
}
