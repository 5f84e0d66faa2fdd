//! Kinds of errors in copies.

/// The error to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)] // the names say it
pub enum Kind {
    BranchTarget,
    BranchCondition,
    CallTarget,
    DataReference,
    InstructionByte,
    FinalJump,
    FragmentsSwapped,
    RedirectedByte,
    RedirectedToOther,
    UnwindStart,
    UnwindSize,
    UnwindParent,
    UnwindRow,
    SearchRow,
    CallSite,
    LandingPad,
    ExceptionByte,
    Symbol,
    CopyName,
    DynamicSymbol,
    RecordNumber,
    TableEntry,
    CopiedTableEntry,
    Filler,
    Headers,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 25] = [
        Self::BranchTarget,
        Self::BranchCondition,
        Self::CallTarget,
        Self::DataReference,
        Self::InstructionByte,
        Self::FinalJump,
        Self::FragmentsSwapped,
        Self::RedirectedByte,
        Self::RedirectedToOther,
        Self::UnwindStart,
        Self::UnwindSize,
        Self::UnwindParent,
        Self::UnwindRow,
        Self::SearchRow,
        Self::CallSite,
        Self::LandingPad,
        Self::ExceptionByte,
        Self::Symbol,
        Self::CopyName,
        Self::DynamicSymbol,
        Self::RecordNumber,
        Self::TableEntry,
        Self::CopiedTableEntry,
        Self::Filler,
        Self::Headers,
    ];
}
