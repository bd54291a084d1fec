//! Files of cases: a directive, an input, four dashes, an output; an empty line between cases.

use std::fs;
use std::path::{Path, PathBuf};

/// Runs every case of every file in `folder` and compares, or rewrites under `UPDATE=1`.
pub fn run(folder: &str, answer: impl Fn(&str, &str) -> String) {
    let update = std::env::var_os("UPDATE").is_some();
    let mut wrong = 0;
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .expect("the folder of cases is there")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no cases in {folder}");
    for path in files {
        wrong += run_file(&path, &answer, update);
    }
    assert_eq!(wrong, 0, "cases whose output differs; UPDATE=1 rewrites them");
}

fn run_file(path: &Path, answer: &impl Fn(&str, &str) -> String, update: bool) -> usize {
    let text = fs::read_to_string(path).expect("a file of cases is text");
    let mut wrong = 0;
    let mut blocks = Vec::new();
    for block in text.trim_end().split("\n\n") {
        let Some((head, expected)) = split_case(block) else {
            blocks.push(block.to_owned());
            continue;
        };
        let lines: Vec<&str> = head.lines().filter(|line| !line.starts_with('#')).collect();
        let (directive, input) = lines.split_first().expect("a case has a directive");
        let found = answer(directive, &input.join("\n"));
        if found.trim_end() != expected {
            wrong += 1;
            if !update {
                let name = path.display();
                println!("{name}\n{head}\n---- expected\n{expected}\n---- found\n{found}\n");
            }
        }
        blocks.push(format!("{head}\n----\n{}", found.trim_end()));
    }
    if update {
        fs::write(path, blocks.join("\n\n") + "\n").expect("a file of cases can be written");
        return 0;
    }
    wrong
}

fn split_case(block: &str) -> Option<(&str, &str)> {
    if let Some(head) = block.strip_suffix("\n----") {
        return Some((head, ""));
    }
    block.split_once("\n----\n")
}
