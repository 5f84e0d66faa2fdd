//! `reorder-ld`: stands in for a linker, runs the real one, and orders the functions of what it links.
//!
//! ```text
//! arguments ── Request ──┬─> a compiler's? ──> driver, which calls us back as the linker
//!                        └─> Invocation ──> concerned? ──no──> become the real linker
//!                                              │ yes
//!                     the same link before? ──yes──> its order ──┐
//!                                              │ no              │
//!                          trial link ──> order for this linker ─┴──> real link ──> report ──> output
//!                          (or: real link ──> functions moved in the finished image ──> output)
//! ```
//!
//! Guarantees: the linker gets every argument as it came; without traces for this output it is as if we were not there; a
//! link that fails without us fails in the same way, with the same messages; a failure to make or use an order
//! costs a warning, not the link, unless `strict` is set. The output appears whole under its name or not at all.

pub mod account;
mod addition;
mod build_names;
mod cache;
mod call;
mod caller;
mod configuration;
mod contents;
mod driver;
mod driver_words;
mod environment;
mod inputs;
mod invocation;
mod link;
mod linked;
mod linker_family;
mod linker_names;
mod links;
mod moved;
mod options;
mod ordering;
mod post_link;
mod process;
mod real_linker;
mod recorded;
mod remembered;
mod report;
mod request;
mod response_files;
mod route;
mod talk;
mod trial;
mod workplace;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use reorder_base::error::{Error, Result};

use call::{COULD_NOT_RUN, Call};
use environment::Environment;
use invocation::Invocation;
use request::{Request, RequestError};
use talk::Talk;

/// Runs a call of the linker with `arguments`, program name first.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut arguments = arguments.into_iter();
    let name = arguments.next().unwrap_or_default();
    stand_in(&name, arguments.collect()).unwrap_or_else(|error| {
        Talk::default().error(&error);
        ExitCode::from(COULD_NOT_RUN)
    })
}

fn stand_in(name: &OsString, arguments: Vec<OsString>) -> Result<ExitCode> {
    let environment = Environment::of_process()?;
    caller::follow(&environment);
    let directory = std::env::current_dir().map_err(|error| Error::io(Path::new("."), error))?;
    let program_of = |arguments: &[OsString]| Invocation::new(arguments.to_vec(), &directory).program();
    let request = match Request::new(arguments, &environment.variables, &directory, program_of) {
        Ok(request) => request,
        Err(RequestError::Other(error)) => return Err(error),
        Err(RequestError::Options(error)) => return Ok(explain_options(&error)),
    };
    let options = &request.options;
    if let Some(folder) = &options.links {
        return print_links(folder.as_deref(), &environment);
    }
    if options.man {
        print(&reorder_report::manual_page(&options::spelled_definition())?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut linker_arguments = request.linker_arguments.clone();
    let words = response_files::expanded(&linker_arguments, &directory);
    let talk = Talk::new(options);
    if let Some(own) = own_help(name, &words) {
        talk.note(&own);
    }
    if driver::is_driver_call(name, &words) {
        let wanted = options.driver.as_deref();
        let status = driver::run(linker_arguments, &words, &request.own_words, wanted, &environment)?;
        return Ok(ExitCode::from(status));
    }
    request.notes.iter().for_each(|note| talk.warning(note, None));
    if let Some(advice) = driver::advice(name, &words) {
        talk.note(advice);
    }
    let name = real_linker::stand_in_name(name, &mut linker_arguments);
    let program = real_linker::locate(options.linker.as_deref(), &name, &environment)?;
    let invocation = Invocation::new(linker_arguments, &directory);
    let has_own_files = request.has_own_files();
    let call =
        Call { program, environment: &environment, invocation: &invocation, options, has_own_files, talk };
    Ok(ExitCode::from(call.link()))
}

/// Where our own help is, if help is asked for under our own name: the linker answers, who does not know of us.
fn own_help(name: &OsStr, words: &[OsString]) -> Option<String> {
    let program = Path::new(name).file_name()?.to_string_lossy();
    let is_asked_for = program.starts_with("reorder-") && words.iter().any(|word| word == "--help");
    is_asked_for
        .then(|| format!("this is the help of what {program} runs; its own: {program} --reorder-help"))
}

/// Makes the folder of links and prints its path.
fn print_links(folder: Option<&Path>, environment: &Environment) -> Result<ExitCode> {
    use std::os::unix::ffi::OsStrExt;
    let folder = links::create(folder, environment)?;
    // A path may hold any bytes, and a compiler is to find it.
    print(&[folder.as_os_str().as_bytes(), b"\n"].concat())?;
    Ok(ExitCode::SUCCESS)
}

fn print(bytes: &[u8]) -> Result<()> {
    use std::io::Write;
    let written = std::io::stdout().lock().write_all(bytes);
    written.map_err(|error| Error::io(Path::new("stdout"), error))
}

/// Help and version are data on stdout, mistakes are talk on stderr; options are spelled as the user must write them.
fn explain_options(error: &clap::Error) -> ExitCode {
    // clap knows the options without the prefix that they have on a linker's command line.
    let spelled = |text: &str, start: &str| {
        text.replace(&format!("{start}--"), &format!("{start}--reorder-"))
            .replace("--reorder-reorder-", "--reorder-")
    };
    let text = [" ", "'", "\n"].iter().fold(error.render().to_string(), |text, start| spelled(&text, start));
    use std::io::Write;
    // A closed pipe cannot be reported.
    let _ = match error.use_stderr() {
        true => write!(std::io::stderr().lock(), "reorder-ld: {text}"),
        false => write!(std::io::stdout().lock(), "{text}"),
    };
    ExitCode::from(if error.use_stderr() { COULD_NOT_RUN } else { 0 })
}
