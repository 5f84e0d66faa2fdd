//! Escapes text, so that Markdown shows it unchanged.
//!
//! In: text of one line. Out: GitHub's Markdown for it, without anything that could become a tag, a link, a mention,
//! emphasis, a cell of a table or a block.

use reorder_report::visible::visible_start;

/// Longer names are cut: some of C++ have tens of thousands of characters.
const MAX_LENGTH: usize = 200;

/// `text` as words, also within tables.
pub(super) fn words(text: &str) -> String {
    let text = visible_start(text, MAX_LENGTH);
    let mut escaped = String::with_capacity(text.len() + 8);
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        let is_address = match character {
            ':' => characters.peek() == Some(&'/'),
            '.' => escaped.to_ascii_lowercase().ends_with("www"),
            _ => true,
        };
        if is_address && character.is_ascii_punctuation() && !is_harmless(character) {
            escaped.push('\\');
        }
        escaped.push(character);
        // Mentions and mail addresses are detected after escapes are resolved; a zero-width space after the sign prevents
        // it.
        if character == '@' && characters.peek().is_some_and(char::is_ascii_alphanumeric) {
            escaped.push('\u{200b}');
        }
    }
    escaped
}

/// Characters without a meaning within a line; colons and full stops have one only within addresses.
fn is_harmless(character: char) -> bool {
    matches!(character, ',' | ';' | '-' | '+' | '%' | '/' | '(' | ')' | '=' | '\'' | '"' | '?')
}

/// `text` as code; not for tables, where a bar would end the cell.
pub(super) fn code(text: &str) -> String {
    let text = visible_start(text, MAX_LENGTH);
    if text.is_empty() {
        return "(no name)".to_owned();
    }
    let longest_run = text.split(|character| character != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest_run + 1);
    // Markdown removes one space on each side, which allows a backtick at an end.
    // It removes none if there is nothing but spaces.
    let is_padded = (text.starts_with(['`', ' ']) || text.ends_with(['`', ' ']))
        && text.chars().any(|character| character != ' ');
    let pad = if is_padded { " " } else { "" };
    format!("{fence}{pad}{text}{pad}{fence}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shown_as_they_are() {
        assert_eq!(code("main"), "`main`");
        assert_eq!(code("  "), "`  `");
        assert_eq!(code("a``b`"), "``` a``b` ```");
        assert_eq!(code("<b>\n"), "`<b>\\u{a}`");
        assert_eq!(words("a|b*c_@all <x>"), "a\\|b\\*c\\_\\@\u{200b}all \\<x\\>");
        assert_eq!(words("+1.5 %: linux-4k"), "+1.5 %: linux-4k");
        assert_eq!(words("http://a WWW.b"), "http\\://a WWW\\.b");
        assert!(words(&"|".repeat(100_000)).len() < 1000);
    }
}
