//! What the tests said: how many passed and failed, and what was skipped.

/// Sums over all levels.
#[derive(Debug, Default)]
pub(super) struct Tally {
    passed: u64,
    failed: u64,
    /// What was not tested, and why.
    pub(super) skipped: Vec<String>,
    /// Levels that did not pass.
    pub(super) failed_levels: Vec<String>,
}

impl Tally {
    /// Takes note of one line of output; tells whether it is worth showing.
    pub(super) fn count(&mut self, line: &str) -> bool {
        if let Some(result) = line.strip_prefix("test result: ") {
            self.passed += number_before(result, " passed");
            self.failed += number_before(result, " failed");
            return number_before(result, " passed") + number_before(result, " failed") > 0;
        }
        if let Some(skip) = line.trim_start().strip_prefix("SKIPPED ") {
            self.skipped.push(skip.to_owned());
            return true;
        }
        (line.starts_with("test ") && line.ends_with("FAILED")) || line.starts_with("tidy: ")
    }

    /// Prints the summary; tells whether all is well. With `strict` (in CI) a skip is a failure.
    pub(super) fn report(&self, strict: bool) -> bool {
        if !self.skipped.is_empty() {
            println!("\n!!! {} NOT TESTED:", self.skipped.len());
            for skip in &self.skipped {
                println!("!!!   {skip}");
            }
            if strict {
                println!("!!! CI=true: what was skipped counts as failed");
            }
        }
        for level in &self.failed_levels {
            println!("FAILED: {level}");
        }
        println!(
            "\n{} passed, {} failed, {} skipped",
            self.passed,
            self.failed,
            self.skipped.len()
        );
        let tested = self.skipped.is_empty() || !strict;
        tested && self.failed == 0 && self.failed_levels.is_empty()
    }
}

/// Returns the number that stands directly before `word`.
fn number_before(text: &str, word: &str) -> u64 {
    let before = text.split(word).next().unwrap_or_default();
    before
        .rsplit(|c: char| !c.is_ascii_digit())
        .next()
        .unwrap_or_default()
        .parse()
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_and_skips_are_counted() {
        let mut tally = Tally::default();
        assert!(tally.count("test result: ok. 12 passed; 0 failed; 0 ignored; finished in 0.1s"));
        assert!(tally.count("test result: FAILED. 3 passed; 2 failed; 0 ignored"));
        assert!(!tally.count("test result: ok. 0 passed; 0 failed; 0 ignored"));
        assert!(tally.count("SKIPPED veth_pair: not root"));
        assert!(tally.count("test a::b ... FAILED"));
        assert!(!tally.count("test a::b ... ok"));
        assert_eq!(
            (tally.passed, tally.failed, tally.skipped.len()),
            (15, 2, 1)
        );
        assert!(!tally.report(false));
    }

    #[test]
    fn a_skip_fails_only_in_ci() {
        let mut tally = Tally::default();
        tally.count("SKIPPED x: y");
        assert!(tally.report(false));
        assert!(!tally.report(true));
    }
}
