//! The AutoFDO profile of GCC (`create_gcov`): samples by function and line, no order.
//!
//! It starts like a `.gcda` file, but its version is a number instead of four letters. Words are in the byte order of
//! the processor that wrote it; counters are two words, the low one first (`auto-profile.cc` of GCC).
//!
//! ```text
//! "gcda", version 1 to 3, 0
//! version 3:  0xa8000000, 5 counters, n: counter, n x { word, counter, counter }     summary
//! 0xaa000000, length, version 3: n, n x file, n, n x { name, version 3: word }       names
//! 0xac000000, length, n, n x { head: counter, function }
//! 0xae000000, 0xaf000000                                                             nothing of functions
//!
//! function    name: word, n: word, m: word,
//!             n x { line: word, k: word, samples: counter, k x { word, callee: counter, count: counter } },
//!             m x { line: word, function that was inlined there }
//! name        length, then bytes up to a NUL; length is in words in version 1, in bytes later
//! ```

use super::Profile;
use crate::cursor::{ByteOrder, Cursor};
use crate::{Input, Location, Reading};
use reorder_base::error::{Error, Result};

const SUMMARY: u32 = 0xa800_0000;
const NAMES: u32 = 0xaa00_0000;
const FUNCTIONS: u32 = 0xac00_0000;

/// Whether it is a profile of GCC's AutoFDO.
pub(crate) fn accepts(bytes: &[u8]) -> bool {
    recognise(bytes).is_some()
}

/// Byte order and version.
fn recognise(bytes: &[u8]) -> Option<(ByteOrder, u32)> {
    let (magic, version) = (bytes.first_chunk::<4>()?, bytes.get(4..)?.first_chunk::<4>()?);
    let (order, version) = match magic {
        b"adcg" => (ByteOrder::Little, u32::from_le_bytes(*version)),
        b"gcda" => (ByteOrder::Big, u32::from_be_bytes(*version)),
        _ => return None,
    };
    // Letters of a compiler's version are larger by far.
    (1..=u32::from(u8::MAX)).contains(&version).then_some((order, version))
}

/// One trace of counts.
///
/// # Errors
/// Unknown versions, and damage before the first function.
pub(crate) fn read(input: &Input<'_>) -> Result<Reading> {
    let mut profile = Profile::default();
    let damage = read_profile(input.bytes, &mut profile).err();
    profile
        .into_reading(damage)
        .map_err(|error| if error.hint.is_some() { error } else { error.with_hint(HINT) })
}

const HINT: &str = "give the perf.data file that the profile was made from, which knows the times of its samples; or \
                    build with gcc -fprofile-generate and give the .gcda files, which know the order";

fn read_profile(bytes: &[u8], profile: &mut Profile) -> Result<()> {
    const HEADER: u64 = 12;
    let (order, version) =
        recognise(bytes).ok_or_else(|| Error::malformed(0, "not an AutoFDO profile of GCC"))?;
    if version > 3 {
        let message = format!("an AutoFDO profile of GCC in version {version}; versions 1 to 3 are read");
        return Err(Error::malformed(4, message)
            .with_hint("write it again in a version that is known: create_gcov --gcov_version=2"));
    }
    let mut file = File { cursor: Cursor::new(bytes, order), version, names: Vec::new() };
    file.cursor.skip(HEADER)?;
    if version >= 3 {
        file.skip_summary()?;
    }
    file.read_names()?;
    file.tag(FUNCTIONS, "functions")?;
    let _length = file.cursor.u32()?;
    for _ in 0..file.cursor.u32()? {
        let head = file.counter()?;
        file.read_function(head, profile)?;
    }
    Ok(())
}

struct File<'data> {
    cursor: Cursor<'data>,
    version: u32,
    names: Vec<Location>,
}

/// A function of which not everything that is inlined has been read.
struct Unfinished {
    function: Location,
    /// Its own samples and those of what is inlined.
    total: u64,
    /// Calls whose inlined function is still to come.
    left: u32,
}

impl<'data> File<'data> {
    fn tag(&mut self, expected: u32, what: &str) -> Result<()> {
        let at = self.cursor.offset();
        match self.cursor.u32()? {
            tag if tag == expected => Ok(()),
            tag => Err(Error::malformed(at, format!("tag {tag:#010x} where the {what} should start"))),
        }
    }

    fn counter(&mut self) -> Result<u64> {
        let (low, high) = (self.cursor.u32()?, self.cursor.u32()?);
        Ok(u64::from(high) << 32 | u64::from(low))
    }

    fn skip_summary(&mut self) -> Result<()> {
        const TOTALS: u64 = 5;
        const COUNTER: u64 = 8;
        const DETAIL: u64 = 4 + 2 * COUNTER;
        self.tag(SUMMARY, "summary")?;
        self.cursor.skip(TOTALS * COUNTER)?;
        let details = self.counter()?;
        self.cursor.take_array(details, DETAIL).map(|_| ())
    }

    fn read_names(&mut self) -> Result<()> {
        self.tag(NAMES, "names")?;
        let _length = self.cursor.u32()?;
        if self.version >= 3 {
            for _ in 0..self.cursor.u32()? {
                self.string()?;
            }
        }
        // Each name takes a word at least, so the vector cannot outgrow the file.
        for _ in 0..self.cursor.u32()? {
            let name = self.string()?;
            self.names.push(Location::Name(name.into()));
            if self.version >= 3 {
                self.cursor.u32()?;
            }
        }
        Ok(())
    }

    fn string(&mut self) -> Result<&'data [u8]> {
        let unit = if self.version == 1 { 4 } else { 1 };
        let length = self.cursor.u32()?;
        let bytes = self.cursor.take_array(length.into(), unit)?;
        Ok(bytes.split(|&byte| byte == 0).next().unwrap_or_default())
    }

    /// One function with all that is inlined into it, however deep: the callers wait on a stack.
    fn read_function(&mut self, head: u64, profile: &mut Profile) -> Result<()> {
        let mut stack = vec![self.read_own()?];
        while let Some(last) = stack.last_mut() {
            if let Some(left) = last.left.checked_sub(1) {
                last.left = left;
                let _line = self.cursor.u32()?;
                stack.push(self.read_own()?);
                continue;
            }
            let Some(Unfinished { function, total, .. }) = stack.pop() else { break };
            match stack.last_mut() {
                Some(caller) => {
                    caller.total = caller.total.saturating_add(total);
                    profile.add(function, total, 0);
                }
                None => profile.add(function, total, head),
            }
        }
        Ok(())
    }

    /// Up to the first call that was inlined.
    fn read_own(&mut self) -> Result<Unfinished> {
        /// Kind, function and count of a callee.
        const CALLEE: u64 = 4 + 8 + 8;
        let at = self.cursor.offset();
        let name = self.cursor.u32()?;
        let function = usize::try_from(name).ok().and_then(|name| self.names.get(name)).cloned();
        let function = function.ok_or_else(|| {
            Error::malformed(at, format!("name {name} of {} is not in the table", self.names.len()))
        })?;
        let (lines, left) = (self.cursor.u32()?, self.cursor.u32()?);
        let mut total = 0u64;
        for _ in 0..lines {
            let _line = self.cursor.u32()?;
            let callees = self.cursor.u32()?;
            total = total.saturating_add(self.counter()?);
            self.cursor.take_array(callees.into(), CALLEE)?;
        }
        Ok(Unfinished { function, total, left })
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::damage::survives;

    #[test]
    fn damage_is_told_or_survived() {
        let mut good = b"adcg".to_vec();
        let mut word = |value: u32| good.extend_from_slice(&value.to_le_bytes());
        [2, 0, super::NAMES, 0, 2].into_iter().for_each(&mut word);
        // Two names, "fo" and "ba", one word each.
        for name in [*b"fo\0\0", *b"ba\0\0"] {
            [4, u32::from_le_bytes(name)].into_iter().for_each(&mut word);
        }
        [super::FUNCTIONS, 0, 1, 7, 0, 0, 1, 1].into_iter().for_each(&mut word);
        [1 << 16, 1, 5, 0, 7, 1, 0, 9, 0].into_iter().for_each(&mut word);
        [2 << 16, 1, 1, 0, 1, 0, 3, 0].into_iter().for_each(&mut word);
        survives("GCC AutoFDO profile", &good);
    }
}
