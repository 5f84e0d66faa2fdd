//! The command blocks of a document.
//!
//! A command block is indented by four columns after an empty line, or fenced as `sh`.

use std::path::Path;
use std::{fs, io};

/// One block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The document's name.
    pub document: String,
    /// Line of its first command, from 1.
    pub line: usize,
    /// Its lines, without indentation.
    pub commands: Vec<String>,
}

/// All command blocks of the document at `path`, in order.
///
/// # Errors
/// The document cannot be read.
pub fn blocks(path: &Path) -> io::Result<Vec<Block>> {
    let document = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(blocks_of(&document, &fs::read_to_string(path)?))
}

fn blocks_of(document: &str, text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut fence: Option<bool> = None;
    let mut is_after_empty = true;
    let mut is_open = false;
    for (index, line) in text.lines().enumerate() {
        let mut is_command = match (line.strip_prefix("```"), fence) {
            (Some(_), Some(_)) => {
                fence = None;
                false
            }
            (Some(language), None) => {
                fence = Some(language == "sh");
                is_open = false;
                false
            }
            (None, Some(is_shell)) => is_shell,
            (None, None) => line.starts_with("    ") && (is_open || is_after_empty),
        };
        is_command &= !line.trim().is_empty();
        if is_command && !is_open {
            blocks.push(Block { document: document.to_owned(), line: index + 1, commands: Vec::new() });
        }
        if let Some(block) = blocks.last_mut().filter(|_| is_command) {
            block.commands.push(line.trim().to_owned());
        }
        is_open = is_command;
        is_after_empty = line.trim().is_empty();
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::blocks_of;

    #[test]
    fn indented_and_fenced_shell_blocks_are_found() {
        let text = "Words\n\n    one\n      two \\\n\nand\n    no block\n\n```toml\nkey = 1\n```\n```sh\nthree\n```\n";
        let found: Vec<_> =
            blocks_of("D", text).into_iter().map(|block| (block.line, block.commands.join("|"))).collect();
        assert_eq!(found, [(3, "one|two \\".to_owned()), (13, "three".to_owned())]);
    }
}
