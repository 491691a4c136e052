//! Where facts are read: the files of one machine, live or recorded, under a root folder.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{ErrorKind, Read};
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::input;
use crate::machine::cpuset::{CpuSet, IDS_MAX};
use crate::machine::fact::Fact;
use crate::units::Bytes;

/// No file of interest is larger; a recorded tree may hold anything.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Why there is no machine to read; the text says what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MachineError {
    /// The root is no folder.
    #[error("'{}' is not a folder; name one that holds a machine's sys and proc folders", root.display())]
    NoFolder {
        /// The folder asked for.
        root: PathBuf,
    },
    /// The root is the root of no machine.
    #[error(
        "'{}' has neither a sys nor a proc folder, so it holds no recorded machine; name the folder that holds them \
         (an unpacked recording often has it one level down)",
        root.display()
    )]
    NoTree {
        /// The folder asked for.
        root: PathBuf,
    },
}

/// What a machine runs under.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Hypervisor {
    /// It is no virtual machine, or hides it well.
    None,
    /// It is a virtual machine, and nothing says whose.
    Unnamed,
    /// A virtual machine, and who says so.
    Vendor(String),
}

impl fmt::Display for Hypervisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Hypervisor::None => "none",
            Hypervisor::Unnamed => "unnamed",
            Hypervisor::Vendor(name) => name,
        })
    }
}

/// The files of one machine. Paths are relative to its root: `sys/devices/system/cpu/online`.
#[derive(Debug, Clone)]
pub struct Source {
    files: Files,
    processor: Option<Processor>,
}

#[derive(Debug, Clone)]
enum Files {
    /// Below this folder.
    Below(Root),
    /// What a system without such files tells, as if it had them.
    Told { system: &'static str, texts: BTreeMap<String, String> },
}

/// The root folder of a machine's files.
#[derive(Debug, Clone)]
struct Root {
    folder: PathBuf,
    /// The same without links: a recording may come from anybody, and its links must not lead out of it. `sysfs` is full of links
    /// within. Absent of the machine that the program runs on.
    walls: Option<PathBuf>,
}

impl Root {
    /// Where a path of the machine leads.
    fn path(&self, path: &str) -> Result<PathBuf, Missing> {
        let full = self.folder.join(path);
        let Some(walls) = &self.walls else { return Ok(full) };
        let real = full.canonicalize()?;
        if real.starts_with(walls) { Ok(real) } else { Err(Missing::Outside) }
    }
}

/// What keeps a file from being read.
enum Missing {
    NotThere,
    Refused,
    Outside,
    Broken(std::io::Error),
    Untold(&'static str),
}

impl From<std::io::Error> for Missing {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => Missing::NotThere,
            ErrorKind::PermissionDenied => Missing::Refused,
            _ => Missing::Broken(error),
        }
    }
}

impl Missing {
    fn fact<T>(self, path: &str) -> Fact<T> {
        Fact::absent(match self {
            Missing::NotThere => format!("/{path} is not there"),
            Missing::Refused => format!("/{path} may not be read by this user"),
            Missing::Outside => format!("/{path} is a link that leads out of the recorded machine"),
            Missing::Broken(error) => format!("/{path} cannot be read: {error}"),
            Missing::Untold(system) => format!("{system} does not tell it, or is not asked (Linux has /{path})"),
        })
    }
}

impl Files {
    fn open(&self, path: &str) -> Result<Box<dyn Read + '_>, Missing> {
        match self {
            Files::Below(root) => Ok(Box::new(input::open(&root.path(path)?)?)),
            Files::Told { system, texts } => match texts.get(path) {
                Some(text) => Ok(Box::new(text.as_bytes())),
                None => Err(Missing::Untold(system)),
            },
        }
    }

    fn names(&self, path: &str) -> BTreeSet<String> {
        match self {
            Files::Below(root) => {
                let Some(entries) = root.path(path).ok().and_then(|path| std::fs::read_dir(path).ok()) else {
                    return BTreeSet::new();
                };
                entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect()
            }
            Files::Told { texts, .. } => {
                let below = texts.keys().filter_map(|name| name.strip_prefix(path)?.strip_prefix('/'));
                below.filter_map(|rest| rest.split('/').next()).map(String::from).collect()
            }
        }
    }
}

/// What a processor, and the kernel where it is asked directly, say besides files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Processor {
    /// Who runs this machine, if anyone; absent where it does not say.
    pub hypervisor: Option<Hypervisor>,
    /// Whether its time stamp counter ticks at one rate in all states; absent where it does not say.
    pub has_invariant_tsc: Option<bool>,
    /// CPUs that this process may run on; absent where the kernel does not say.
    pub may_run_on: Option<CpuSet>,
    /// What an Arm processor's registers say; absent on others.
    pub arm: Option<ArmRegisters>,
}

/// What registers of an Arm processor say that programs may read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArmRegisters {
    /// Bytes of the shortest line of all data caches (CTR_EL0).
    pub data_line: u32,
    /// Bytes of the shortest line of all instruction caches (CTR_EL0).
    pub instruction_line: u32,
    /// Bytes that `dc zva` fills with zeros; 0 where the system prohibits it (DCZID_EL0).
    pub zero_block: u32,
    /// Bytes of an SVE register of this program; 0 without SVE.
    pub sve_register: u32,
}

impl Source {
    /// The machine this program runs on.
    pub fn live(processor: Processor) -> Self {
        Source { files: Files::Below(Root { folder: "/".into(), walls: None }), processor: Some(processor) }
    }

    /// The machine this program runs on, where the system has no such files: what it tells otherwise, by the names and in
    /// the form that Linux gives it.
    pub fn told(system: &'static str, texts: BTreeMap<String, String>, processor: Processor) -> Self {
        Source { files: Files::Told { system, texts }, processor: Some(processor) }
    }

    /// A recorded machine: a folder with that machine's `sys/` or `proc/`.
    pub fn recorded(root: &Path) -> Result<Self, MachineError> {
        let Some(walls) = root.canonicalize().ok().filter(|root| root.is_dir()) else {
            return Err(MachineError::NoFolder { root: root.into() });
        };
        if !root.join("sys").is_dir() && !root.join("proc").is_dir() {
            return Err(MachineError::NoTree { root: root.into() });
        }
        Ok(Source { files: Files::Below(Root { folder: root.into(), walls: Some(walls) }), processor: None })
    }

    /// Whether this is the machine that the program runs on.
    pub fn is_live(&self) -> bool {
        self.processor.is_some()
    }

    /// What the processor says of itself: only the machine that the program runs on can be asked.
    pub fn processor(&self) -> Option<&Processor> {
        self.processor.as_ref()
    }

    /// A whole file.
    pub fn bytes(&self, path: &str) -> Fact<Vec<u8>> {
        let mut bytes = Vec::new();
        let read = self.files.open(path).and_then(|file| Ok(file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?));
        match read {
            Ok(_) => Fact::Known(bytes),
            Err(missing) => missing.fact(path),
        }
    }

    /// A whole file as text, without white space or NULs around it.
    pub fn text(&self, path: &str) -> Fact<String> {
        self.bytes(path).map(|bytes| trim(&bytes))
    }

    /// As [`Source::text`], but an empty file says nothing.
    pub fn word(&self, path: &str) -> Fact<String> {
        self.text(path).and_then(|text| match text.as_str() {
            "" => Fact::absent(format!("/{path} is empty")),
            _ => Fact::Known(text),
        })
    }

    /// The first paragraph of a file, up to an empty line: reading all of `/proc/cpuinfo` costs milliseconds.
    pub fn paragraph(&self, path: &str) -> Fact<String> {
        let Ok(mut file) = self.files.open(path) else { return self.text(path) };
        let (mut text, mut chunk, mut searched) = (Vec::new(), [0; 4096], 0);
        loop {
            let end = text[searched..].windows(2).position(|pair| pair == b"\n\n").map(|at| searched + at);
            // The last byte may be the first of two.
            searched = text.len().saturating_sub(1);
            if end.is_some() || text.len() as u64 >= FILE_BYTES_MAX {
                return Fact::Known(trim(&text[..end.unwrap_or(text.len())]));
            }
            match file.read(&mut chunk) {
                Ok(0) => return Fact::Known(trim(&text)),
                Ok(n) => text.extend_from_slice(&chunk[..n]),
                Err(error) => return Fact::absent(format!("/{path} cannot be read: {error}")),
            }
        }
    }

    /// A decimal number.
    pub fn number<T: FromStr>(&self, path: &str) -> Fact<T> {
        self.text(path).and_then(|text| parsed(path, &text, "a number", text.parse().ok()))
    }

    /// A number of bytes, with `K`, `M` or `G` (binary) or nothing behind it. Zero is what drivers write for "unknown".
    pub fn size(&self, path: &str) -> Fact<Bytes> {
        self.text(path).and_then(|text| parsed(path, &text, "a size", size(&text)))
    }

    /// A list of ids, such as `0-3,8`.
    pub fn list(&self, path: &str) -> Fact<CpuSet> {
        self.text(path).and_then(|text| parsed(path, &text, "a list of ids", CpuSet::parse(&text).ok()))
    }

    /// A mask of ids, such as `00000000,0000000f`.
    pub fn mask(&self, path: &str) -> Fact<CpuSet> {
        self.text(path).and_then(|text| parsed(path, &text, "a mask of ids", CpuSet::parse_mask(&text).ok()))
    }

    /// The chosen word of a file such as `always [madvise] never`.
    pub fn choice(&self, path: &str) -> Fact<String> {
        self.text(path).and_then(|text| {
            let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(word, _)| word.into());
            parsed(path, &text, "a choice", chosen)
        })
    }

    /// The names in a folder, sorted; none when there is no such folder.
    pub fn names(&self, path: &str) -> Vec<String> {
        self.files.names(path).into_iter().collect()
    }

    /// The numbers N of the entries `prefixN` in a folder, ascending. Numbers may be sparse.
    pub fn numbered(&self, path: &str, prefix: &str) -> Vec<u32> {
        let names = self.names(path);
        let mut numbers: Vec<u32> = names.iter().filter_map(|name| digits(name.strip_prefix(prefix)?)).collect();
        numbers.retain(|number| u64::from(*number) < IDS_MAX);
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    /// The last part of the name that a symbolic link points to.
    pub fn link_name(&self, path: &str) -> Fact<String> {
        Fact::from_option(self.link_parts(path).pop(), || format!("/{path} is not there"))
    }

    /// The parts of the name that a symbolic link points to; none where there is no link.
    pub fn link_parts(&self, path: &str) -> Vec<String> {
        let target = match (&self.files, path.rsplit_once('/')) {
            // The link itself may lead anywhere: only its name is told.
            (Files::Below(root), Some((folder, name))) => {
                root.path(folder).ok().and_then(|folder| std::fs::read_link(folder.join(name)).ok()).unwrap_or_default()
            }
            _ => PathBuf::new(),
        };
        let named = |part: Component<'_>| {
            matches!(part, Component::Normal(_)).then(|| part.as_os_str().to_string_lossy().into())
        };
        target.components().filter_map(named).collect()
    }
}

fn trim(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_matches(|c: char| c.is_whitespace() || c == '\0').into()
}

/// `u32::from_str` takes a sign, which no name has.
fn digits(text: &str) -> Option<u32> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}

fn parsed<T>(path: &str, text: &str, what: &str, value: Option<T>) -> Fact<T> {
    Fact::from_option(value, || {
        let start: String = text.chars().take(40).map(|c| if c.is_control() { ' ' } else { c }).collect();
        format!("/{path} says '{start}', which is not {what}")
    })
}

fn size(text: &str) -> Option<Bytes> {
    let (number, scale) = match text.char_indices().last()? {
        (at, 'K') => (&text[..at], 1 << 10),
        (at, 'M') => (&text[..at], 1 << 20),
        (at, 'G') => (&text[..at], 1 << 30),
        _ => (text, 1),
    };
    let bytes = number.parse::<u64>().ok()?.checked_mul(scale)?;
    (bytes > 0).then_some(Bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_reads_like_files() {
        let texts = [("sys/devices/system/cpu/cpu0/online", "1\n"), ("sys/devices/system/cpu/cpu11/online", "0")];
        let texts = texts.map(|(path, text)| (path.to_string(), text.to_string())).into();
        let source = Source::told("Windows", texts, Processor::default());
        assert_eq!(source.numbered("sys/devices/system/cpu", "cpu"), [0, 11]);
        assert_eq!(source.number::<u32>("sys/devices/system/cpu/cpu0/online"), Fact::Known(1));
        assert_eq!(source.names("sys/devices/system/cpu/cpu1"), [""; 0], "no folder, but the begin of one's name");
        let untold = source.text("proc/meminfo");
        assert_eq!(untold.reason(), Some("Windows does not tell it, or is not asked (Linux has /proc/meminfo)"));
    }

    /// Wherever it ends within what is read at once.
    #[test]
    fn a_paragraph_ends_at_an_empty_line() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("proc")).unwrap();
        let source = Source::recorded(folder.path()).unwrap();
        for length in [1, 4094, 4095, 4096, 4097, 8191, 12288] {
            let (first, path) = ("a".repeat(length), folder.path().join("proc/cpuinfo"));
            std::fs::write(&path, format!("{first}\n\nb\n\n")).unwrap();
            assert_eq!(source.paragraph("proc/cpuinfo"), Fact::Known(first.clone()), "{length}");
            std::fs::write(&path, format!("{first}\nb\n")).unwrap();
            assert_eq!(source.paragraph("proc/cpuinfo"), Fact::Known(format!("{first}\nb")), "{length}");
        }
    }

    #[test]
    fn sizes_of_sysfs() {
        let check = |text: &str, expect: Option<u64>| assert_eq!(size(text), expect.map(Bytes), "{text}");
        check("32K", Some(32 << 10));
        check("103079215104", Some(96 << 30));
        check("2M", Some(2 << 20));
        for text in ["", "K", "0K", "0", "-1K", "12Q", "18446744073709551615K", "é"] {
            check(text, None);
        }
    }
}
