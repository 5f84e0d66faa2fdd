//! How many columns there are for a line.
//!
//! In: text and a [`Width`]. Out: the same text in lines that fit. Where there is no terminal, lines have any length: what
//! is piped or written to a file stays whole.

/// Columns of the terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Width(Option<usize>);

/// Narrower terminals are treated as if they had so many columns: figures would have no room.
const MIN_COLUMNS: usize = 40;

impl Width {
    /// Lines may have any length.
    pub const UNLIMITED: Self = Self(None);

    /// A terminal of so many columns.
    #[must_use]
    pub fn of_terminal(columns: usize) -> Self {
        Self(Some(columns.max(MIN_COLUMNS)))
    }

    /// Columns, if they are limited.
    #[must_use]
    pub fn columns(self) -> Option<usize> {
        self.0
    }

    /// `text`, cut in its middle to a share of the line: names of one family differ at both ends.
    #[must_use]
    pub fn cut(self, text: &str, numerator: usize, denominator: usize) -> String {
        match self.0 {
            None => text.to_owned(),
            Some(columns) => middle_cut(text, columns * numerator / denominator),
        }
    }

    /// `sentence` after `start`, broken between words; further lines are indented by the width of `start`.
    #[must_use]
    pub fn hanging(self, start: &str, sentence: &str) -> String {
        match self.0 {
            None => format!("{start}{sentence}"),
            Some(columns) => broken(start, sentence, &" ".repeat(start.chars().count()), columns),
        }
    }

    /// `text` with sentences broken between words. Indented lines stay as they are: they are rows of tables, or commands
    /// to be copied.
    #[must_use]
    pub fn wrapped(self, text: &str) -> String {
        let Some(columns) = self.0 else { return text.to_owned() };
        let lines = text.split('\n').map(|line| match line.starts_with(' ') || has_columns(line) {
            true => line.to_owned(),
            false => broken("", line, INDENT, columns),
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// Rows of tables have gaps of two columns.
fn has_columns(line: &str) -> bool {
    line.trim_end().contains("  ")
}

/// Further lines of a sentence are indented.
const INDENT: &str = "  ";

/// `start` and `sentence`, with line breaks between words; further lines begin with `indent`.
fn broken(start: &str, sentence: &str, indent: &str, columns: usize) -> String {
    let mut text = start.to_owned();
    let mut used = start.chars().count();
    let mut is_first = true;
    for word in unbreakable(sentence) {
        let length = word.chars().count();
        if !is_first && used + 1 + length > columns {
            text.push('\n');
            text.push_str(indent);
            used = indent.len();
        } else if !is_first {
            text.push(' ');
            used += 1;
        }
        text.push_str(&word);
        used += length;
        is_first = false;
    }
    text
}

/// The words of a sentence; the digits of a number are one, although groups of three are set apart.
fn unbreakable(sentence: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in sentence.split(' ') {
        let digits = word.bytes().take_while(u8::is_ascii_digit).count();
        match words.last_mut().filter(|last| digits == 3 && last.ends_with(|end: char| end.is_ascii_digit()))
        {
            Some(last) => {
                last.push(' ');
                last.push_str(word);
            }
            None => words.push(word.to_owned()),
        }
    }
    words
}

/// At most `longest` characters of `text`: its beginning, an ellipsis and its end.
#[must_use]
pub(crate) fn middle_cut(text: &str, longest: usize) -> String {
    let length = text.chars().count();
    if length <= longest {
        return text.to_owned();
    }
    let kept = longest.saturating_sub(1);
    let end = kept / 2;
    let start: String = text.chars().take(kept - end).collect();
    let end: String = text.chars().skip(length - end).collect();
    format!("{start}…{end}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_keep_both_ends() {
        assert_eq!(middle_cut("std::vector::push_back", 11), "std::…_back");
        assert_eq!(middle_cut("main", 4), "main");
        assert_eq!(Width::UNLIMITED.cut("any length", 1, 100), "any length");
    }

    #[test]
    fn sentences_break_between_words_and_commands_do_not() {
        let text = "one two three four five six seven eight nine ten\n  run it with all of these words in one line, please\n";
        let wanted = "one two three four five six seven eight\n  nine ten\n  run it with all of these words in one line, please\n";
        assert_eq!(Width::of_terminal(40).wrapped(text), wanted);
        assert_eq!(Width::UNLIMITED.wrapped(text), text);
        let hanging =
            Width::of_terminal(40).hanging("  because  ", "it runs first of all and is small enough");
        assert_eq!(hanging, "  because  it runs first of all and is\n           small enough");
    }

    #[test]
    fn numbers_stay_in_one_line() {
        let text = "the whole text of the program has about 3 118 KiB";
        let wanted = "the whole text of the program has about\n  3 118 KiB";
        assert_eq!(Width::of_terminal(41).wrapped(text), wanted);
    }

    proptest! {
        #[test]
        fn nothing_but_breaks_is_added(text in "[a-z \n]{0,300}", columns in 0..200_usize) {
            let width = Width::of_terminal(columns);
            let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            prop_assert_eq!(words(&width.wrapped(&text)), words(&text));
            prop_assert!(middle_cut(&text, columns.max(1)).chars().count() <= columns.max(1));
        }
    }
}
