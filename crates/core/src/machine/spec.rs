//! Specification sheets: what a processor can do at most, on paper. A sheet is one TOML file, `specs/*.toml` or the
//! user's own: cores and what each does in a cycle, caches, channels of memory, each with its source.
//!
//! Nothing here is measured, and nothing is guessed: a figure that the sheet leaves out is unknown.

use std::path::{Path, PathBuf};
use std::slice;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::input;
use crate::machine::Machine;
use crate::machine::nature::NodeKind;
use crate::units::{Bytes, words};

/// What a processor can do on paper. Figures are those of one package.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sheet {
    /// What it is the sheet of.
    pub name: String,
    /// Where its figures are from, but for those that name a source of their own.
    pub source: String,
    /// Watts that a package draws at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watts: Option<f64>,
    /// The machines it is for.
    #[serde(default, rename = "match")]
    pub signs: Signs,
    /// Kinds of cores.
    #[serde(default)]
    pub cores: Vec<Cores>,
    /// Kinds of memory.
    #[serde(default)]
    pub memory: Vec<Channels>,
}

/// What a machine must say of itself for a sheet to be its own. Each list that is not empty must have an entry that
/// holds; a sheet without any is for no machine, and must be named by the user.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Signs {
    /// The maker of the cores, such as `GenuineIntel`.
    pub vendor: Vec<String>,
    /// x86 family and model, such as `25/17`.
    pub signature: Vec<String>,
    /// A part of the processor's name.
    pub model: Vec<String>,
    /// A part of the machine's name, as the firmware tells it.
    pub product: Vec<String>,
}

/// Cores that are alike.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cores {
    /// The design.
    pub name: String,
    /// How many a package has; absent where models differ.
    pub count: Option<u32>,
    /// Clock in GHz; absent where models differ.
    pub clock_ghz: Option<f64>,
    /// Where this is from, if not from the sheet's source.
    pub source: Option<String>,
    /// Floating-point arithmetic, widest last.
    #[serde(default)]
    pub arithmetic: Vec<Arithmetic>,
    /// Caches, nearest first.
    #[serde(default)]
    pub caches: Vec<SheetCache>,
}

/// Floating-point arithmetic of one width: instructions that a core starts in a cycle, sustained. Several rows may be for
/// the same width where elements differ.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Arithmetic {
    /// What it is called, such as `NEON`.
    pub name: Option<String>,
    /// Bits of the elements it is for: 32 single, 64 double precision.
    pub element_bits: Vec<u32>,
    /// Bits of a register; absent: one element.
    pub width_bits: Option<u32>,
    /// Fused multiply-adds, two flops per element.
    pub fma: Option<f64>,
    /// Additions, one flop per element.
    pub add: Option<f64>,
    /// Multiplications, one flop per element.
    pub multiply: Option<f64>,
    /// Additions and multiplications together, where that is more than the greater of the two.
    pub both: Option<f64>,
    /// Flops in a cycle, where the source tells only those.
    pub flops: Option<f64>,
}

/// A cache, and what a core moves from and to it in a cycle.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SheetCache {
    /// 1 is the nearest.
    pub level: u32,
    /// Capacity, such as `32KiB`.
    pub size: Option<String>,
    /// Cores that share it; absent: it is a core's own.
    pub shared_by: Option<u32>,
    /// Bytes that a core loads from it in a cycle.
    pub load_bytes: Option<f64>,
    /// Bytes that a core stores to it in a cycle.
    pub store_bytes: Option<f64>,
    /// Bytes that a core loads and stores in a cycle, where that is less than both together.
    pub both_bytes: Option<f64>,
    /// Loads that a core starts in a cycle, of whatever width; absent: as many as `load_bytes` allows.
    pub loads: Option<f64>,
    /// Stores that a core starts in a cycle, of whatever width.
    pub stores: Option<f64>,
}

/// Memory of one kind: channels x transfers x width, or the rates that the source tells. Where no source tells a peak, `size`
/// stands alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Channels {
    /// What it is: `DDR5`.
    pub name: String,
    /// Which nodes it is the memory of.
    #[serde(default = "beside_the_processor")]
    pub kind: NodeKind,
    /// Capacity of a package, where it is built in.
    pub size: Option<String>,
    /// A part of the processor's name, with `#` for any digit; absent: all that the sheet is for.
    pub model: Option<String>,
    /// Channels of a package.
    pub channels: Option<u32>,
    /// Most mega-transfers a second.
    pub mt_s: Option<u32>,
    /// Data bits of a channel, without those for error correction.
    pub width_bits: Option<u32>,
    /// 1e9 bytes per second that can be read, where reads and writes have wires of their own.
    pub read_gb_s: Option<f64>,
    /// The same for writes; both together are the memory's rate.
    pub write_gb_s: Option<f64>,
    /// Where this is from, if not from the sheet's source.
    pub source: Option<String>,
}

/// Whether a name has this part, in which `#` is any digit.
fn has_part(name: &str, part: &str) -> bool {
    let (name, part): (Vec<char>, Vec<char>) = (name.chars().collect(), part.chars().collect());
    let fits = |(own, asked): (&char, &char)| own == asked || (*asked == '#' && own.is_ascii_digit());
    part.is_empty() || name.windows(part.len()).any(|window| window.iter().zip(&part).all(fits))
}

fn beside_the_processor() -> NodeKind {
    NodeKind::Dram
}

words! {
    /// A mix of additions and multiplications: it decides which part of a core's arithmetic can be used.
    Balance, "balance" {
        /// Fused multiply-adds.
        Fma = "fma",
        /// As many additions as multiplications, in instructions of their own.
        Separate = "add+multiply",
        /// Nothing but additions.
        Add = "add",
        /// Nothing but multiplications.
        Multiply = "multiply",
    }
}

/// Why a sheet can't be used; the text names the cure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SheetError {
    /// The file can't be read.
    #[error("cannot read the specification sheet {}: {fault}; known sheets are {}", path.display(), known())]
    Unreadable {
        /// The file, or the name of a sheet that there is not.
        path: PathBuf,
        /// Why.
        fault: String,
    },
    /// It is no sheet.
    #[error("{file}:{line}: {fault}; see specs/ in the source for examples")]
    Wrong {
        /// The file.
        file: String,
        /// Line, from 1; 0 where the fault is in no one line.
        line: usize,
        /// What is wrong, and what would be right.
        fault: String,
    },
}

/// Bytes of the largest sheet that is read: a hundred times those that there are.
const MOST_BYTES: u64 = 256 << 10;
/// Entries of the longest list.
const MOST_ENTRIES: usize = 64;

/// The sheets that come with membound: name of the file, text.
const SHEETS: &[(&str, &str)] = &[
    ("66ak2h12", include_str!("../../specs/66ak2h12.toml")),
    ("a64fx", include_str!("../../specs/a64fx.toml")),
    ("broadwell", include_str!("../../specs/broadwell.toml")),
    ("emerald-rapids", include_str!("../../specs/emerald-rapids.toml")),
    ("gb10", include_str!("../../specs/gb10.toml")),
    ("grace", include_str!("../../specs/grace.toml")),
    ("granite-rapids", include_str!("../../specs/granite-rapids.toml")),
    ("graviton2", include_str!("../../specs/graviton2.toml")),
    ("graviton3", include_str!("../../specs/graviton3.toml")),
    ("graviton4", include_str!("../../specs/graviton4.toml")),
    ("haswell", include_str!("../../specs/haswell.toml")),
    ("ice-lake-sp", include_str!("../../specs/ice-lake-sp.toml")),
    ("knc", include_str!("../../specs/knc.toml")),
    ("knights-mill", include_str!("../../specs/knights-mill.toml")),
    ("knl-7210", include_str!("../../specs/knl-7210.toml")),
    ("knl-7250", include_str!("../../specs/knl-7250.toml")),
    ("knl-7290", include_str!("../../specs/knl-7290.toml")),
    ("m1", include_str!("../../specs/m1.toml")),
    ("sapphire-rapids", include_str!("../../specs/sapphire-rapids.toml")),
    ("skylake-sp", include_str!("../../specs/skylake-sp.toml")),
    ("ultrasparc-t2", include_str!("../../specs/ultrasparc-t2.toml")),
    ("yitian-710", include_str!("../../specs/yitian-710.toml")),
    ("zen1", include_str!("../../specs/zen1.toml")),
    ("zen2", include_str!("../../specs/zen2.toml")),
    ("zen3", include_str!("../../specs/zen3.toml")),
    ("zen4", include_str!("../../specs/zen4.toml")),
    ("zen5", include_str!("../../specs/zen5.toml")),
];

fn known() -> String {
    Sheet::names().collect::<Vec<_>>().join(", ")
}

impl Sheet {
    /// The sheets that come with membound, each with the name it goes by.
    pub fn all() -> impl Iterator<Item = (&'static str, Sheet)> {
        SHEETS.iter().map(|(name, text)| (*name, Sheet::parse(text, name).expect("a test parses every sheet")))
    }

    /// Names of the sheets that come with membound.
    pub fn names() -> impl Iterator<Item = &'static str> {
        SHEETS.iter().map(|(name, _)| *name)
    }

    /// The sheet that goes by a name, or that of a file.
    pub fn find(name: &Path) -> Result<Sheet, SheetError> {
        match SHEETS.iter().find(|(known, _)| name.as_os_str() == *known) {
            Some((name, text)) => Sheet::parse(text, name),
            None => Sheet::read(name),
        }
    }

    fn read(path: &Path) -> Result<Sheet, SheetError> {
        let text = input::text(path, MOST_BYTES)
            .map_err(|fault| SheetError::Unreadable { path: path.into(), fault: fault.to_string() })?;
        Sheet::parse(&text, &path.display().to_string())
    }

    /// Reads a sheet's text; `file` is what errors call it.
    pub fn parse(text: &str, file: &str) -> Result<Sheet, SheetError> {
        let sheet: Sheet = toml::from_str(text).map_err(|fault| {
            let at = fault.span().map_or(0, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
            SheetError::Wrong { file: file.into(), line: at, fault: fault.message().trim().replace('\n', " ") }
        })?;
        match sheet.fault() {
            Some((word, fault)) => {
                let line = text.lines().position(|line| line.trim_start().starts_with(word)).map_or(0, |at| at + 1);
                Err(SheetError::Wrong { file: file.into(), line, fault })
            }
            None => Ok(sheet),
        }
    }

    /// The first figure that can't be, with the word that its line begins with.
    fn fault(&self) -> Option<(&'static str, String)> {
        let mut checks = Checks::default();
        checks.words("name", slice::from_ref(&self.name));
        checks.words("source", slice::from_ref(&self.source));
        checks.within("watts", self.watts, 0.001, 1e5);
        let Signs { vendor, signature, model, product } = &self.signs;
        for (word, list) in [("vendor", vendor), ("signature", signature), ("model", model), ("product", product)] {
            checks.words(word, list);
        }
        checks.count("[[cores]]", self.cores.len());
        checks.count("[[memory]]", self.memory.len());
        if self.cores.is_empty() && self.memory.is_empty() {
            checks.wrong("name", "a sheet needs [[cores]] or [[memory]]".into());
        }
        for cores in &self.cores {
            cores.check(&mut checks);
        }
        for memory in &self.memory {
            memory.check(&mut checks);
        }
        checks.fault
    }

    /// Whether it is the sheet of a machine.
    pub fn is_of(&self, machine: &Machine) -> bool {
        let identity = &machine.identity;
        let text = |fact: &crate::machine::fact::Fact<String>| fact.known().cloned().unwrap_or_default();
        let (vendor, model, product) = (text(&identity.vendor), text(&identity.model), text(&identity.product));
        let signature = text(&identity.signature) + "/";
        let holds = |list: &[String], test: &dyn Fn(&String) -> bool| list.is_empty() || list.iter().any(test);
        let signs = &self.signs;
        *signs != Signs::default()
            && holds(&signs.vendor, &|name| *name == vendor)
            && holds(&signs.signature, &|start| signature.starts_with(&format!("{start}/")))
            && holds(&signs.model, &|part| model.contains(part.as_str()))
            && holds(&signs.product, &|part| product.contains(part.as_str()))
    }

    /// The sheet of a machine, of those that come with membound.
    pub fn of(machine: &Machine) -> Option<Sheet> {
        Sheet::all().map(|(_, sheet)| sheet).find(|sheet| sheet.is_of(machine))
    }

    /// The memory of a kind that a processor of this name has: the first that names it, or that names none.
    pub fn memory_of(&self, kind: NodeKind, model: &str) -> Option<&Channels> {
        let names = |memory: &&Channels| memory.model.as_ref().is_none_or(|part| has_part(model, part));
        self.memory.iter().filter(|memory| memory.kind == kind).find(names)
    }

    /// Flops a second of all cores of a package with elements of so many bits; absent where a kind of core tells neither
    /// count nor clock. Kinds that have no such arithmetic add nothing.
    pub fn flops(&self, element_bits: u32) -> Option<f64> {
        let able = self.cores.iter().filter(|cores| cores.flops_per_cycle(element_bits).is_some());
        let sum = able.map(|cores| cores.flops(element_bits)).sum::<Option<f64>>();
        sum.filter(|sum| *sum > 0.0)
    }
}

impl Cores {
    /// Most flops that a core does in a cycle with elements of so many bits.
    pub fn flops_per_cycle(&self, element_bits: u32) -> Option<f64> {
        self.arithmetic.iter().filter_map(|row| row.most(element_bits)).reduce(f64::max)
    }

    /// Flops a second of all of them: cores x clock x flops in a cycle.
    pub fn flops(&self, element_bits: u32) -> Option<f64> {
        Some(self.cycles_per_s()? * self.flops_per_cycle(element_bits)?)
    }

    /// Cycles a second of all of them: count x clock.
    pub fn cycles_per_s(&self) -> Option<f64> {
        Some(f64::from(self.count?) * self.clock_ghz? * 1e9)
    }

    /// The arithmetic on elements of so many bits in registers of so many.
    pub fn arithmetic(&self, element_bits: u32, width_bits: u32) -> Option<&Arithmetic> {
        let fits = |row: &&Arithmetic| {
            row.element_bits.contains(&element_bits) && row.width_bits.unwrap_or(element_bits) == width_bits
        };
        self.arithmetic.iter().find(fits)
    }

    fn check(&self, checks: &mut Checks) {
        checks.words("name", slice::from_ref(&self.name));
        checks.within("count", self.count, 1.0, 1e5);
        checks.within("clock_ghz", self.clock_ghz, 0.001, 20.0);
        checks.count("[[cores.arithmetic]]", self.arithmetic.len());
        checks.count("[[cores.caches]]", self.caches.len());
        self.arithmetic.iter().for_each(|row| row.check(checks));
        self.caches.iter().for_each(|cache| cache.check(checks));
    }
}

impl Arithmetic {
    /// Elements in a register.
    pub fn lanes(&self, element_bits: u32) -> f64 {
        f64::from(self.width_bits.unwrap_or(element_bits)) / f64::from(element_bits)
    }

    /// Flops in a cycle with a mix, on elements of so many bits: instructions x lanes x flops of each.
    pub fn flops_per_cycle(&self, balance: Balance, element_bits: u32) -> Option<f64> {
        if !self.element_bits.contains(&element_bits) {
            return None;
        }
        let instructions = match balance {
            Balance::Fma => self.fma.map(|fma| 2.0 * fma),
            // As many of either: the slower holds the other back.
            Balance::Separate => {
                let slower = 2.0 * self.add?.min(self.multiply?);
                Some(self.both.unwrap_or(self.add?.max(self.multiply?)).min(slower))
            }
            Balance::Add => self.add,
            Balance::Multiply => self.multiply,
        };
        instructions.map(|instructions| instructions * self.lanes(element_bits))
    }

    /// Most flops in a cycle.
    pub fn most(&self, element_bits: u32) -> Option<f64> {
        let told = self.flops.filter(|_| self.element_bits.contains(&element_bits));
        let of = |balance| self.flops_per_cycle(balance, element_bits);
        Balance::ALL.iter().filter_map(|balance| of(*balance)).chain(told).reduce(f64::max)
    }

    fn check(&self, checks: &mut Checks) {
        checks.words("name", self.name.as_slice());
        checks.count("element_bits", self.element_bits.len());
        for bits in &self.element_bits {
            if ![16, 32, 64].contains(bits) {
                checks.wrong("element_bits", format!("elements are of 16, 32 or 64 bits, not {bits}"));
            }
        }
        checks.within("width_bits", self.width_bits, 16.0, 65536.0);
        let told = [self.fma, self.add, self.multiply, self.both];
        for (word, value) in ["fma", "add", "multiply", "both"].into_iter().zip(told) {
            checks.within(word, value, 0.01, 64.0);
        }
        checks.within("flops", self.flops, 0.01, 65536.0);
        let nothing = told.iter().all(Option::is_none) && self.flops.is_none();
        if self.element_bits.is_empty() || nothing {
            checks
                .wrong("[[cores.arithmetic]]", "arithmetic needs element_bits, and fma, add, multiply or flops".into());
        }
    }
}

impl SheetCache {
    /// Capacity.
    pub fn bytes(&self) -> Option<Bytes> {
        self.size.as_ref()?.parse().ok()
    }

    /// Least cycles in which a core loads and stores so many bytes with accesses of so many bytes each: loads and stores
    /// have ports of their own, and may share something else. Absent where the sheet does not tell.
    pub fn cycles(&self, loaded: f64, stored: f64, access: f64) -> Option<f64> {
        let least = |bytes: Option<f64>, accesses: Option<f64>| {
            let by_count = accesses.map_or(f64::INFINITY, |accesses| accesses * access);
            bytes.map(|bytes| bytes.min(by_count))
        };
        let time = |bytes: f64, rate: Option<f64>| if bytes > 0.0 { Some(bytes / rate?) } else { Some(0.0) };
        let loads = time(loaded, least(self.load_bytes, self.loads))?;
        let stores = time(stored, least(self.store_bytes, self.stores))?;
        let both = self.both_bytes.map_or(0.0, |bytes| (loaded + stored) / bytes);
        Some(loads.max(stores).max(both)).filter(|cycles| *cycles > 0.0)
    }

    fn check(&self, checks: &mut Checks) {
        checks.within("level", Some(self.level), 1.0, 8.0);
        checks.within("shared_by", self.shared_by, 1.0, 1e5);
        checks.within("load_bytes", self.load_bytes, 0.1, 4096.0);
        checks.within("store_bytes", self.store_bytes, 0.1, 4096.0);
        checks.within("both_bytes", self.both_bytes, 0.1, 8192.0);
        checks.within("loads", self.loads, 0.1, 64.0);
        checks.within("stores", self.stores, 0.1, 64.0);
        checks.capacity(self.size.as_ref());
    }
}

impl Channels {
    /// Bytes per second of a package: channels x transfers x width, or what is told.
    pub fn bytes_per_s(&self) -> Option<f64> {
        self.at(self.mt_s).or_else(|| {
            let told = [self.read_gb_s, self.write_gb_s];
            told.iter().any(Option::is_some).then(|| told.iter().flatten().sum::<f64>() * 1e9)
        })
    }

    /// The same at so many mega-transfers a second.
    pub fn at(&self, mt_s: Option<u32>) -> Option<f64> {
        Some(f64::from(self.channels?) * f64::from(mt_s?) * 1e6 * f64::from(self.width_bits?) / 8.0)
    }

    /// Whether its chips are soldered to the board: firmware then lists packages, each with several channels or parts of them.
    pub fn is_soldered(&self) -> bool {
        self.name.starts_with("LPDDR")
    }

    /// Channels of a package, where a module fills one: those of 16 or 32 bits are parts of a module or of a soldered package.
    pub fn channels_of_modules(&self) -> Option<u32> {
        let is_whole = self.width_bits.is_none_or(|bits| bits >= 64);
        self.channels.filter(|_| is_whole && !self.is_soldered())
    }

    fn check(&self, checks: &mut Checks) {
        checks.words("name", slice::from_ref(&self.name));
        checks.words("model", self.model.as_slice());
        checks.within("channels", self.channels, 1.0, 1024.0);
        checks.within("mt_s", self.mt_s, 1.0, 1e6);
        checks.within("width_bits", self.width_bits, 1.0, 65536.0);
        checks.within("read_gb_s", self.read_gb_s, 0.001, 1e6);
        checks.within("write_gb_s", self.write_gb_s, 0.001, 1e6);
        checks.capacity(self.size.as_ref());
        if self.bytes_per_s().is_none() && self.size.is_none() {
            let cure = "memory needs channels, mt_s and width_bits, or read_gb_s and write_gb_s, or its size alone";
            checks.wrong("[[memory]]", cure.into());
        }
    }
}

/// Finds the first figure that can't be.
#[derive(Default)]
struct Checks {
    fault: Option<(&'static str, String)>,
}

impl Checks {
    fn wrong(&mut self, word: &'static str, fault: String) {
        self.fault.get_or_insert((word, fault));
    }

    fn within(&mut self, word: &'static str, value: Option<impl Into<f64>>, least: f64, most: f64) {
        if let Some(value) = value.map(Into::into).filter(|value| !(least..=most).contains(value)) {
            self.wrong(word, format!("`{word}` is {value}; it must be from {least} to {most}"));
        }
    }

    fn capacity(&mut self, size: Option<&String>) {
        match size.map(|size| size.parse::<Bytes>()) {
            Some(Ok(size)) => self.within("size", Some(size.0 as f64), 256.0, 1e13),
            Some(Err(fault)) => self.wrong("size", fault.to_string()),
            None => {}
        }
    }

    fn count(&mut self, word: &'static str, count: usize) {
        if count > MOST_ENTRIES {
            self.wrong(word, format!("{count} entries of {word} are too many; {MOST_ENTRIES} are allowed"));
        }
    }

    fn words(&mut self, word: &'static str, texts: &[String]) {
        self.count(word, texts.len());
        for text in texts {
            if text.trim().is_empty() || text.len() > 2000 || text.contains(char::is_control) {
                self.wrong(word, format!("`{word}` must be one line of text, no longer than 2000 bytes"));
            }
        }
    }
}
