//! `reorder.toml`: options that a repository keeps.
//!
//! ```toml
//! [link]                 # every link
//! traces = ["traces"]    # paths are relative to this file
//! memory = "16k"
//!
//! [program.server]       # links whose output is called `server`, on top of the above
//! traces = ["traces/server"]
//! ```
//!
//! Where there are `program` tables, only these programs are ordered. Tables with other names belong to other commands.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use reorder::error::{Error, Result};
use toml::{Table, Value};

use super::options::{COMMAND_LINE_ONLY, word};

/// The name of the file.
const FILE_NAME: &str = "reorder.toml";

/// A configuration and where its relative paths start.
#[derive(Clone, Debug, Default)]
pub struct Configuration {
    file: PathBuf,
    table: Table,
    /// Why a file that was found is not used.
    pub note: Option<String>,
}

impl Configuration {
    /// The configuration in `chosen`, else the nearest one at or above `directory`, else an empty one.
    ///
    /// Options name programs to run. So a file that nobody named is used only if it is the user's or root's and not
    /// everybody can write it; else there is a note.
    ///
    /// # Errors
    /// Files that cannot be read or are not TOML, with the line.
    pub fn find(chosen: Option<&Path>, directory: &Path) -> Result<Self> {
        let file = match chosen {
            Some(path) if path == Path::new("off") => None,
            Some(path) => Some(directory.join(path)),
            None => directory.ancestors().map(|folder| folder.join(FILE_NAME)).find(|file| file.is_file()),
        };
        let Some(file) = file else { return Ok(Self::default()) };
        let failed = |error| Error::io(&file, error);
        let mut opened = std::fs::File::open(&file).map_err(failed)?;
        if chosen.is_none()
            && let Some(reason) =
                distrust(&opened.metadata().map_err(failed)?, nix::unistd::geteuid().as_raw())
        {
            let note =
                format!("{} is not used: {reason}; --reorder-config uses it all the same", file.display());
            return Ok(Self { note: Some(note), ..Self::default() });
        }
        let mut text = String::new();
        opened.read_to_string(&mut text).map_err(failed)?;
        let table = text.parse::<Table>().map_err(|error| {
            let offset = error.span().map_or(0, |span| span.start as u64);
            Error::malformed(offset, error.message().to_owned()).in_file(&file)
        })?;
        Ok(Self { file, table, note: None })
    }

    /// The options for what is linked as `program`, as words of a command line, without those called in `except`.
    ///
    /// # Errors
    /// Keys that are no option, and values that no option takes.
    pub fn words(
        &self,
        program: Option<&OsStr>,
        definition: &clap::Command,
        except: &[String],
    ) -> Result<Vec<OsString>> {
        let link = self.subtable(&self.table, "link")?;
        let programs = self.subtable(&self.table, "program")?;
        let mut words = Vec::new();
        let mut except = except.to_vec();
        for name in
            programs.into_iter().flat_map(Table::keys).filter(|_| !except.contains(&"program".to_owned()))
        {
            words.push(word("program", OsStr::new(name)));
        }
        let own = programs
            .zip(program.and_then(OsStr::to_str))
            .and_then(|(programs, name)| programs.get_key_value(name));
        if let Some((name, Value::Table(own))) = own {
            words.extend(self.words_of(&format!("program.{name}"), own, definition, &except)?);
            except.extend(own.keys().cloned());
            if own.contains_key("quiet") || own.contains_key("verbose") {
                except.extend(["quiet".to_owned(), "verbose".to_owned()]);
            }
        }
        if let Some(link) = link {
            words.extend(self.words_of("link", link, definition, &except)?);
        }
        Ok(words)
    }

    fn subtable<'table>(&self, table: &'table Table, name: &str) -> Result<Option<&'table Table>> {
        match table.get(name) {
            None => Ok(None),
            Some(Value::Table(table)) => Ok(Some(table)),
            Some(_) => Err(self.mistake(
                &format!("{name} is no table"),
                &format!("write [{name}] and the options below it"),
            )),
        }
    }

    fn words_of(
        &self,
        table: &str,
        options: &Table,
        definition: &clap::Command,
        except: &[String],
    ) -> Result<Vec<OsString>> {
        let mut words = Vec::new();
        for (key, value) in options.iter().filter(|(key, _)| !except.contains(key)) {
            if COMMAND_LINE_ONLY.contains(&key.as_str()) {
                let cause = format!("[{table}] has {key}, which is for the command line only");
                return Err(self.mistake(&cause, &format!("call reorder-ld --reorder-{key}")));
            }
            if !definition.get_arguments().any(|argument| argument.get_long() == Some(key)) || key == "config"
            {
                let cause = format!("[{table}] has {key}, which is no option");
                return Err(self.mistake(&cause, "reorder-ld --reorder-help lists the options"));
            }
            match value {
                Value::Boolean(true) => words.push(format!("--{key}").into()),
                Value::Boolean(false) => {}
                Value::Array(values) => {
                    for value in values {
                        words.push(self.word_of(table, key, value)?);
                    }
                }
                value => words.push(self.word_of(table, key, value)?),
            }
        }
        Ok(words)
    }

    fn word_of(&self, table: &str, key: &str, value: &Value) -> Result<OsString> {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Integer(number) => number.to_string(),
            _ => {
                let cause = format!("[{table}] {key} is neither text nor a whole number");
                return Err(self.mistake(&cause, "see reorder-ld --reorder-help"));
            }
        };
        Ok(word(key, &self.located(key, &text)))
    }

    /// Paths are relative to the file that states them.
    fn located(&self, key: &str, text: &str) -> OsString {
        let is_path = match key {
            "traces" | "companion" | "report" => true,
            "cache" => text != "off",
            "linker" | "driver" => text.contains('/'),
            _ => false,
        };
        if !is_path {
            return text.into();
        }
        let base = self.file.parent().unwrap_or(Path::new(""));
        match text.strip_prefix('@') {
            Some(list) => {
                let mut located = OsString::from("@");
                located.push(base.join(list));
                located
            }
            None => base.join(text).into(),
        }
    }

    fn mistake(&self, cause: &str, hint: &str) -> Error {
        Error::usage(cause).in_file(&self.file).with_hint(hint)
    }
}

/// Why a file with these `facts` may be somebody else's trap for `user`.
fn distrust(facts: &std::fs::Metadata, user: u32) -> Option<String> {
    if facts.uid() != user && facts.uid() != 0 {
        return Some("it belongs to another user".to_owned());
    }
    (facts.mode() & 0o002 != 0).then(|| "everybody can write it".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_others_are_not_used_unless_named() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join(FILE_NAME);
        std::fs::write(&file, "[link]\nseed = 3\n").unwrap();
        let find = |chosen: Option<&Path>| Configuration::find(chosen, directory.path()).unwrap();
        assert!(find(None).note.is_none() && !find(None).table.is_empty());
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).unwrap();
        let found = find(None);
        assert!(
            found.note.is_some_and(|note| note.contains("everybody can write it")) && found.table.is_empty()
        );
        assert!(find(Some(&file)).note.is_none() && !find(Some(&file)).table.is_empty());
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        let facts = std::fs::metadata(&file).unwrap();
        assert_eq!(distrust(&facts, facts.uid()), None);
        assert_eq!(distrust(&facts, facts.uid() + 1).is_some(), facts.uid() != 0);
    }

    #[test]
    fn what_a_program_says_hides_what_all_links_say() {
        let text = "[link]\nverbose = true\n[program.server]\nquiet = true\n";
        assert_eq!(words(text, "server", &[]).unwrap(), ["--program=server", "--quiet"]);
    }

    fn words(text: &str, program: &str, except: &[&str]) -> Result<Vec<String>> {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(FILE_NAME), text).unwrap();
        let below = directory.path().join("a/b");
        std::fs::create_dir_all(&below).unwrap();
        let except: Vec<String> = except.iter().map(|name| (*name).to_owned()).collect();
        let configuration = Configuration::find(None, &below)?;
        let words = configuration.words(
            Some(OsStr::new(program)),
            &crate::wrapper::options::definition(),
            &except,
        )?;
        let base = directory.path().display().to_string();
        Ok(words.iter().map(|word| word.to_string_lossy().replace(&base, "BASE")).collect())
    }

    #[test]
    fn options_come_from_the_nearest_file() {
        let text =
            "[link]\ntraces = ['t', '@list']\nseed = 3\nstrict = true\ndata = false\nlinker = 'ld.lld'\n";
        let expected = ["--linker=ld.lld", "--seed=3", "--strict", "--traces=BASE/t", "--traces=@BASE/list"];
        assert_eq!(words(text, "any", &[]).unwrap(), expected);
        assert_eq!(words(text, "any", &["traces", "seed", "strict"]).unwrap(), ["--linker=ld.lld"]);
        assert_eq!(words("[gate]\nx = 1\n", "any", &[]).unwrap(), [""; 0]);
    }

    #[test]
    fn programs_have_options_of_their_own() {
        let text = "[link]\ntraces = 't'\nseed = 1\n[program.server]\ntraces = 's'\n[program.client]\n";
        assert_eq!(
            words(text, "server", &[]).unwrap(),
            ["--program=client", "--program=server", "--traces=BASE/s", "--seed=1"]
        );
        assert_eq!(
            words(text, "other", &[]).unwrap(),
            ["--program=client", "--program=server", "--seed=1", "--traces=BASE/t"]
        );
    }

    #[test]
    fn mistakes_are_told_with_their_file() {
        for (text, part) in [
            ("[link]\ntarces = 't'\n", "tarces"),
            ("link = 3\n", "[link]"),
            ("[link]\nlinks = '/tmp/l'\n", "command line only"),
            ("[link]\nseed = 1.5\n", "whole number"),
            ("[link\n", "offset"),
        ] {
            let error = words(text, "any", &[]).unwrap_err();
            let told = format!("{error} {}", error.hint.clone().unwrap_or_default());
            assert!(told.contains(part) && told.contains(FILE_NAME), "{told}");
        }
    }
}
