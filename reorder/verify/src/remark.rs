//! What a verification allows, and what it could not check.

/// One of these things. A command turns it into text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remark {
    /// The build-id is another one.
    BuildIdChanged,
    /// The checksum that leads to the debug file is another one.
    DebugLinkChanged,
    /// So many sections of debug information were emptied.
    DebugSectionsDropped(usize),
    /// So many sections of debug information say what held before the move.
    DebugSectionsStale(usize),
    /// So many functions could not be decoded; they are unchanged.
    UndecodableFunctions(usize),
    /// So many bytes of code outside of functions could not be decoded; they are unchanged.
    UndecodableGaps(usize),
    /// The relocations in the section of this name, which the linker kept, were left out.
    KeptRelocationsLeftOut(String),
    /// Numbers in code and data were taken for pointers to functions, and lead to copies.
    PointersAssumed {
        /// The functions.
        functions: usize,
        /// The words of data among these numbers.
        words: usize,
    },
    /// The search table of the unwinder has an unknown form and was compared byte by byte.
    UnknownSearchTable,
    /// A remark about one image of a file that holds several.
    OfImage {
        /// The name of its processor.
        image: String,
        /// The remark.
        remark: Box<Remark>,
    },
}
