//! Assembles figures and columns into one file of HTML.
//!
//! Guarantees: no part of the data is read as markup, nothing is fetched, only the page's own script and style are
//! accepted by a browser (their digests are in the page's policy), and the same input gives the same bytes.

use std::fmt::Write as _;
use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use flate2::Compression;
use flate2::write::DeflateEncoder;
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::Part;
use super::summary::Summary;
use reorder_base::error::{Error, Result};

const TEMPLATE: &str = include_str!("assets/page.html");
const STYLE: &str = include_str!("assets/page.css");

/// One script, in the order in which its parts use each other.
const SCRIPTS: [&str; 10] = [
    include_str!("assets/data.js"),
    include_str!("assets/format.js"),
    include_str!("assets/colour.js"),
    include_str!("assets/tooltip.js"),
    include_str!("assets/touches.js"),
    include_str!("assets/map.js"),
    include_str!("assets/curve.js"),
    include_str!("assets/functions.js"),
    include_str!("assets/sections.js"),
    include_str!("assets/main.js"),
];

/// A page as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document(pub Vec<u8>);

/// Puts the page together.
pub(super) fn document(parts: &[Part]) -> Result<Document> {
    let packed: Vec<[String; 3]> = {
        use rayon::prelude::*;
        parts.par_iter().map(packed_part).collect::<Result<_>>()?
    };
    let script = SCRIPTS.concat();
    let policy = format!(
        "default-src 'none'; script-src '{}'; style-src '{}'; img-src data:; base-uri 'none'; form-action 'none'",
        digest(&script),
        digest(STYLE)
    );
    let image = parts.first().map(|part| part.summary.image.as_str()).unwrap_or_default();
    let file_name = image.rsplit('/').next().unwrap_or_default();
    let title = escaped(&format!("{file_name}: page faults at startup"));
    // Split before anything is inserted, so that data are never scanned for placeholders.
    let mut document =
        String::with_capacity(packed.iter().flatten().map(String::len).sum::<usize>() + (1 << 18));
    for (index, part) in TEMPLATE.split("{{").enumerate() {
        let Some((name, rest)) = part.split_once("}}").filter(|_| index > 0) else {
            document.push_str(part);
            continue;
        };
        match name {
            "policy" => document.push_str(&policy),
            "title" => document.push_str(&title),
            "style" => document.push_str(STYLE),
            "script" => document.push_str(&script),
            // In JSON this character occurs only in strings.
            "summaries" => {
                let summaries: Vec<&Summary> = parts.iter().map(|part| &part.summary).collect();
                document.push_str(&json(&summaries)?.replace('<', "\\u003c"));
            }
            "data" => packed.iter().enumerate().for_each(|(index, packed)| {
                for (name, data) in PACKED.iter().zip(packed) {
                    // Writing to a string cannot fail.
                    let _ = writeln!(
                        document,
                        "<script type=\"application/octet-stream\" id=\"{name}-{index}\">{data}</script>"
                    );
                }
            }),
            unknown => return Err(Error::usage(format!("the page has no part called {unknown}"))),
        }
        document.push_str(rest);
    }
    Ok(Document(document.into_bytes()))
}

/// What is packed of each image; the page unpacks it by these names.
const PACKED: [&str; 3] = ["columns", "names", "raw-names"];

fn packed_part(part: &Part) -> Result<[String; 3]> {
    Ok([packed(&json(&part.columns)?)?, packed(&part.names.readable)?, packed(&part.names.raw)?])
}

fn json(model: &impl Serialize) -> Result<String> {
    serde_json::to_string(model)
        .map_err(|error| Error::usage(format!("cannot express the report as JSON: {error}")))
}

/// Compressed without a header, as browsers' `DecompressionStream("deflate-raw")` takes it, then in base64.
fn packed(text: &str) -> Result<String> {
    let failed = |error| Error::usage(format!("cannot compress the page's data: {error}"));
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes()).map_err(failed)?;
    Ok(BASE64.encode(encoder.finish().map_err(failed)?))
}

/// The digest of a script or a style, as in a content security policy.
fn digest(text: &str) -> String {
    format!("sha256-{}", BASE64.encode(Sha256::digest(text.as_bytes())))
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '<' | '>' | '&' | '"' | '\'' => {
                // Writing to a string cannot fail.
                let _ = write!(escaped, "&#{};", u32::from(character));
            }
            other => escaped.push(other),
        }
    }
    escaped
}
