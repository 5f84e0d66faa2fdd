//! Code that is left in place: stubs, startup code, and code between functions.

use std::ops::Range;

use super::context::CodeContext;
use super::{from_first_instruction, words_of};
use crate::code_reference::{CodeForm, CodeReference};
use crate::decode::aarch64::{Operation, WORD, decode};
use reorder_base::address::Address;

/// References from a section of code that is left in place, such as the linker's helpers for stubs, to the movable code; and
/// places in that code that must stay because of it.
#[must_use]
pub fn decode_fixed_section(
    context: &CodeContext<'_>,
    range: Range<Address>,
) -> (Vec<CodeReference>, Vec<Address>) {
    let Range { start, end } = from_first_instruction(range);
    let words = words_of(context.image.bytes_at(start, end.distance_from(start)).unwrap_or_default());
    let (mut references, mut must_stay) = (Vec::new(), Vec::new());
    for (index, &word) in words.iter().enumerate() {
        let place = start.plus(index as u64 * WORD);
        match decode(word, place) {
            Operation::Branch(target) | Operation::Call(target) if context.text.contains(&target) => {
                references.push(CodeReference { place, target, form: CodeForm::Branch26 });
            }
            Operation::ConditionalBranch(target)
            | Operation::Adr(_, target)
            | Operation::LoadLiteral(_, target)
                if context.text.contains(&target) =>
            {
                must_stay.push(target);
            }
            Operation::Adrp(register, page) if context.shares_page(page) => {
                let next = words.get(index + 1).map(|next| decode(*next, place.plus(WORD)));
                match next {
                    Some(Operation::AddImmediate(to, from, number)) if to == register && from == register => {
                        let target = page.plus(number);
                        references.push(CodeReference { place, target, form: CodeForm::Page });
                        let form = CodeForm::PageOffset { scale: 0 };
                        references.push(CodeReference { place: place.plus(WORD), target, form });
                    }
                    _ => must_stay.extend(context.atoms_on_page(page)),
                }
            }
            _ => {}
        }
    }
    references.retain(|reference| context.text.contains(&reference.target));
    (references, must_stay)
}
