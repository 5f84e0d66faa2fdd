//! The parts of `__LINKEDIT` that load commands name.
//!
//! Source: `mach-o/loader.h` of Apple's cctools.

use goblin::mach::load_command::{CommandVariant, LinkeditDataCommand};

use reorder_base::error::{Error, Result};

/// A part of `__LINKEDIT` that a load command names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    Rebase,
    Bind,
    WeakBind,
    LazyBind,
    Exports,
    Fixups,
    Starts,
    DataInCode,
    Symbols,
    IndirectSymbols,
    Strings,
    Signature,
    /// Any other part, by the number of its load command.
    Other(u32),
}

/// Where a part is; its bytes lie in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PartView {
    pub(super) part: Part,
    pub(super) offset: usize,
    pub(super) size: usize,
    /// Position of the part's offset in its load command; the size follows.
    pub(super) field: usize,
}

/// The parts that a load command at `at` names, including empty ones. They have not been checked against the file size.
///
/// # Errors
/// Tables that only old linkers wrote.
pub(super) fn parts_of(command: &CommandVariant, at: usize) -> Result<Vec<PartView>> {
    let linkedit = |part: Part, data: &LinkeditDataCommand| (part, data.dataoff, data.datasize, 8);
    let parts: Vec<(Part, u32, u32, usize)> = match command {
        CommandVariant::Symtab(table) => vec![
            (Part::Symbols, table.symoff, table.nsyms.saturating_mul(16), 8),
            (Part::Strings, table.stroff, table.strsize, 16),
        ],
        CommandVariant::Dysymtab(table) => {
            let unsupported = [table.ntoc, table.nmodtab, table.nextrefsyms, table.nextrel, table.nlocrel];
            if unsupported.iter().any(|&count| count != 0) {
                return Err(Error::malformed(at as u64, "tables of old linkers that are not understood"));
            }
            vec![(Part::IndirectSymbols, table.indirectsymoff, table.nindirectsyms.saturating_mul(4), 56)]
        }
        CommandVariant::DyldInfo(info) | CommandVariant::DyldInfoOnly(info) => vec![
            (Part::Rebase, info.rebase_off, info.rebase_size, 8),
            (Part::Bind, info.bind_off, info.bind_size, 16),
            (Part::WeakBind, info.weak_bind_off, info.weak_bind_size, 24),
            (Part::LazyBind, info.lazy_bind_off, info.lazy_bind_size, 32),
            (Part::Exports, info.export_off, info.export_size, 40),
        ],
        CommandVariant::DyldExportsTrie(data) => vec![linkedit(Part::Exports, data)],
        CommandVariant::DyldChainedFixups(data) => vec![linkedit(Part::Fixups, data)],
        CommandVariant::FunctionStarts(data) => vec![linkedit(Part::Starts, data)],
        CommandVariant::DataInCode(data) => vec![linkedit(Part::DataInCode, data)],
        CommandVariant::CodeSignature(data) => vec![linkedit(Part::Signature, data)],
        CommandVariant::SegmentSplitInfo(data)
        | CommandVariant::DylibCodeSignDrs(data)
        | CommandVariant::LinkerOptimizationHint(data) => vec![linkedit(Part::Other(data.cmd), data)],
        _ => Vec::new(),
    };
    let view = |(part, offset, size, field): (Part, u32, u32, usize)| PartView {
        part,
        offset: offset as usize,
        size: size as usize,
        field: at + field,
    };
    Ok(parts.into_iter().map(view).collect())
}

/// The minimum size in bytes of a load command of this kind; other checks read no further.
pub(super) fn least_size(command: &CommandVariant) -> usize {
    match command {
        CommandVariant::Segment64(segment) => {
            72usize.saturating_add(80usize.saturating_mul(segment.nsects as usize))
        }
        CommandVariant::Symtab(_) | CommandVariant::Uuid(_) | CommandVariant::Main(_) => 24,
        CommandVariant::Dysymtab(_) => 80,
        CommandVariant::DyldInfo(_) | CommandVariant::DyldInfoOnly(_) => 48,
        CommandVariant::DyldExportsTrie(_)
        | CommandVariant::DyldChainedFixups(_)
        | CommandVariant::FunctionStarts(_)
        | CommandVariant::DataInCode(_)
        | CommandVariant::CodeSignature(_)
        | CommandVariant::SegmentSplitInfo(_)
        | CommandVariant::DylibCodeSignDrs(_)
        | CommandVariant::LinkerOptimizationHint(_) => 16,
        _ => 8,
    }
}
