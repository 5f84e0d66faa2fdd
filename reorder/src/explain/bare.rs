//! The bare name in a demangled one: `parse` in `int ns::parse<int>(char const*) const`.
//!
//! In: a demangled name of C++, Rust or C. Out: the last part of the path, without return type, arguments and template
//! arguments. A name of unknown form gives some part of it.

/// The bare name.
pub(super) fn bare(readable: &str) -> &str {
    let bytes = readable.as_bytes();
    let mut start = 0;
    // Where the name of this part ends, once its arguments have begun.
    let mut end = None;
    let mut depth = 0_usize;
    let mut at = 0;
    while at < bytes.len() {
        // Every comparison is with ASCII, so the text is only ever cut at a character boundary.
        let rest = &bytes[at..];
        if depth == 0 && at == start {
            if rest.starts_with(ANONYMOUS) {
                at += ANONYMOUS.len();
                continue;
            }
            if let Some(length) = operator_length(rest) {
                at += length;
                end = Some(at);
                continue;
            }
        }
        match bytes[at] {
            b':' if depth == 0 && rest.starts_with(b"::") => {
                (start, end) = (at + 2, None);
                at += 1;
            }
            b' ' if depth == 0 && is_after_type(bytes, at, end) => (start, end) = (at + 1, None),
            b'>' if at > 0 && bytes[at - 1] == b'-' => {}
            b'(' | b'<' | b'[' | b'{' => {
                let opens_arguments = depth == 0 && at > start && matches!(bytes[at], b'(' | b'<');
                end = end.or(opens_arguments.then_some(at));
                depth += 1;
            }
            b')' | b'>' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    readable.get(start..end.unwrap_or(bytes.len())).unwrap_or(readable)
}

const ANONYMOUS: &[u8] = b"(anonymous namespace)";

/// Whether the text before a space is the return type.
fn is_after_type(bytes: &[u8], at: usize, end: Option<usize>) -> bool {
    match end {
        None => true,
        // The arguments of a function are followed by its qualifiers.
        Some(_) => at > 0 && matches!(bytes[at - 1], b'>' | b'*' | b'&') && !bytes[..at].contains(&b')'),
    }
}

/// Length of an operator's name at the start of `text`, whose brackets do not enclose arguments.
fn operator_length(text: &[u8]) -> Option<usize> {
    let sign = text.strip_prefix(b"operator")?;
    let first = *sign.first()?;
    if first.is_ascii_alphanumeric() || first == b'_' {
        return None;
    }
    let length = match sign {
        [b'(', b')', ..] | [b'[', b']', ..] => 2,
        [b' ', ..] => sign.iter().position(|&byte| byte == b'(').unwrap_or(sign.len()),
        _ => sign.iter().position(|byte| !b"<>=!+-*/%^&|~,".contains(byte)).unwrap_or(sign.len()),
    };
    Some(b"operator".len() + length)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn paths_results_and_arguments_are_left_out() {
        for (readable, name) in [
            ("main", "main"),
            ("ns::parse<int>(char const*)", "parse"),
            ("int ns::parse<int>(char const*)", "parse"),
            ("std::vector<int> ns::make<std::map<int, int> >(int)", "make"),
            ("(anonymous namespace)::f(int)", "f"),
            ("ns::(anonymous namespace)::f(int)", "f"),
            ("std::vector<int, std::allocator<int> >::push_back(int const&)", "push_back"),
            ("std::function<int (long)>::call(int (*)(long)) const", "call"),
            ("operator<<(std::ostream&, ns::X const&)", "operator<<"),
            ("ns::F::operator()(int) const", "operator()"),
            ("ns::F::operator bool() const", "operator bool"),
            ("ns::P::operator->()", "operator->"),
            ("ns::f(int) const [clone .cold]", "f"),
            ("ns::f(int)::{lambda(int)#1}::operator()(int) const", "operator()"),
            ("ns::operators(int)", "operators"),
            ("<alloc::vec::Vec<T> as core::ops::Drop>::drop", "drop"),
            ("core::fmt::Write::write_fmt", "write_fmt"),
            ("program::main::{closure#0}", "{closure#0}"),
            ("größe::länge(int)", "länge"),
            ("", ""),
        ] {
            assert_eq!(bare(readable), name, "{readable}");
        }
    }

    proptest! {
        #[test]
        fn any_text_has_a_part(readable in "[a-z é:<>(){} *&-]{0,40}|(operator|::|<|>|\\(|\\)| |é){0,12}") {
            prop_assert!(readable.contains(bare(&readable)));
        }
    }
}
