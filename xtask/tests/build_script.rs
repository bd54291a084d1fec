//! The compiler flags of `tools/build`, with a stand-in compiler and a cargo that prints its arguments.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

#[path = "../../tests/support/executable.rs"]
mod executable;

use executable::write_executable;

const COMPILER: &str = "rustc 1.0.0\nhost: here";

/// A checkout with only the script and the files that it reads, in a folder with a space in its name.
struct Checkout {
    folder: TempDir,
}

impl Checkout {
    /// A checkout with a profile that was recorded by `COMPILER`.
    fn new() -> Checkout {
        let checkout =
            Checkout { folder: tempfile::Builder::new().prefix("a checkout").tempdir().expect("a folder") };
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tools/build");
        fs::create_dir_all(checkout.at("tools/pgo")).expect("a folder");
        std::os::unix::fs::symlink(script, checkout.at("tools/build")).expect("the script");
        for (name, text) in
            [("Cargo.lock", "lock"), ("Cargo.toml", "toml"), ("tools/pgo/rekindle.profdata", "counts")]
        {
            fs::write(checkout.at(name), text).expect("a file");
        }
        checkout.program("rustc", &format!("echo '{COMPILER}'"));
        checkout.program("cargo", "printf %s \"$CARGO_ENCODED_RUSTFLAGS\" | tr '\\037' '\\n'");
        assert!(checkout.build(&["--recorded"], &[]).status.success());
        checkout
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn program(&self, name: &str, script: &str) {
        write_executable(&self.at(name), script);
    }

    fn build(&self, words: &[&str], environment: &[(&str, &str)]) -> Output {
        let mut command = Command::new(self.at("tools/build"));
        for name in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_TARGET"] {
            command.env_remove(name);
        }
        command
            .env("RUSTC", self.at("rustc"))
            .env("CARGO", self.at("cargo"))
            .env("REKINDLE_CACHE", self.at("cache"));
        command
            .env("ROCKSDB_LIB_DIR", "/somewhere")
            .args(words)
            .envs(environment.iter().copied())
            .output()
            .expect("the script runs")
    }

    /// The compiler flags in the environment of cargo, and the messages of the script.
    #[track_caller]
    fn flags(&self, environment: &[(&str, &str)]) -> (Vec<String>, String) {
        let output = self.build(&[], environment);
        let messages = String::from_utf8(output.stderr).expect("text");
        assert!(output.status.success(), "{messages}");
        (String::from_utf8(output.stdout).expect("text").lines().map(str::to_owned).collect(), messages)
    }

    /// The flag names an existing copy of the profile.
    #[track_caller]
    fn assert_uses_the_record(&self, flag: &str) {
        let copy = flag.strip_prefix("-Cprofile-use=").expect(flag);
        assert!(copy.starts_with(self.at("cache/pgo").to_str().expect("text")), "{copy}");
        assert_eq!(fs::read_to_string(copy).expect("the copy"), "counts");
    }
}

#[test]
fn the_compiler_that_recorded_uses_the_record() {
    let checkout = Checkout::new();
    let (flags, messages) = checkout.flags(&[]);
    assert_eq!(messages, "");
    checkout.assert_uses_the_record(&flags[0]);
    let how = ["-no-pgo-warn-mismatch", "-profile-summary-cutoff-hot=999000"];
    assert_eq!(flags[1..], how.map(|flag| format!("-Cllvm-args={flag}")));
}

#[test]
fn flags_of_the_caller_come_first() {
    let checkout = Checkout::new();
    for set in [("RUSTFLAGS", " -Ca  -Cb"), ("CARGO_ENCODED_RUSTFLAGS", "-Ca\u{1f}-Cb")] {
        let (flags, _) = checkout.flags(&[set]);
        assert_eq!(flags[..2], ["-Ca", "-Cb"], "{set:?}");
        checkout.assert_uses_the_record(&flags[2]);
    }
}

#[test]
fn another_compiler_or_target_does_without() {
    let checkout = Checkout::new();
    let (flags, messages) = checkout.flags(&[("CARGO_BUILD_TARGET", "there")]);
    assert!(flags.is_empty() && messages.contains("this is rustc 1.0.0 for there"), "{flags:?} {messages}");
    checkout.program("rustc", "echo 'rustc 1.0.0'; echo 'host: there'");
    let (flags, messages) = checkout.flags(&[]);
    assert!(
        flags.is_empty() && messages.contains("this is rustc 1.0.0 for its host"),
        "{flags:?} {messages}"
    );
}

#[test]
fn a_checkout_without_a_record_is_built() {
    let checkout = Checkout::new();
    fs::remove_dir_all(checkout.at("tools/pgo")).expect("removed");
    assert!(checkout.flags(&[]).0.is_empty());
}

#[test]
fn other_packages_are_named_and_the_record_is_used() {
    let checkout = Checkout::new();
    fs::write(checkout.at("Cargo.lock"), "another").expect("a file");
    let (flags, messages) = checkout.flags(&[]);
    assert!(messages.contains("packages or profiles have changed"), "{messages}");
    checkout.assert_uses_the_record(&flags[0]);
}

#[test]
fn an_instrumented_program_gets_its_folder() {
    let checkout = Checkout::new();
    let output = checkout.build(&["--counting", "/a folder"], &[]);
    assert_eq!(String::from_utf8(output.stdout).expect("text"), "-Cprofile-generate=/a folder");
}

#[test]
fn variables_of_the_calling_cargo_are_not_passed_on() {
    let checkout = Checkout::new();
    checkout.program("cargo", "env");
    let set = [("CARGO_PKG_NAME", "xtask"), ("CARGO_MANIFEST_DIR", "/xtask"), ("CARGO_TARGET_DIR", "/kept")];
    let (environment, _) = checkout.flags(&set);
    assert!(environment.contains(&"CARGO_TARGET_DIR=/kept".to_owned()), "{environment:?}");
    let is_passed_on = |line: &String| line.starts_with("CARGO_PKG_") || line.starts_with("CARGO_MANIFEST_");
    assert!(!environment.iter().any(is_passed_on), "{environment:?}");
}
