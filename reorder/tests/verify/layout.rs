//! Where the parts of a well-formed image are: just enough to damage them on purpose.

/// One section of an image.
pub(crate) struct Section {
    pub(crate) name: String,
    pub(crate) address: u64,
    pub(crate) offset: usize,
    pub(crate) size: usize,
}

/// The 64-bit number at `offset`, as a position.
pub(crate) fn header_field(bytes: &[u8], offset: usize) -> usize {
    u64::from_le_bytes(bytes[offset..offset + 8].try_into().expect("eight bytes")) as usize
}

/// All sections, in header order.
pub(crate) fn sections(bytes: &[u8]) -> Vec<Section> {
    let half = |offset: usize| usize::from(u16::from_le_bytes([bytes[offset], bytes[offset + 1]]));
    let headers = header_field(bytes, 0x28);
    let header = |index: usize| headers + index * 64;
    let names = header_field(bytes, header(half(0x3e)) + 24);
    (0..half(0x3c))
        .map(|index| {
            let at = header(index);
            let name = names + (header_field(bytes, at) & 0xffff_ffff);
            let length = bytes[name..].iter().position(|&byte| byte == 0).expect("a terminated name");
            Section {
                name: String::from_utf8_lossy(&bytes[name..name + length]).into_owned(),
                address: header_field(bytes, at + 16) as u64,
                offset: header_field(bytes, at + 24),
                size: header_field(bytes, at + 32),
            }
        })
        .collect()
}

/// The section of this name.
pub(crate) fn section<'a>(sections: &'a [Section], name: &str) -> &'a Section {
    sections.iter().find(|section| section.name == name).unwrap_or_else(|| panic!("{name} is missing"))
}

/// Adds to one byte, wrapping.
pub(crate) fn add(bytes: &mut [u8], offset: usize, amount: u8) {
    bytes[offset] = bytes[offset].wrapping_add(amount);
}
