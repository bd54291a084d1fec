//! The content of a directory as a value: read from the file system, and written to it.

use std::collections::BTreeMap;
use std::fs;
use std::io::Result;
use std::path::Path;

/// A directory or a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    Dir,
    File(Vec<u8>),
}

/// Everything inside a directory, by its path relative to it. A directory stands before its content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree(pub BTreeMap<String, Node>);

impl Tree {
    /// Reads everything inside `root`; nothing, if there is no such directory. Fails for anything but files and directories
    /// with names in UTF-8.
    pub fn read(root: &Path) -> Result<Tree> {
        let mut tree = Tree::default();
        if root.exists() {
            tree.read_into(root, "")?;
        }
        Ok(tree)
    }

    fn read_into(&mut self, root: &Path, folder: &str) -> Result<()> {
        for entry in fs::read_dir(root.join(folder))? {
            let entry = entry?;
            let name = entry.file_name().into_string();
            let name = name.map_err(|name| std::io::Error::other(format!("{name:?} is not in UTF-8")))?;
            let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
            let kind = entry.file_type()?;
            if kind.is_dir() {
                self.0.insert(path.clone(), Node::Dir);
                self.read_into(root, &path)?;
            } else if kind.is_file() {
                self.0.insert(path, Node::File(fs::read(entry.path())?));
            } else {
                return Err(std::io::Error::other(format!("{path} is neither a file nor a directory")));
            }
        }
        Ok(())
    }

    /// Makes the content of `root`, which has that of `before`, equal to this one.
    pub fn write(&self, root: &Path, before: &Tree) -> Result<()> {
        for (path, node) in before.0.iter().rev() {
            match (node, self.0.get(path)) {
                (Node::File(_), None | Some(Node::Dir)) => fs::remove_file(root.join(path))?,
                (Node::Dir, None | Some(Node::File(_))) => fs::remove_dir(root.join(path))?,
                _ => {}
            }
        }
        fs::create_dir_all(root)?;
        for (path, node) in &self.0 {
            match node {
                Node::Dir if before.0.get(path) != Some(node) => fs::create_dir(root.join(path))?,
                // A new file: the old one may have another name.
                Node::File(bytes) if before.0.get(path) != Some(node) => {
                    let place = root.join(path);
                    if place.exists() {
                        fs::remove_file(&place)?;
                    }
                    fs::write(place, bytes)?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_tree_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("data");
        let file = |text: &str| Node::File(text.as_bytes().to_vec());
        let first = [("a", Node::Dir), ("a/b", file("one")), ("c", file("two")), ("d", Node::Dir)];
        let first = Tree(first.map(|(path, node)| (path.to_owned(), node)).into());
        first.write(&root, &Tree::default()).unwrap();
        assert_eq!(Tree::read(&root).unwrap(), first);
        let second = [("a", file("a file now")), ("c", file("three")), ("d", Node::Dir), ("d/e", file(""))];
        let second = Tree(second.map(|(path, node)| (path.to_owned(), node)).into());
        second.write(&root, &first).unwrap();
        assert_eq!(Tree::read(&root).unwrap(), second);
    }
}
