//! New passwords of users: those of the source cannot be read.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::error::InputError;

/// Passwords by user.
pub type Passwords = BTreeMap<String, String>;

/// Reads a file with a JSON object of users and their new passwords. Fails if it is another thing.
pub fn read_passwords(path: &Path) -> Result<Passwords, InputError> {
    let text = fs::read_to_string(path)
        .map_err(|error| InputError::new(format!("--new-passwords {}: {error}", path.display())))?;
    serde_json::from_str(&text).map_err(|error| {
        InputError::new(format!(
            "--new-passwords {}: {error}; the file has one JSON object: {{\"user\": \"password\", …}}",
            path.display()
        ))
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::read_passwords;

    #[test]
    fn passwords_are_an_object() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(br#"{"ann": "x"}"#).unwrap();
        assert_eq!(read_passwords(file.path()).unwrap()["ann"], "x");
        file.write_all(b"]").unwrap();
        assert!(read_passwords(file.path()).unwrap_err().to_string().contains("JSON object"));
        assert!(read_passwords("/no/such/file".as_ref()).is_err());
    }
}
