//! Traces: which functions of an image ran first, in which order.
//!
//! In: trace and profile files of any known system. Out: [`Trace`] values, and after [`resolve`] functions of one
//! image. [`formats`] has one reader for each system; [`read_files`] finds the right one by contents alone.

#![forbid(unsafe_code)] // the system is asked in reorder-system alone

mod blocks;
mod companion;
mod cursor;
pub mod formats;
mod identity;
pub mod link_map;
mod matching;
mod merge;
mod model;
mod pairing;
mod read_files;
mod reading;
mod resolve;
mod statistics;
pub mod text;
mod write_llvm_text;

#[cfg(test)]
mod tests;

pub use blocks::{RecordedBlock, RecordedBlocks};
pub use companion::{Companion, CompanionImage, Companions};
pub use formats::gcov::gcc_profile_id;
pub use identity::identity_of;
pub use matching::{Found, NameIndex, Spelling};
pub use matching::{Step, readable as readable_name, root_name};
pub use merge::{Merge, MergeRequest, Merged};
pub use model::{Draw, Event, Evidence, ImageIdentity, Location, Name, NameHash, Strata, Trace};
pub use pairing::Pairing;
pub use read_files::{TraceFiles, read_bytes, read_files};
pub use reading::{Input, Note, Reading};
pub use resolve::{BlockAccount, ExecutedBlock, ExecutedBlocks, WholeReason, executed_blocks};
pub use resolve::{
    Coverage, Missing, Resolution, ResolvedTrace, ResolvedTraces, Resolver, entered_functions, resolve,
};
pub use statistics::{ImageStatistics, SingleTraceStatistics, Touched, TraceStatistics, statistics};
pub use write_llvm_text::{LlvmText, write_llvm_text};
