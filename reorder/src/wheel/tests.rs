//! Wheels made by another library, whole and damaged.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::io::{Cursor, Write as _};

use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::list::digest;
use super::*;

fn wheel(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, contents) in files {
        let options = SimpleFileOptions::default().unix_permissions(0o755);
        writer.start_file(*name, options).unwrap();
        writer.write_all(contents).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

const LIST: &[u8] = b"a/lib.so,sha256=old,3\r\n\"a/x,y.so\",sha256=kept,1\r\nn.dist-info/RECORD,,\r\n";

#[test]
fn the_list_follows_and_all_else_stays() {
    let bytes = wheel(&[("a/lib.so", b"old"), ("a/x,y.so", b"1"), ("n.dist-info/RECORD", LIST)]);
    let old = Wheel::open(&bytes).unwrap();
    let new = old.replace(&BTreeMap::from([("a/lib.so".to_owned(), b"longer".to_vec())])).unwrap();
    let new = Wheel::open(&new).unwrap();
    assert!(new.names().eq(old.names()));
    assert_eq!(&*new.read("a/lib.so", None).unwrap(), b"longer");
    assert_eq!(&*new.read("a/lib.so", Some(2)).unwrap(), b"lo");
    let list = String::from_utf8(new.read("n.dist-info/RECORD", None).unwrap().into_owned()).unwrap();
    let digest = digest(b"longer");
    assert_eq!(
        list,
        format!("a/lib.so,{digest},6\r\n\"a/x,y.so\",sha256=kept,1\r\nn.dist-info/RECORD,,\r\n")
    );
}

#[test]
fn archives_that_are_no_wheels_or_signed_are_refused() {
    let text = |bytes: &[u8]| Wheel::open(bytes).map(|_| ()).unwrap_err().to_string();
    assert!(text(&wheel(&[("a", b"")])).contains("not a Python wheel"));
    let signed = wheel(&[("n.dist-info/RECORD", LIST), ("n.dist-info/RECORD.jws", b"")]);
    assert!(text(&signed).contains("R14"));
    assert!(text(b"PK\x03\x04").contains("end of the archive is missing"));
    let bytes = wheel(&[("a/b.so", b"1"), ("n.dist-info/RECORD", LIST)]);
    let replaced = BTreeMap::from([("a/b.so".to_owned(), Vec::new())]);
    assert!(Wheel::open(&bytes).unwrap().replace(&replaced).is_err());
}

proptest::proptest! {
    #[test]
    fn damaged_archives_are_errors(position in 0_usize..600, byte: u8) {
        let mut bytes = wheel(&[("a/lib.so", b"contents of a library"), ("n.dist-info/RECORD", LIST)]);
        let position = position % bytes.len();
        bytes[position] = byte;
        if let Ok(wheel) = Wheel::open(&bytes) {
            for name in wheel.names() {
                let _ = wheel.read(name, None);
            }
        }
    }
}

/// Members as older programs write them: sizes after the data, a field of 64-bit sizes, comments, modes of other kinds.
const LEGACY: &str = "
import io, struct, sys, zipfile
class Pipe(io.BytesIO):
    def seekable(self): return False
    def seek(self, *place): raise io.UnsupportedOperation
    def tell(self): raise io.UnsupportedOperation
out = Pipe()
with zipfile.ZipFile(out, 'w', zipfile.ZIP_DEFLATED) as wheel:
    wheel.comment = b'of the archive'
    files = [('a/lib.so', b'old'), ('a/data', b'data' * 9), ('a/', b''), ('n.dist-info/RECORD', b'./a/lib.so,sha256=old,3\\na/data,,\\n')]
    for name, data in files:
        member = zipfile.ZipInfo(name, (2020, 1, 2, 3, 4, 6))
        member.compress_type = zipfile.ZIP_DEFLATED
        member.external_attr = 0o104755 << 16
        member.create_system = 3
        member.comment = b'of a member'
        member.extra = struct.pack('<HHBI', 0x5455, 5, 1, 1577934246)
        with wheel.open(member, 'w', force_zip64=name == 'a/lib.so') as file:
            file.write(data)
sys.stdout.buffer.write(out.getvalue())
";

/// What Python's library says of an archive whose contents are sound.
const TELL: &str = "
import io, sys, zipfile
wheel = zipfile.ZipFile(io.BytesIO(sys.stdin.buffer.read()))
assert wheel.testzip() is None
print(wheel.comment)
for member in wheel.infolist():
    print(member.filename, member.date_time, oct(member.external_attr), member.create_system, member.extra, member.comment, member.compress_type)
";

fn python(script: &str, input: &[u8]) -> Vec<u8> {
    use std::process::{Command, Stdio};
    let mut command = Command::new("python3");
    let command = command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("python3 is installed");
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    output.stdout
}

#[test]
fn times_modes_comments_and_fields_stay() {
    let old = python(LEGACY, b"");
    let replaced = BTreeMap::from([("a/lib.so".to_owned(), vec![7; 1000])]);
    let new = Wheel::open(&old).unwrap().replace(&replaced).unwrap();
    let tell = |wheel: &[u8]| String::from_utf8(python(TELL, wheel)).unwrap();
    assert_eq!(tell(&old), tell(&new));
    assert!(tell(&new).starts_with("b'of the archive'"));
    let list = Wheel::open(&new).unwrap().read("n.dist-info/RECORD", None).unwrap().into_owned();
    assert_eq!(list, format!("./a/lib.so,{},1000\na/data,,\n", digest(&[7; 1000])).into_bytes());
}

/// Where the nth entry of the directory is.
fn entry(bytes: &[u8], index: usize) -> usize {
    bytes.windows(4).enumerate().filter(|(_, window)| window == b"PK\x01\x02").nth(index).unwrap().0
}

#[test]
fn members_of_one_name_and_members_that_overlap_are_errors() {
    let bytes = wheel(&[("a/1", b"one"), ("a/2", b"two"), ("n.dist-info/RECORD", LIST)]);
    let text = |bytes: &[u8]| Wheel::open(bytes).map(|_| ()).unwrap_err().to_string();
    let mut twice = bytes.clone();
    let names: Vec<usize> =
        bytes.windows(3).enumerate().filter(|(_, window)| window == b"a/2").map(|(at, _)| at).collect();
    names.iter().for_each(|at| twice[at + 2] = b'1');
    assert!(text(&twice).contains("two members are called a/1"), "{}", text(&twice));
    // Both names lead to one member, then to one that is longer than it may be.
    let mut same = bytes.clone();
    let (first, second) = (entry(&bytes, 0), entry(&bytes, 1));
    same.copy_within(first + 42..first + 46, second + 42);
    assert!(text(&same).contains("not where"), "{}", text(&same));
    let mut longer = bytes.clone();
    longer[first + 20] = 60;
    assert!(text(&longer).contains("overlaps"), "{}", text(&longer));
    let mut two_ends = bytes.clone();
    let at = bytes.len() - 22;
    two_ends[at + 20] = 22;
    two_ends.extend_from_slice(&bytes[at..]);
    assert!(text(&two_ends).contains("two places"), "{}", text(&two_ends));
}

#[test]
fn contents_that_do_not_fit_their_header_are_errors() {
    let mut bytes = wheel(&[("a/1", &[0; 3000]), ("n.dist-info/RECORD", LIST)]);
    let first = entry(&bytes, 0);
    for (field, value) in [(24, 9_u8), (26, 0xff), (16, 1)] {
        let old = std::mem::replace(&mut bytes[first + field], value);
        let wheel = Wheel::open(&bytes).unwrap();
        assert!(wheel.read("a/1", None).is_err(), "{field}");
        bytes[first + field] = old;
    }
    assert_eq!(Wheel::open(&bytes).unwrap().read("a/1", None).unwrap().len(), 3000);
}

#[test]
fn the_proof_sees_what_changed() {
    let old = wheel(&[
        ("a/lib.so", b"old"),
        ("a/data", b"data"),
        ("n.dist-info/RECORD", b"a/lib.so,,\na/data,,\n"),
    ]);
    let compared = |new: &[u8]| proof::compare(&old, new, |_, _, _| Ok(None)).unwrap();
    assert!(compared(&old).is_empty());
    let list = format!("a/lib.so,{},3\na/data,,\n", digest(b"new"));
    let files = |lib: &'static [u8], list: &str| {
        wheel(&[("a/lib.so", lib), ("a/data", b"data"), ("n.dist-info/RECORD", list.as_bytes())])
    };
    assert!(compared(&files(b"new", &list)).is_empty());
    for (lib, list, reason) in [
        (&b"new"[..], "a/lib.so,,\na/data,,\n", "did not"),
        (b"NEW", list.as_str(), "line of a/lib.so"),
        (b"old", list.as_str(), "line of a/lib.so"),
        (b"new", "a/lib.so,,\n", "number of lines"),
    ] {
        assert!(compared(&files(lib, list)).concat().contains(reason), "{:?}", compared(&files(lib, list)));
    }
    let mut mode = old.clone();
    let at = entry(&old, 1);
    mode[at + 41] ^= 0x40;
    assert!(compared(&mode).concat().contains("a/data"));
}
