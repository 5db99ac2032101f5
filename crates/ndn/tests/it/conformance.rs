//! `specs/ndn.toml`: every clause has a test that is there, or says why not.

use std::collections::BTreeSet;
use std::path::Path;

#[test]
fn every_clause_has_a_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let table = std::fs::read_to_string(root.join("specs/ndn.toml")).unwrap();
    let mut ids = BTreeSet::new();
    let mut open: Option<String> = None;
    let mut shown = 0;
    for line in table.lines() {
        let value = |key: &str| {
            let rest = line.strip_prefix(key)?.strip_prefix(" = \"")?;
            rest.strip_suffix('"').map(str::to_owned)
        };
        if let Some(id) = value("id") {
            assert_eq!(open, None, "neither test nor exception");
            assert!(ids.insert(id.clone()), "{id} twice");
            open = Some(id);
        } else if let Some(test) = value("test") {
            let (file, function) = test.split_once(".rs::").unwrap();
            let source = std::fs::read_to_string(root.join(format!("{file}.rs")))
                .unwrap_or_else(|error| panic!("{test}: {error}"));
            assert!(source.contains(&format!("fn {function}(")), "{test}");
            open = None;
            shown += 1;
        } else if let Some(reason) = value("except") {
            assert!(reason.len() > 20, "{reason}");
            open = None;
        }
    }
    assert_eq!(open, None, "neither test nor exception");
    assert!(shown > 40 && shown <= ids.len());
}
