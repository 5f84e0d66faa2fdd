//! Functions written as bytes: where their blocks begin and end, what is masked, and what is not certain.

use proptest::prelude::*;

use super::{LoadedBytes, Outline, Unclear, outline};
use crate::elf::file::ElfFile;
use reorder_base::address::Address;
use reorder_base::processor::Processor;

const START: u64 = 0x1000;

/// An image of one segment with `code` at [`START`].
fn image(code: &[u8], processor: Processor, is_fixed: bool) -> (LoadedBytes, Vec<u8>) {
    (LoadedBytes::of_one_segment(Address(START), code.len() as u64, processor, is_fixed), code.to_vec())
}

fn outlined(code: &[u8]) -> Result<Outline, Unclear> {
    of_first(code, code.len())
}

/// The function of the first `size` bytes; data may follow.
fn of_first(bytes: &[u8], size: usize) -> Result<Outline, Unclear> {
    let (loaded, file) = image(bytes, Processor::X86_64, false);
    outline(&loaded, &file, Address(START)..Address(START + size as u64))
}

fn blocks(outline: &Outline) -> Vec<(u32, u32, Option<u32>)> {
    outline.blocks.iter().map(|block| (block.start, block.end, block.next)).collect()
}

#[test]
fn branches_end_blocks_and_calls_do_not() {
    #[rustfmt::skip]
    let code = [
        0x85, 0xff,                   //  0 test edi,edi
        0x74, 0x06,                   //  2 je 10
        0xe8, 0, 0, 0, 0x10,          //  4 call elsewhere
        0xc3,                         //  9 ret
        0x31, 0xc0,                   // 10 xor eax,eax
        0xff, 0xc8,                   // 12 dec eax
        0x75, 0xfc,                   // 14 jne 12
        0xeb, 0xf1,                   // 16 jmp 3
    ];
    assert_eq!(outlined(&code), Err(Unclear::IntoInstruction), "the last jump leads to byte 3");
    let mut code = code;
    code[17] = 0xf2;
    let found = outlined(&code).unwrap();
    assert_eq!(
        blocks(&found),
        [(0, 4, None), (4, 10, None), (10, 12, Some(12)), (12, 16, None), (16, 18, Some(4))]
    );
    assert!(found.runs_through(10, 12) && !found.runs_through(4, 10) && found.runs_through(9, 10));
    assert!(found.begins_instruction(9) && !found.begins_instruction(5));
    assert!(found.ends_instruction(18) && !found.ends_instruction(0) && !found.ends_instruction(11));
    assert_eq!(found.block_around(13).map(|block| block.start), Some(12));
    assert_eq!(found.block_around(18), None);
}

#[test]
fn padding_is_in_no_block_unless_control_runs_through_it() {
    #[rustfmt::skip]
    let code = [
        0x31, 0xc0,                   //  0 xor eax,eax
        0x0f, 0x1f, 0x40, 0x00,       //  2 nop
        0xff, 0xc8,                   //  6 dec eax
        0x75, 0xfc,                   //  8 jne 6
        0xc3,                         // 10 ret
        0x66, 0x90,                   // 11 nop
        0xe8, 0, 0, 0, 0x10,          // 13 call elsewhere
        0x90,                         // 18 nop
        0x31, 0xc0,                   // 19 xor eax,eax
        0xc3,                         // 21 ret
    ];
    let found = outlined(&code).unwrap();
    // What follows a padded call is reached otherwise.
    assert_eq!(
        blocks(&found),
        [(0, 6, Some(6)), (6, 10, None), (10, 11, None), (13, 19, Some(19)), (19, 22, None)]
    );
}

#[test]
fn tables_of_distances_lead_to_blocks() {
    #[rustfmt::skip]
    let mut code = vec![
        0x48, 0x8d, 0x05, 0x17, 0, 0, 0,   //  0 lea rax,[rip+23] (30)
        0x48, 0x63, 0x0c, 0xb8,            //  7 movsxd rcx,[rax+rdi*4]
        0x48, 0x01, 0xc8,                  // 11 add rax,rcx
        0xff, 0xe0,                        // 14 jmp rax
        0x31, 0xc0,                        // 16 xor eax,eax
        0xff, 0xc0,                        // 18 inc eax
        0xff, 0xc0,                        // 20 inc eax
        0xc3,                              // 22 ret
        0x0f, 0x1f, 0x80, 0, 0, 0, 0,      // 23 nop
    ];
    let size = code.len();
    assert_eq!(size, 30);
    for target in [16, 18, 20] {
        code.extend_from_slice(&(target - 30i32).to_le_bytes());
    }
    // The middle of an instruction, after which a table has no further entry.
    code.extend_from_slice(&(17 - 30i32).to_le_bytes());
    let found = of_first(&code, size).unwrap();
    assert_eq!(blocks(&found), [(0, 16, None), (16, 18, Some(18)), (18, 20, Some(20)), (20, 23, None)]);
    // Without the jump it is data like any other.
    code[14..16].copy_from_slice(&[0x66, 0x90]);
    assert_eq!(blocks(&of_first(&code, size).unwrap()), [(0, 23, None)]);
}

#[test]
fn addresses_elsewhere_do_not_count() {
    #[rustfmt::skip]
    let code = [
        0x8b, 0x05, 1, 2, 3, 0,            //  0 mov eax,[rip+…]
        0xe8, 4, 5, 6, 0,                  //  6 call elsewhere
        0x0f, 0x84, 7, 8, 9, 0,            // 11 je elsewhere
        0x74, 0x00,                        // 17 je 19
        0xb8, 1, 2, 3, 4,                  // 19 mov eax,0x04030201
        0xc3,                              // 24 ret
    ];
    let mut masked = code;
    for field in [2..6, 7..11, 13..17] {
        masked[field].fill(0);
    }
    let found = outlined(&code).unwrap();
    assert_eq!(found.masked, masked);
    assert_eq!(found.leaving, [Address(START + 17 + 0x0009_0807)]);
}

#[test]
fn at_a_fixed_address_numbers_may_be_addresses() {
    #[rustfmt::skip]
    let code = [
        0xbf, 0x08, 0x10, 0, 0,            // 0 mov edi,0x1008
        0xbe, 0, 0, 0, 1,                  // 5 mov esi,0x1000000
        0xc3,                              // 10 ret
        0xcc, 0xcc,
    ];
    let of = |size: u64, is_fixed| {
        let (loaded, file) = image(&code, Processor::X86_64, is_fixed);
        outline(&loaded, &file, Address(START)..Address(START + size))
    };
    assert_eq!(of(11, true), Err(Unclear::OwnAddress));
    assert_eq!(of(11, false).unwrap().masked, code[..11]);
    // In a function that ends before it, it is the address of something else.
    let mut elsewhere = code;
    elsewhere[1] = 0x0c;
    let (loaded, file) = image(&elsewhere, Processor::X86_64, true);
    let found = outline(&loaded, &file, Address(START)..Address(START + 11)).unwrap();
    assert_eq!(found.masked, [0xbf, 0, 0, 0, 0, 0xbe, 0, 0, 0, 1, 0xc3]);
}

#[test]
fn what_may_be_data_is_not_certain() {
    for (code, expected) in [
        (&[0xe9, 0x00][..], Unclear::NotDecodable),
        (&[0x06, 0xc3], Unclear::NotDecodable),
        // mov eax,[rip-6]; lea rax,[rip-6]; call 6.
        (&[0x8b, 0x05, 0xfa, 0xff, 0xff, 0xff, 0xc3], Unclear::OwnData),
        (&[0x48, 0x8d, 0x05, 0xfa, 0xff, 0xff, 0xff, 0xc3], Unclear::OwnAddress),
        (&[0xe8, 0, 0, 0, 0, 0x58, 0xc3], Unclear::OwnAddress),
    ] {
        assert_eq!(outlined(code), Err(expected), "{code:x?}");
    }
    // Its own start is no such place.
    assert!(outlined(&[0xe8, 0xfb, 0xff, 0xff, 0xff, 0xc3]).is_ok());
    assert_eq!(of_first(&[0xc3], 2), Err(Unclear::NotInFile));
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

#[test]
fn aarch64_has_the_same_blocks() {
    let code = words(&[
        0xb400_0080, //  0 cbz x0,16
        0x9000_0001, //  4 adrp x1,…
        0x9104_0021, //  8 add x1,x1,#0x100
        0x97ff_0000, // 12 bl elsewhere
        0xd100_0400, // 16 sub x0,x0,#1
        0xb5ff_ffe0, // 20 cbnz x0,16
        0x17ff_ffff, // 24 b 20
        0xd503_201f, // 28 nop
        0xd65f_03c0, // 32 ret
    ]);
    let (loaded, file) = image(&code, Processor::Aarch64, false);
    let found = outline(&loaded, &file, Address(START)..Address(START + 36)).unwrap();
    assert_eq!(
        blocks(&found),
        [
            (0, 4, None),
            (4, 16, Some(16)),
            (16, 20, Some(20)),
            (20, 24, None),
            (24, 28, Some(20)),
            (32, 36, None)
        ]
    );
    let mut masked = code;
    masked[8..12].copy_from_slice(&0x9100_0021u32.to_le_bytes());
    masked[12..16].copy_from_slice(&0x9400_0000u32.to_le_bytes());
    assert_eq!(found.masked, masked);
}

/// Bytes that decode often.
fn code_like() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(vec![0x90]),
        Just(vec![0xc3]),
        any::<u8>().prop_map(|distance| vec![0x74, distance]),
        any::<u8>().prop_map(|distance| vec![0xeb, distance]),
        any::<i8>().prop_map(|distance| [&[0xe8][..], &i32::from(distance).to_le_bytes()].concat()),
        any::<i8>()
            .prop_map(|distance| [&[0x48, 0x8d, 0x05][..], &i32::from(distance).to_le_bytes()].concat()),
        Just(vec![0xff, 0xe0]),
        Just(vec![0x31, 0xc0]),
        proptest::collection::vec(any::<u8>(), 0..4),
    ];
    proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn any_bytes_give_blocks_of_whole_instructions_or_none(
        code in code_like(),
        cut in 0usize..8,
        is_arm in any::<bool>(),
        is_fixed in any::<bool>(),
    ) {
        let processor = if is_arm { Processor::Aarch64 } else { Processor::X86_64 };
        let (loaded, file) = image(&code, processor, is_fixed);
        let size = code.len().saturating_sub(cut) as u64;
        if let Ok(found) = outline(&loaded, &file, Address(START)..Address(START + size)) {
            prop_assert_eq!(found.masked.len() as u64, size);
            prop_assert_eq!(found.blocks[0].start, 0);
            let mut end = 0;
            for block in &found.blocks {
                prop_assert!(block.start >= end && block.end > block.start);
                prop_assert!(found.begins_instruction(block.start));
                prop_assert!(found.ends_instruction(block.end));
                let is_block = |next| found.blocks.iter().any(|other| other.start == next);
                prop_assert!(block.next.is_none_or(is_block));
                end = block.end;
            }
        }
    }
}

#[test]
fn functions_of_real_programs_are_certain() {
    let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    let file = ElfFile::parse(&own).unwrap();
    let functions = crate::elf::functions::ElfFunctions::collect(&file).unwrap().table;
    let loaded = LoadedBytes::new(&file);
    let of = |start, end| outline(&loaded, &own, start..end);
    let certain = functions.iter().filter(|(_, function)| of(function.start, function.end).is_ok()).count();
    assert!(certain * 100 >= functions.len() * 98, "{certain} of {}", functions.len());
}
