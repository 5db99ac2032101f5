//! The example of the README, run.

use crate::common::{namespace, needs};

#[path = "../../examples/raw_frames.rs"]
#[expect(dead_code, reason = "the test calls what `main` calls")]
mod example;

#[test]
fn the_example_of_the_readme_runs_and_is_the_one_shown() {
    let source = include_str!("../../examples/raw_frames.rs");
    let (_, shown) = source.split_once("// README: from here\n").unwrap();
    assert!(include_str!("../../README.md").contains(shown.trim()));
    if !needs("the_example_of_the_readme_runs_and_is_the_one_shown", &[]) {
        return;
    }
    let frames = namespace("example").run(|| example::hello("lo"));
    assert_eq!(frames.unwrap().unwrap(), 1, "the loopback brings it back");
}
