//! Kinds of errors in an output.

/// The error to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)] // the names say it
pub enum Kind {
    CallTarget,
    JumpTarget,
    DataReference,
    FunctionsSwapped,
    FunctionByte,
    StaleTableWord,
    WrongTableWord,
    WordAfterTable,
    ConstantData,
    WritableData,
    RelocationAddend,
    RelocatedWord,
    Symbol,
    DynamicSymbol,
    UnwindEntry,
    UnwindInstructions,
    SearchRow,
    ExceptionTable,
    Padding,
    EntryPoint,
    BuildId,
    KeptRelocation,
    InitialiserArray,
    Dynamic,
    Probe,
    Headers,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 26] = [
        Self::CallTarget,
        Self::JumpTarget,
        Self::DataReference,
        Self::FunctionsSwapped,
        Self::FunctionByte,
        Self::StaleTableWord,
        Self::WrongTableWord,
        Self::WordAfterTable,
        Self::ConstantData,
        Self::WritableData,
        Self::RelocationAddend,
        Self::RelocatedWord,
        Self::Symbol,
        Self::DynamicSymbol,
        Self::UnwindEntry,
        Self::UnwindInstructions,
        Self::SearchRow,
        Self::ExceptionTable,
        Self::Padding,
        Self::EntryPoint,
        Self::BuildId,
        Self::KeptRelocation,
        Self::InitialiserArray,
        Self::Dynamic,
        Self::Probe,
        Self::Headers,
    ];
}
