//! Makes names from files safe to print on one line.
//!
//! In: a name as a file has it. Out: the same name, in which characters that end lines, control terminals, hide or reverse
//! text, or are not allowed in XML, are written as `\u{…}`. Guarantee: the result is one line, and its length is bounded.

use std::borrow::Cow;

/// `name` with invisible characters written as escapes.
#[must_use]
pub fn visible(name: &str) -> Cow<'_, str> {
    if !name.chars().any(is_hidden) {
        return Cow::Borrowed(name);
    }
    let mut text = String::with_capacity(name.len() + 16);
    for character in name.chars() {
        match is_hidden(character) {
            true => text.extend(character.escape_unicode()),
            false => text.push(character),
        }
    }
    Cow::Owned(text)
}

/// [`visible`], and at most `longest` characters of `name` with an ellipsis for the rest.
#[must_use]
pub fn visible_start(name: &str, longest: usize) -> Cow<'_, str> {
    match name.char_indices().nth(longest) {
        None => visible(name),
        Some((end, _)) => Cow::Owned(format!("{}…", visible(&name[..end]))),
    }
}

/// Control characters, line separators, direction marks, zero-width characters, and noncharacters.
fn is_hidden(character: char) -> bool {
    let code = u32::from(character);
    character.is_control()
        || matches!(
            character,
            '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
                | '\u{fdd0}'..='\u{fdef}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}'
        )
        || code & 0xfffe == 0xfffe
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_cannot_be_seen_is_spelled_out() {
        assert_eq!(visible("operator<< é 数"), "operator<< é 数");
        assert_eq!(visible("a\nb\u{1b}[1m\u{202e}"), "a\\u{a}b\\u{1b}[1m\\u{202e}");
        assert_eq!(visible_start("abcdef", 3), "abc…");
        assert_eq!(visible_start("é\n", 2), "é\\u{a}");
    }

    proptest! {
        #[test]
        fn one_line_without_controls(name in any::<String>(), longest in 0..20_usize) {
            let text = visible_start(&name, longest);
            prop_assert!(!text.chars().any(is_hidden));
            let most = longest * "\\u{10ffff}".len() + 1;
            prop_assert!(text.chars().count() <= most);
        }
    }
}
