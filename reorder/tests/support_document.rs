//! SUPPORT.md lists every refusal and every pin, in the words that users see.

const DOCUMENT: &str = include_str!("../../SUPPORT.md");
const PINS: &str = include_str!("../image/src/pins.rs");
const REFUSALS: &str = include_str!("../base/src/refusal.rs");

#[test]
fn every_pin_reason_is_explained() {
    let messages: Vec<&str> = PINS
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Self::")?.split_once(" => \""))
        .filter_map(|(_, message)| message.strip_suffix("\","))
        .collect();
    assert!(messages.len() > 15, "{messages:?}");
    for message in messages {
        assert!(DOCUMENT.contains(&format!("| {message} |")), "SUPPORT.md does not explain: {message}");
    }
}

#[test]
fn every_refusal_code_is_explained() {
    let codes: Vec<&str> = REFUSALS
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Self::")?.split_once(" => \""))
        .filter_map(|(_, code)| code.strip_suffix("\","))
        .filter(|word| word.strip_prefix(['R', 'M']).is_some_and(|number| number.parse::<u8>().is_ok()))
        .collect();
    assert!(codes.len() > 30, "{codes:?}");
    for code in codes {
        assert!(DOCUMENT.contains(&format!("| {code} |")), "SUPPORT.md does not explain {code}");
    }
}
