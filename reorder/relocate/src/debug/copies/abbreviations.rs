//! The abbreviations of one added unit. Source: DWARF 5, section 7.5.3.

use std::collections::BTreeMap;

use gimli::{DwAt, DwForm, DwTag, constants};

use reorder_base::leb128::{write_signed, write_unsigned};

/// The shape of one attribute; the value of an implicit constant is part of it.
pub(super) type Shape = (DwAt, DwForm, Option<i64>);

/// Abbreviations, numbered as they were first asked for.
#[derive(Debug, Default)]
pub(super) struct Abbreviations {
    codes: BTreeMap<Vec<u8>, u64>,
    bytes: Vec<u8>,
}

impl Abbreviations {
    /// The code for entries of this shape.
    pub(super) fn code(&mut self, tag: DwTag, has_children: bool, attributes: &[Shape]) -> u64 {
        let mut shape = Vec::with_capacity(4 * attributes.len() + 8);
        write_unsigned(&mut shape, u64::from(tag.0));
        shape.push(u8::from(has_children));
        for (name, form, constant) in attributes {
            write_unsigned(&mut shape, u64::from(name.0));
            write_unsigned(&mut shape, u64::from(form.0));
            if *form == constants::DW_FORM_implicit_const {
                write_signed(&mut shape, constant.unwrap_or_default());
            }
        }
        shape.extend_from_slice(&[0, 0]);
        let next = self.codes.len() as u64 + 1;
        if let Some(code) = self.codes.get(&shape) {
            return *code;
        }
        write_unsigned(&mut self.bytes, next);
        self.bytes.extend_from_slice(&shape);
        self.codes.insert(shape, next);
        next
    }

    /// The table.
    pub(super) fn table(mut self) -> Vec<u8> {
        self.bytes.push(0);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_one_shape_share_a_code() {
        let mut abbreviations = Abbreviations::default();
        let line = (constants::DW_AT_call_line, constants::DW_FORM_implicit_const, Some(-3));
        let tag = constants::DW_TAG_inlined_subroutine;
        let codes = [
            abbreviations.code(tag, true, &[line]),
            abbreviations.code(tag, false, &[line]),
            abbreviations.code(tag, true, &[line]),
        ];
        assert_eq!(codes, [1, 2, 1]);
        assert_eq!(
            abbreviations.table(),
            [1, 0x1d, 1, 0x59, 0x21, 0x7d, 0, 0, 2, 0x1d, 0, 0x59, 0x21, 0x7d, 0, 0, 0]
        );
    }
}
