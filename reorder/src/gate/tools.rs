//! The compilers and the linker that made an image, as they name themselves in it.
//!
//! In: an image. Out: texts such as `GCC: (Debian 12.2.0-14) 12.2.0`, which the baseline keeps: where they change, figures
//! change for no other reason.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::Serialize;

use reorder_layout::opened::OpenedImage;
use reorder_report::visible::visible_start;

/// A linked image of many objects has a handful; a baseline takes no more.
const MAX_TOOLS: usize = 16;
const MAX_LENGTH: usize = 120;

/// Those of an ELF image, sorted; none where it has no section for them.
#[must_use]
pub fn tools(image: &OpenedImage<'_>) -> Vec<String> {
    let OpenedImage::Elf(file, _) = image else { return Vec::new() };
    let section =
        |name: &[u8]| file.section(name).map(|section| file.section_bytes(section)).unwrap_or_default();
    let mut tools: BTreeSet<String> = section(b".comment")
        .split(|&byte| byte == 0)
        .filter(|text| !text.is_empty())
        .map(|text| visible_start(&String::from_utf8_lossy(text), MAX_LENGTH).into_owned())
        .collect();
    // gold leaves a note of its own: a header of 12 bytes, the name `GNU`, the version.
    const HEADER: usize = 16;
    if let Some(version) = section(b".note.gnu.gold-version").get(HEADER..) {
        let version = String::from_utf8_lossy(version);
        tools.insert(visible_start(version.trim_end_matches('\0'), MAX_LENGTH).into_owned());
    }
    tools.into_iter().take(MAX_TOOLS).collect()
}

/// Other compilers, or another linker, than those of the baseline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct OtherTools {
    /// In the baseline and not in this image.
    pub baseline: Vec<String>,
    /// In this image and not in the baseline.
    pub current: Vec<String>,
}

impl OtherTools {
    /// What differs; `None` where nothing does, or where one of them names none.
    #[must_use]
    pub fn between(then: &[String], now: &[String]) -> Option<Self> {
        let without = |all: &[String], others: &[String]| -> Vec<String> {
            all.iter().filter(|tool| !others.contains(tool)).cloned().collect()
        };
        let (baseline, current) = (without(then, now), without(now, then));
        let is_known = !then.is_empty() && !now.is_empty();
        (is_known && !(baseline.is_empty() && current.is_empty())).then_some(Self { baseline, current })
    }

    /// One sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let (now, then) = (self.current.join(", "), self.baseline.join(", "));
        match (self.current.is_empty(), self.baseline.is_empty()) {
            (false, false) => {
                format!("another compiler or linker than the baseline's image: {now} instead of {then}")
            }
            (false, true) => format!("a compiler or linker that the baseline's image does not name: {now}"),
            (true, _) => {
                format!("a compiler or linker of the baseline's image is not named any more: {then}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_tools_differ() {
        let all = |names: &[&str]| -> Vec<String> { names.iter().map(|&name| name.to_owned()).collect() };
        let (old, new) = (all(&["GCC: 12", "Linker: LLD 16"]), all(&["GCC: 13", "Linker: LLD 16"]));
        let told = OtherTools::between(&old, &new).map(|other| other.sentence()).unwrap_or_default();
        assert_eq!(told, "another compiler or linker than the baseline's image: GCC: 13 instead of GCC: 12");
        assert_eq!(OtherTools::between(&old, &old), None);
        assert_eq!(OtherTools::between(&[], &new), None, "a baseline of an earlier version");
        assert_eq!(OtherTools::between(&old, &[]), None, "a stripped image");
    }
}
