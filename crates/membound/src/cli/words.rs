//! What flags take one of a list of words: parsed as the library parses them, and known to help and to completions.

use std::ffi::OsStr;
use std::path::PathBuf;

use clap::builder::{PathBufValueParser, PossibleValue, PossibleValuesParser, StringValueParser, TypedValueParser};
use clap::{Arg, Command, ValueEnum};

use crate::cli::count::Threads;
use crate::cli::memory::MemoryList;
use membound_core::experiments::addrmap::known_page;
use membound_core::kernel::catalog::CATALOG;
use membound_core::machine::spec::Sheet;
use membound_core::memory::MemoryKind;
use membound_core::units::Word;

/// One word of `T`'s; what is wrong says which there are.
pub fn one_of<T: Word>() -> impl TypedValueParser<Value = T> {
    Listed { parse: |text: &str| text.parse::<T>(), words: T::words() }
}

/// The same where only some of them can be asked for.
pub fn some_of<T: Word>(words: Vec<&'static str>) -> impl TypedValueParser<Value = T> {
    Listed { parse: |text: &str| text.parse::<T>(), words }
}

/// The same where no other is taken.
pub fn only<T: Word>(words: Vec<&'static str>) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(words).try_map(|word| word.parse::<T>())
}

/// Some of an enum's values, by their words.
pub fn chosen<T: ValueEnum + Clone + Send + Sync + 'static>(
    words: &'static [&'static str],
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(words).try_map(|word| T::from_str(&word, false))
}

/// A number of threads; `all` and `max` are one on each CPU.
pub fn threads() -> impl TypedValueParser<Value = Threads> {
    Listed { parse: |text: &str| text.parse::<Threads>(), words: vec!["1", "all", "max"] }
}

/// The name of a kernel, or the text of a loop.
pub fn kernel() -> impl TypedValueParser<Value = String> {
    named(CATALOG.iter().map(|kernel| kernel.name))
}

/// The same, or `all`.
pub fn kernels() -> impl TypedValueParser<Value = String> {
    named(CATALOG.iter().map(|kernel| kernel.name).chain(["all"]))
}

/// Any text, such as these: what is wrong with another is said where cases are planned.
pub fn named(words: impl IntoIterator<Item = &'static str>) -> impl TypedValueParser<Value = String> {
    Listed { parse: StringValueParser::new(), words: words.into_iter().collect() }
}

/// Memory of whose addresses enough is known to tell which bits choose.
pub fn known_addresses() -> impl TypedValueParser<Value = MemoryKind> {
    let kinds = MemoryKind::ALL.iter().filter(|kind| known_page(**kind).is_some());
    some_of(kinds.map(|kind| kind.word()).collect())
}

/// `--memory`: kinds by their word; places are not listed.
pub fn memory() -> impl TypedValueParser<Value = MemoryList> {
    Listed { parse: |text: &str| text.parse::<MemoryList>(), words: MemoryKind::words() }
}

/// The name of a specification sheet that comes with membound, or a file.
pub fn sheets() -> impl TypedValueParser<Value = PathBuf> {
    Listed { parse: PathBufValueParser::new(), words: Sheet::names().collect() }
}

/// A parser of values among which there are these words.
#[derive(Debug, Clone)]
struct Listed<P> {
    parse: P,
    words: Vec<&'static str>,
}

impl<P: TypedValueParser> TypedValueParser for Listed<P> {
    type Value = P::Value;

    fn parse_ref(&self, command: &Command, flag: Option<&Arg>, value: &OsStr) -> Result<P::Value, clap::Error> {
        self.parse.parse_ref(command, flag, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.words.iter().copied().map(PossibleValue::new)))
    }
}
