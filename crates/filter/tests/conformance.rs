//! `specs/firewall.toml` names the test of each requirement: it must be there.

use std::path::Path;

#[test]
fn every_clause_names_a_test_that_exists_or_says_why_not() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join("specs/firewall.toml")).expect("the clauses");
    let table: toml::Table = text.parse().expect("TOML");
    let clauses = table["clause"].as_array().expect("clauses");
    assert_eq!(clauses.len(), 99);
    for (number, clause) in clauses.iter().enumerate() {
        let field = |name: &str| clause.get(name).and_then(toml::Value::as_str);
        let id = field("id").expect("an id");
        assert_eq!(id, format!("fw.{:02}", number + 1));
        for name in ["source", "level", "says"] {
            assert!(
                field(name).is_some_and(|text| !text.is_empty()),
                "{id}: {name}"
            );
        }
        match (field("test"), field("except")) {
            (Some(test), None) => {
                let (file, function) = test.split_once("::").expect("file::function");
                let source = std::fs::read_to_string(root.join(file))
                    .unwrap_or_else(|_| panic!("{id}: no file {file}"));
                assert!(
                    source.contains(&format!("fn {function}(")),
                    "{id}: no {function} in {file}"
                );
            }
            (None, Some(reason)) => assert!(reason.len() > 8, "{id}: a reason"),
            _ => panic!("{id}: a test, or a reason"),
        }
    }
}
