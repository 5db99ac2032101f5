//! What the fuzz target of capture filters does with its input: half of it is an expression, half a frame.

use graph::expression::Expression;

/// A filter expression up to the first zero byte, and a frame behind it.
pub fn capture_filter(bytes: &[u8]) {
    let end = bytes.iter().position(|&byte| byte == 0);
    let (text, frame) = bytes.split_at(end.unwrap_or(bytes.len()));
    let Ok(text) = std::str::from_utf8(text) else {
        return;
    };
    match Expression::parse(text) {
        Ok(expression) => {
            let negated =
                Expression::parse(&format!("not ({text})")).expect("an operand in parentheses");
            let frame = frame.get(1..).unwrap_or_default();
            assert_ne!(expression.matches(frame), negated.matches(frame));
        }
        Err(error) => {
            assert!(
                (1..=text.chars().count() + 1).contains(&error.column),
                "{error:?}"
            );
            assert!(!error.message.is_empty() && !error.remedy.is_empty());
        }
    }
}
