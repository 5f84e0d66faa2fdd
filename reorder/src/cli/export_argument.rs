//! `--export FORM=FILE`, for every command that can write its report in more forms.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use clap::ValueEnum;
use clap::builder::{OsStringValueParser, TypedValueParser};

/// One output besides stdout.
#[derive(Clone, Debug)]
pub(super) struct Export<Form> {
    pub(super) form: Form,
    pub(super) file: PathBuf,
}

/// The value parser of the option.
pub(super) fn export_parser<Form>() -> impl TypedValueParser<Value = Export<Form>>
where
    Form: ValueEnum + Send + Sync + 'static,
{
    OsStringValueParser::new().try_map(parse::<Form>)
}

/// Splits `FORM=FILE`; an error is a sentence for the user.
fn parse<Form: ValueEnum>(text: OsString) -> Result<Export<Form>, String> {
    let known = || {
        let forms = Form::value_variants().iter().filter_map(ValueEnum::to_possible_value);
        forms.map(|form| form.get_name().to_owned()).collect::<Vec<_>>().join(", ")
    };
    // Names of files need not be UTF-8.
    let bytes = text.as_bytes();
    let equals = bytes.iter().position(|byte| *byte == b'=');
    let equals = equals.ok_or_else(|| format!("write FORM=FILE; the forms are {}", known()))?;
    let (form, file) = (String::from_utf8_lossy(&bytes[..equals]), OsStr::from_bytes(&bytes[equals + 1..]));
    let form = Form::from_str(&form, false)
        .map_err(|_| format!("no form is called {form}; there are {}", known()))?;
    if file.is_empty() {
        return Err("the file's name is missing".to_owned());
    }
    Ok(Export { form, file: PathBuf::from(file) })
}
