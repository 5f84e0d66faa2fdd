//! What the compilers of an image align its functions to.

/// What compilers align functions to for speed.
const FOR_SPEED: u64 = 16;

/// The largest power of two, at most 16, that clearly more of these functions are aligned to than would be by chance; 1 for
/// none. Not all need to be: parts that compilers split off functions are not aligned.
pub fn ordinary_alignment(alignments: &[u64]) -> u64 {
    let at_least = |alignment: u64| alignments.iter().filter(|own| **own >= alignment).count() as u64;
    let is_ordinary = |candidate: &u64| {
        let count = at_least(*candidate);
        // Chance gives one in `candidate`, and half of those that have half of it; halfway from there to all.
        2 * candidate * count > (candidate + 1) * alignments.len() as u64
            && 4 * count >= 3 * at_least(candidate / 2)
    };
    [FOR_SPEED, 8, 4, 2].into_iter().find(is_ordinary).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::ordinary_alignment;

    #[test]
    fn the_ordinary_alignment_is_not_found_by_chance() {
        let by_chance: Vec<u64> = (1..=4096_u64).map(|address| 1 << address.trailing_zeros()).collect();
        assert_eq!(ordinary_alignment(&by_chance), 1);
        let words: Vec<u64> = by_chance.iter().map(|alignment| alignment * 4).collect();
        assert_eq!(ordinary_alignment(&words), 4);
        // Six in ten have twice as much, which is no more than chance may give to a few.
        assert_eq!(ordinary_alignment(&[8, 4, 8, 16, 4, 8, 8, 4, 32, 4]), 4);
        // A third are parts that were split off, which have none.
        assert_eq!(ordinary_alignment(&[16, 64, 16, 32, 1, 2]), 16);
        assert_eq!(ordinary_alignment(&[]), 1);
    }
}
