//! A short run of the kill loop: 25 writers, one reader.

use std::process::Command;

#[test]
fn killed_writers_lose_and_tear_nothing() {
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate-bench"))
        .args(["tables_kill", "--json", "--kills", "25"])
        .output()
        .expect("the program runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let report: serde_json::Value = serde_json::from_str(&text).expect("a JSON report");
    assert_eq!(report["figures"]["kills"], 25.0);
    assert_eq!(report["figures"]["committed_entries_lost"], 0.0, "{text}");
    assert_eq!(report["figures"]["torn_reads"], 0.0, "{text}");
    assert!(
        report["figures"]["reads"]
            .as_f64()
            .is_some_and(|reads| reads > 0.0)
    );
    assert!(output.status.success());
}
