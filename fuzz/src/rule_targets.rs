//! What the fuzz target of the nft language does with its input: read it, print it, compile it.

use filter::lang::{Memory, Options, Source, print};

/// A file of rules. What loads prints as a text that loads as the same.
pub fn nft_rules(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let mut source = Source::default();
    if let Err(error) = source.read("rules.nft", text, &Memory::default()) {
        assert!(error.render(&source.sources).starts_with("rules.nft:"));
        return;
    }
    let printed = print::ruleset(&source.model);
    let mut again = Source::default();
    if let Err(error) = again.read("rules.nft", &printed, &Memory::default()) {
        panic!("{}\n{printed}", error.render(&again.sources));
    }
    assert_eq!(print::ruleset(&again.model), printed);
    // Whether it compiles is a question of types; that it ends without a panic is ours.
    if let Err(errors) = source.compile(Options::default()) {
        assert!(!errors.is_empty());
        for error in errors {
            assert!(!error.render(&source.sources).is_empty());
        }
    }
}
