//! The configuration of the program's allocator.

use std::process::Command;

fn printed(configuration: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rekindle"));
    let output = command.env("MALLOC_CONF", configuration).arg("--version").output();
    String::from_utf8_lossy(&output.expect("the program starts").stderr).into_owned()
}

#[test]
fn freed_memory_is_kept_for_a_minute_unless_the_environment_overrides_it() {
    let said = printed("stats_print:true");
    assert!(said.contains("opt.dirty_decay_ms: 60000 "), "{said}");
    let said = printed("stats_print:true,dirty_decay_ms:5000");
    assert!(said.contains("opt.dirty_decay_ms: 5000 "), "{said}");
}
