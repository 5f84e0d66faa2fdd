//! Warnings of the relocator as text.
//!
//! In: a [`Warning`]. Out: a sentence for the user.

use reorder_relocate::elf::copies::LostNote;
use reorder_relocate::warning::Warning;

/// The warning in words.
#[must_use]
pub fn text(warning: &Warning) -> String {
    match warning {
        Warning::FewerPlacedFirst { placed, wanted } => format!(
            "only {placed} of {wanted} functions are placed first: the unwind information has no room for more"
        ),
        Warning::ApplicationMustComeFirst => {
            "an application that `bun build --compile` makes with this output crashes, because it is written over \
             the copies: run `bun build --compile` with the original program, then `reorder apply` on the application"
                .to_owned()
        }
        Warning::CompactRelocationsEmptied { section } => {
            format!("{section} was emptied: relocations in the compact form need more room after a move")
        }
        Warning::KeptRelocationsLeftOut { section } => {
            format!("{section} was left out: its relocations would not describe code that leads to copies")
        }
        Warning::PointersAssumed(assumed) => format!(
            "nothing in this image lists its pointers: {} words of data and {} operands that look like pointers were \
             taken for pointers to {} functions (--assume-pointers)",
            assumed.words, assumed.operands, assumed.functions
        ),
        Warning::ProgramHeaderTaken(note) => {
            let note = match note {
                LostNote::BuildId => "the build-id, which tools no longer find in a running program",
                LostNote::CrashReports => "Crashpad's note: crash reports lack what the program adds to them",
                LostNote::Properties => {
                    "the image's properties, so that protections such as branch target identification are off"
                }
                LostNote::Other => "a note",
            };
            format!("the segment of copies took the program header of {note}")
        }
        Warning::DeveloperSignatureLost { team } => {
            let team = team.as_ref().map_or_else(String::new, |team| format!(" of team {team}"));
            format!(
                "the developer's signature{team} and notarization are lost; the output is signed ad hoc: sign and \
                 notarize it again"
            )
        }
        Warning::HardenedRuntimeOff => {
            "the hardened runtime is off in the output: sign it again with --options runtime".to_owned()
        }
        Warning::SignatureSlotLost(slot) => {
            format!("slot {slot} of the signature is lost: sign the output again")
        }
    }
}
