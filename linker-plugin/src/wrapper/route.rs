//! How an order reaches the output: the form that each linker takes.

use reorder_base::error::{Error, Result};

use super::invocation::Invocation;
use super::linker_family::Family;
use super::options::Mode;

/// A way for an order into an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// lld for ELF: symbols, or input sections by a script where names are not unique.
    Lld,
    /// Apple's linkers and lld for Mach-O: `-order_file`.
    OrderFile,
    /// gold: names of input sections.
    SectionOrdering,
    /// GNU ld: its own script with the input sections first.
    DefaultScript,
    /// Any: the finished image is changed.
    PostLink,
}

impl Route {
    /// The way for a linker of `family` in this `mode`.
    ///
    /// # Errors
    /// The linker does not support the mode, or the arguments already use the option that it needs.
    pub(crate) fn of(family: Family, mode: Mode, invocation: &Invocation) -> Result<Self> {
        if mode == Mode::PostLink {
            return Ok(Self::PostLink);
        }
        let through_linker = match family {
            Family::Lld => Some(Self::Lld),
            Family::LldMachO | Family::Ld64 => Some(Self::OrderFile),
            Family::Gold => Some(Self::SectionOrdering),
            // A script of the user's replaces the linker's own, which is the one that an order is put into.
            Family::Bfd if !has_script(invocation) => Some(Self::DefaultScript),
            Family::Bfd | Family::Mold | Family::Wild | Family::Unknown => None,
        };
        match (through_linker, mode) {
            (Some(route), _) => Ok(route),
            (None, Mode::Order) => Err(Error::usage("this linker takes no order").with_hint(
                "leave --reorder-mode=order out: the finished image is ordered then; or link with lld",
            )),
            (None, _) => Ok(Self::PostLink),
        }
    }

    /// In a few words.
    #[must_use]
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Lld => "order for lld",
            Self::OrderFile => "-order_file",
            Self::SectionOrdering => "--section-ordering-file",
            Self::DefaultScript => "linker script",
            Self::PostLink => "moved in the finished image",
        }
    }
}

/// Whether the user has a linker script of their own; those of `-T` and the like only, as libraries are scripts, too.
#[must_use]
pub(crate) fn has_script(invocation: &Invocation) -> bool {
    invocation.expanded.iter().any(|argument| {
        let text = argument.to_string_lossy();
        let is_address = ["-Ttext", "-Tdata", "-Tbss", "-Trodata-segment", "-Tldata-segment"]
            .iter()
            .any(|option| text.starts_with(option));
        text == "-c"
            || text == "--mri-script"
            || text.starts_with("-T") && !is_address
            || text.starts_with("--script")
            || text.starts_with("-dT")
            || text.starts_with("--default-script")
    })
}
