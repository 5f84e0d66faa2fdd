//! What `reorder apply` made of one file, whatever images are in it.

use crate::apply::ApplySummary;
use crate::apply::clones::CloneSummary;
use crate::relocate::layout_map::LayoutMap;

/// A file of which the functions of at least one image were moved.
pub struct AppliedFile {
    /// The whole file.
    pub bytes: Vec<u8>,
    /// What moved, in all images together.
    pub summary: ApplySummary,
    /// Whether nothing moved anywhere.
    pub is_unchanged: bool,
    /// For each image that moved its processor's name and, where they are asked for, its map.
    pub maps: Vec<(&'static str, LayoutMap)>,
}

/// The sum of the summaries of two images.
pub fn joined(mut all: ApplySummary, next: ApplySummary) -> ApplySummary {
    all.functions += next.functions;
    all.functions_moved += next.functions_moved;
    all.functions_movable += next.functions_movable;
    all.pinned.extend(next.pinned);
    all.warnings.extend(next.warnings);
    all.clones = match (all.clones, next.clones) {
        (Some(one), Some(other)) => Some(joined_clones(one, other)),
        (one, other) => one.or(other),
    };
    all
}

fn joined_clones(mut all: CloneSummary, next: CloneSummary) -> CloneSummary {
    all.functions += next.functions;
    all.bytes += next.bytes;
    all.skipped.extend(next.skipped);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_all_images_are_counted() {
        let with = |functions: usize| ApplySummary {
            functions,
            clones: (functions > 1).then(|| CloneSummary { functions, bytes: 10, skipped: Vec::new() }),
            ..ApplySummary::default()
        };
        let sum = joined(joined(with(2), with(1)), with(3));
        assert_eq!(sum.functions, 6);
        assert_eq!(sum.clones.map(|clones| (clones.functions, clones.bytes)), Some((5, 20)));
    }
}
