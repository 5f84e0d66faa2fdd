//! Pairs of targets that two equal pieces of code give, and fingerprints by which code is recognised.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::super::aarch64::{Form, IMMEDIATE, NOP, form, is_add, page_offset, register};
use super::super::bytes::u32_at;
use super::super::processor::Processor;
use super::view::MachView;
use super::x86_64;

/// A piece of code: its address and its bytes.
pub(super) type Code<'a> = (u64, &'a [u8]);

/// Calls `found` with the old and the new target of every distance at the same position of both pieces; `image` is the old
/// image.
pub(super) fn for_each_pair(
    image: &MachView<'_>,
    old: Code<'_>,
    new: Code<'_>,
    mut found: impl FnMut(u64, u64),
) {
    match image.processor {
        Processor::X86_64 => x86_64::for_each_target(image, old, new, found),
        Processor::Aarch64 => for_each_pair_of_words(old, new, &mut found),
    }
}

fn for_each_pair_of_words(old: Code<'_>, new: Code<'_>, found: &mut impl FnMut(u64, u64)) {
    let count = old.1.len().min(new.1.len()) / 4;
    let before = |index: usize| u32_at(old.1, index * 4).unwrap_or(0);
    let after = |index: usize| u32_at(new.1, index * 4).unwrap_or(0);
    for index in 0..count {
        let kind = form(before(index));
        if kind == Form::Plain {
            continue;
        }
        let distance = index as u64 * 4;
        let target = kind.target(before(index), old.0.wrapping_add(distance));
        match (kind, form(after(index))) {
            (Form::Adrp, Form::Adrp) => {
                // The next use of the page is near.
                let destination = register(before(index), 0);
                let page = kind.target(after(index), new.0.wrapping_add(distance));
                let next = (index + 1..count.min(index + 9)).find(|&next| {
                    page_offset(before(next)).is_some() && register(before(next), 5) == destination
                });
                if let Some(next) = next {
                    let low = |word| page_offset(word).unwrap_or(0);
                    found(target.wrapping_add(low(before(next))), page.wrapping_add(low(after(next))));
                }
            }
            (Form::Adr, Form::Adrp) => {
                let destination = register(before(index), 0);
                let page = Form::Adrp.target(after(index), new.0.wrapping_add(distance));
                let next = (index + 1..count.min(index + 9)).find(|&next| {
                    before(next) == NOP && is_add(after(next)) && register(after(next), 5) == destination
                });
                if let Some(next) = next {
                    found(target, page.wrapping_add(page_offset(after(next)).unwrap_or(0)));
                }
            }
            (before, after_form) if before == after_form => {
                found(target, kind.target(after(index), new.0.wrapping_add(distance)));
            }
            _ => {}
        }
    }
}

/// A hash of the code between `start` and `end` that depends neither on its address nor on the addresses of its targets in
/// `__text`; and the number of bytes hashed, without padding.
pub(super) fn fingerprint(image: &MachView<'_>, start: u64, end: u64) -> (u64, usize) {
    let text = image.text();
    let range = (start - text.address) as usize..(end - text.address) as usize;
    let code = text.bytes.get(range).unwrap_or_default();
    if image.processor == Processor::X86_64 {
        return x86_64::fingerprint(image, code, start, &text.range());
    }
    let mut hasher = DefaultHasher::new();
    let is_padding = |index: usize| matches!(u32_at(code, index * 4), Some(0 | NOP));
    let body = (0..code.len() / 4).rev().find(|&index| !is_padding(index)).map_or(0, |last| last + 1);
    let words = || (0..body).map(|index| u32_at(code, index * 4).unwrap_or(0));
    let pages = page_registers(words());
    let holds_page = |number: usize| pages & 1 << number != 0;
    for (index, word) in words().enumerate() {
        let kind = form(word);
        let target = kind.target(word, start.wrapping_add(index as u64 * 4));
        let (destination, base) = (register(word, 0), register(word, 5));
        let low = page_offset(word).filter(|_| holds_page(base));
        match kind {
            // Halves of addresses may be written in two ways.
            Form::Adr | Form::Adrp | Form::Literal => 0u32.hash(&mut hasher),
            _ if word == NOP || low.is_some() && destination == base => 0u32.hash(&mut hasher),
            Form::Plain if low.is_some() => (word & !IMMEDIATE).hash(&mut hasher),
            Form::Plain => word.hash(&mut hasher),
            _ if text.range().contains(&target) => (word & !kind.field()).hash(&mut hasher),
            _ => target.hash(&mut hasher),
        }
    }
    (hasher.finish(), body * 4)
}

/// Registers that may hold a page or an address made of one, as a bit mask; independent of how the linker encoded the pair.
fn page_registers(words: impl Iterator<Item = u32> + Clone) -> u32 {
    let mut pages = 0u32;
    let mut known = 1;
    while pages != known {
        known = pages;
        for word in words.clone() {
            let is_half = matches!(form(word), Form::Adr | Form::Adrp | Form::Literal);
            let is_copy = word & 0xffe0_ffe0 == 0xaa00_03e0 && pages & 1 << register(word, 16) != 0;
            if is_half || is_copy {
                pages |= 1 << register(word, 0);
            }
        }
    }
    pages & 0x7fff_ffff
}
