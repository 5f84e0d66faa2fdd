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
use std::path::Path;

use reorder_base::error::{Error, Result};
use reorder_layout::configuration::ConfigurationFile;
use toml::{Table, Value};

use super::options::{COMMAND_LINE_ONLY, word};

/// What a configuration says about links.
#[derive(Clone, Debug, Default)]
pub(crate) struct Configuration {
    file: ConfigurationFile,
    /// Why a file that was found is not used.
    pub(crate) note: Option<String>,
}

impl Configuration {
    /// See [`ConfigurationFile::find`].
    ///
    /// # Errors
    /// As there.
    pub(crate) fn find(chosen: Option<&Path>, directory: &Path) -> Result<Self> {
        let mut file = ConfigurationFile::find(chosen, directory, "--reorder-config")?;
        let note = file.note.take();
        Ok(Self { file, note })
    }

    /// The options for what is linked as `program`, as words of a command line, without those called in `except`.
    ///
    /// # Errors
    /// Keys that are no option, and values that no option takes.
    pub(crate) fn words(
        &self,
        program: Option<&OsStr>,
        definition: &clap::Command,
        except: &[String],
    ) -> Result<Vec<OsString>> {
        let link = self.file.subtable("link")?;
        let programs = self.file.subtable("program")?;
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
        match text.strip_prefix('@') {
            Some(list) => {
                let mut located = OsString::from("@");
                located.push(self.file.located(Path::new(list)));
                located
            }
            None => self.file.located(Path::new(text)).into(),
        }
    }

    fn mistake(&self, cause: &str, hint: &str) -> Error {
        self.file.mistake(cause, hint)
    }
}

#[cfg(test)]
mod tests {
    use reorder_layout::configuration::FILE_NAME;

    use super::*;
    use crate::wrapper::talk::hint_of;

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
            let told = format!("{error} {}", hint_of(&error).unwrap_or_default());
            assert!(told.contains(part) && told.contains(FILE_NAME), "{told}");
        }
    }
}
