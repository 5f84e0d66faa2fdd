//! Which functions of this test program a layout lists, and which it leaves in the linker's order.

use super::compression::Compression;
use super::*;
use reorder_image::elf::functions::ElfFunctions;
use reorder_system::mapped::map_image;

fn layout(trace: impl Fn(u32) -> Vec<u32>, request: &LayoutRequest) -> (Layout, Vec<FunctionIndex>) {
    let own = std::env::current_exe().unwrap();
    let bytes = map_image(&own).unwrap();
    let file = ElfFile::parse(&bytes).unwrap();
    let functions = ElfFunctions::collect(&file).unwrap().table;
    let ran: Vec<FunctionIndex> = trace(functions.len() as u32).into_iter().map(FunctionIndex).collect();
    let nanoseconds = vec![0; ran.len()];
    let traces = [ResolvedTrace {
        weight: 1,
        label: "start".into(),
        functions: ran.clone(),
        nanoseconds,
        ..ResolvedTrace::default()
    }];
    (lay_out(&file, &functions, &traces, Room::Linker, request).unwrap(), ran)
}

#[test]
fn flags_without_effect_are_refused() {
    let own = std::env::current_exe().unwrap();
    let bytes = map_image(&own).unwrap();
    let file = ElfFile::parse(&bytes).unwrap();
    let functions = ElfFunctions::collect(&file).unwrap().table;
    let link = LayoutRequest::of(Strategy::Link, 0);
    let refused = |request| lay_out(&file, &functions, &[], Room::Linker, &request).is_err();
    assert!(refused(LayoutRequest { compress: Some(Compression::default()), ..link }));
    assert!(refused(LayoutRequest { unseen: Unseen::References, ..link }));
    assert!(!refused(link));
}

#[test]
fn what_ran_is_listed_even_where_it_stands_already() {
    let request = LayoutRequest::of(Strategy::FirstSeen, 0);
    let starts: [fn(u32) -> Vec<u32>; 3] =
        [|_| vec![0, 1, 2], |count| vec![count - 2, count - 1], |_| vec![7, 3]];
    for trace in starts {
        let (layout, ran) = layout(trace, &request);
        assert_eq!((layout.needed, &layout.order[..ran.len()]), (ran.len(), ran.as_slice()));
        assert_eq!(layout.chosen, ran.len());
    }
}

#[test]
fn references_order_what_no_trace_ran() {
    let request = LayoutRequest { unseen: Unseen::References, ..LayoutRequest::of(Strategy::FirstSeen, 0) };
    let (layout, ran) = layout(|_| vec![40, 41, 42], &request);
    assert_eq!(&layout.order[..3], ran);
    assert!(layout.chosen > 100, "{}", layout.chosen);
    let mut all: Vec<u32> = layout.order.iter().map(|function| function.0).collect();
    all.sort_unstable();
    assert!(all.iter().enumerate().all(|(index, &function)| index == function as usize));
}

#[test]
fn compression_keeps_what_ran_first() {
    let request = LayoutRequest { unseen: Unseen::References, ..LayoutRequest::of(Strategy::FirstSeen, 0) };
    let (layout, ran) =
        layout(|_| (40..80).collect(), &LayoutRequest { compress: Some(Compression::default()), ..request });
    assert_eq!(&layout.order[..40], ran);
    assert_eq!(layout.needed, 40);
}
