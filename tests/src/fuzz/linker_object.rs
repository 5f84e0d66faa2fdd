//! Any bytes as an object of a link, and as options of the plugin: the input bounds the output.

use reorder_plugin::plugin::object_file::{read_object, tail_of};
use reorder_plugin::plugin::options::Options;

pub(super) fn check(bytes: &[u8]) {
    let lines: Vec<&[u8]> = bytes.split(|&byte| byte == b'\n').collect();
    let _ = Options::parse(&lines);
    let Some(code) = read_object(bytes) else { return };
    let names =
        code.sections.iter().flat_map(|section| &section.functions).map(|function| function.name.len());
    assert!(names.sum::<usize>() <= 4 * bytes.len());
    assert!(code.sections.windows(2).all(|pair| pair[0].index < pair[1].index));
    for section in &code.sections {
        assert!(section.size > 0 && section.size <= bytes.len() as u64);
        assert!(section.alignment.is_power_of_two());
        let _ = tail_of(&section.name);
    }
}
