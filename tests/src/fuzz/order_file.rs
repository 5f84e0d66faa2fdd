//! Any bytes as an order file of an image with symbols, the fuzzer itself: every line is counted.

use std::sync::LazyLock;

use reorder_image::elf::file::ElfFile;
use reorder_image::elf::functions::ElfFunctions;
use reorder_image::functions::FunctionTable;
use reorder_layout::Layout;
use reorder_layout::order_file::read::read;

static IMAGE: LazyLock<Vec<u8>> =
    LazyLock::new(|| std::fs::read("/proc/self/exe").expect("a program can read itself"));
static FUNCTIONS: LazyLock<FunctionTable<'static>> = LazyLock::new(|| {
    let file = ElfFile::parse(&IMAGE).expect("a linked program");
    ElfFunctions::collect(&file).expect("sound unwind entries").table
});

pub(super) fn check(bytes: &[u8]) {
    let listed = read(bytes, &FUNCTIONS);
    let coverage = &listed.coverage;
    assert_eq!(coverage.found() + coverage.ambiguous + coverage.unknown, coverage.lines);
    let layout = Layout::of_listed(&listed.functions, FUNCTIONS.len()).expect("few functions");
    assert_eq!(layout.order.len(), FUNCTIONS.len());
}
