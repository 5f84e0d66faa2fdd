//! The names of an image's functions in LLVM's profiles.
//!
//! Local functions are called `file;name` as the compiler's instrumentation names them; functions without a symbol have
//! their address as a name, which only this project's own reader of orders understands.

use std::collections::BTreeMap;

use reorder_base::address::Address;
use reorder_image::elf::functions::ElfFunctions;
use reorder_image::functions::Function;

/// Name in a profile.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProfileName(pub String);

impl ProfileName {
    /// One for each function.
    #[must_use]
    pub fn all(functions: &ElfFunctions<'_>) -> Vec<Self> {
        let symbols = best_symbols(functions);
        let name = |function: &Function| {
            let symbol = symbols.get(&function.start).cloned();
            Self(symbol.unwrap_or_else(|| format!("function@{}", function.start)))
        };
        functions.table.iter().map(|(_, function)| name(function)).collect()
    }
}

/// One name per address of code: the first global one, else the first local one, after its file.
fn best_symbols(functions: &ElfFunctions<'_>) -> BTreeMap<Address, String> {
    let mut globals = BTreeMap::new();
    let mut locals = BTreeMap::new();
    let mut file = String::new();
    for symbol in functions.symbols.iter() {
        let name = String::from_utf8_lossy(symbol.name);
        if symbol.kind == object::elf::STT_FILE.0 {
            file = name.into_owned();
        } else if symbol.is_function() && symbol.defining_section().is_some() && !name.is_empty() {
            if symbol.binding == object::elf::STB_LOCAL.0 {
                locals.entry(symbol.value).or_insert_with(|| format!("{file};{name}"));
            } else {
                globals.entry(symbol.value).or_insert_with(|| name.into_owned());
            }
        }
    }
    locals.extend(globals);
    locals
}
