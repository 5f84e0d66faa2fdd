//! The comments of an order file: where the order comes from. They do not change the order.

use clap::ValueEnum;

use super::lld::Summary;
use crate::LayoutRequest;
use crate::compression::Compression;
use reorder_base::hexadecimal::encode;
use reorder_trace::Coverage;

/// Where an order comes from.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// The image's identity.
    pub identity: Identity<'a>,
    /// How the order was made.
    pub request: LayoutRequest,
    /// How much of the traces was found in the image.
    pub coverage: Option<&'a Coverage>,
}

/// The identity of an image, which other builds do not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity<'a> {
    /// The GNU build-id of an ELF image, if it has one.
    BuildId(Option<&'a [u8]>),
    /// The UUID of a Mach-O image, if it has one.
    Uuid(Option<&'a [u8]>),
}

impl Origin<'_> {
    /// The lines of the comment: what the file is for, who wrote it and where the order comes from.
    pub(super) fn lines(&self, purpose: &[&str], summary: &Summary) -> Vec<String> {
        let mut lines: Vec<String> = purpose.iter().map(|line| (*line).to_owned()).collect();
        lines.push(format!("written by reorder {}", env!("CARGO_PKG_VERSION")));
        let (kind, identity) = match self.identity {
            Identity::BuildId(identity) => ("build-id", identity),
            Identity::Uuid(identity) => ("uuid", identity),
        };
        lines.push(format!("{kind} {}", identity.map_or_else(|| "none".to_owned(), encode)));
        let request = &self.request;
        lines.push(format!("strategy {} seed {}", request.strategy.name(), request.seed));
        lines.push(format!(
            "memory {} early {} effort {} unseen {} compress {}",
            request.memory.name(),
            request.early_percent,
            name(&request.effort),
            name(&request.unseen),
            compression(request),
        ));
        if let Some(coverage) = self.coverage {
            lines.push(format!("trace events resolved {} of {}", coverage.resolved(), coverage.events));
        }
        lines.push(format!(
            "functions {} chosen {} named {} ambiguous {} without symbol {}",
            summary.functions, summary.chosen, summary.named, summary.ambiguous, summary.unnamed
        ));
        lines
    }

    /// The comment of formats whose lines start with `#`.
    pub(super) fn hashed(&self, purpose: &[&str], summary: &Summary) -> Vec<u8> {
        self.lines(purpose, summary).iter().flat_map(|line| format!("# {line}\n").into_bytes()).collect()
    }

    /// The comment of linker scripts.
    pub(super) fn scripted(&self, purpose: &[&str], summary: &Summary) -> Vec<u8> {
        let lines = self.lines(purpose, summary).join("\n   ");
        format!("/* {lines} */\n").into_bytes()
    }
}

/// The budget and the compressor.
fn compression(request: &LayoutRequest) -> String {
    let stated = |compression: Compression| format!("{} for {}", compression.budget, compression.compressor);
    request.compress.map_or_else(|| "no".to_owned(), stated)
}

/// As on the command line.
fn name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}
