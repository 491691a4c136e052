//! What could not be measured: each reason once, with all that it holds for.

use std::collections::{BTreeSet, HashSet};

use crate::quality::Quality;
use crate::row::AnyRow;
use crate::wording::some;
use membound_core::in_order::each_once;
use membound_core::units::Bytes;

/// More names than these are not all shown: rows have them all.
const SHOWN_MOST: usize = 8;

/// What could not be measured for one reason.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Missing {
    /// Kinds of memory, ways to store, works.
    pub names: Vec<String>,
    /// `unavailable: this processor has no AVX`
    pub why: String,
}

impl Missing {
    /// All of it as every output shows it: `huge-2m, huge-1g: unavailable: ...`
    pub(crate) fn line(&self) -> String {
        let most = if self.names.len() > SHOWN_MOST { SHOWN_MOST / 2 } else { SHOWN_MOST };
        format!("{}: {}", some(&self.names, most), self.why)
    }
}

/// Every reason why rows were not measured. Where nothing of a kind of memory was, the kind stands for all its rows.
pub(crate) fn reasons<R: AnyRow>(rows: &[R]) -> Vec<Missing> {
    let is_measured = |row: &&R| row.quality().is_some_and(|quality| quality.fault().is_none());
    let measured: HashSet<String> = rows.iter().filter(is_measured).filter_map(|row| row.kind()).collect();
    let name = |row: &R| row.kind().filter(|kind| !measured.contains(kind)).unwrap_or_else(|| row.what());
    gathered(rows.iter().filter_map(|row| Some((name(row), row.quality()?))))
}

/// Every reason in what is known of how far figures can be trusted.
pub(crate) fn gathered<'a>(rows: impl Iterator<Item = (String, &'a Quality)>) -> Vec<Missing> {
    together(rows.filter_map(|(name, quality)| Some((name, quality.fault()?.to_string()))))
}

/// Everything that is said of something, once, with all that it is said of, a line each.
pub(crate) fn said_once(told: impl Iterator<Item = (String, String)>) -> Vec<String> {
    together(told).iter().map(Missing::line).collect()
}

/// The same with names and text apart. A refusal of several sizes is one.
pub(crate) fn together(told: impl Iterator<Item = (String, String)>) -> Vec<Missing> {
    let mut found: Vec<(Said, Vec<String>)> = Vec::new();
    for (name, text) in told {
        let said = Said::of(text);
        match found.iter_mut().find(|(known, _)| (&known.head, &known.tail) == (&said.head, &said.tail)) {
            Some((known, names)) => {
                known.sizes.extend(said.sizes);
                names.push(name);
            }
            None => found.push((said, vec![name])),
        }
    }
    found.into_iter().map(|(said, names)| Missing { names: each_once(names), why: said.text() }).collect()
}

/// A text, without the sizes that were refused: records hold the whole of it. `unavailable: `, 2 MiB, ` of huge-2m memory were
/// refused: no`.
struct Said {
    head: String,
    sizes: BTreeSet<Bytes>,
    tail: String,
}

impl Said {
    fn of(text: String) -> Said {
        let parts = |text: &str| {
            let (head, rest) = text.split_once(": ")?;
            let (size, tail) = rest.split_once(" of ").filter(|(size, _)| size.ends_with('B'))?;
            Some(Said { head: format!("{head}: "), sizes: [size.parse().ok()?].into(), tail: format!(" of {tail}") })
        };
        parts(&text).unwrap_or_else(|| Said { head: text, sizes: BTreeSet::new(), tail: String::new() })
    }

    fn text(self) -> String {
        let Said { head, sizes, tail } = self;
        let sizes: Vec<Bytes> = sizes.into_iter().collect();
        let sizes = match &sizes[..] {
            [] => String::new(),
            [only] => only.to_string(),
            [first, last] => format!("{first} and {last}"),
            [first, .., last] => format!("{first} to {last}"),
        };
        head + &sizes + &tail
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(name: &str, size: &str) -> (String, String) {
        (name.into(), format!("unavailable: {size} of huge-2m memory were refused: no"))
    }

    #[test]
    fn a_refusal_is_told_once_with_its_sizes() {
        let told = |sizes: &[&str]| said_once(sizes.iter().map(|size| refused("chases", size)));
        assert_eq!(told(&["2 MiB"]), ["chases: unavailable: 2 MiB of huge-2m memory were refused: no"]);
        assert_eq!(
            told(&["4 MiB", "2 MiB"]),
            ["chases: unavailable: 2 MiB and 4 MiB of huge-2m memory were refused: no"]
        );
        let many = ["2 MiB", "4 MiB", "8 MiB"];
        assert_eq!(told(&many), ["chases: unavailable: 2 MiB to 8 MiB of huge-2m memory were refused: no"]);
    }

    #[test]
    fn names_share_a_reason() {
        let told = [refused("chases", "2 MiB"), refused("copies", "4 MiB"), ("chases".into(), "other: 1".into())];
        let of_both = "chases, copies: unavailable: 2 MiB and 4 MiB of huge-2m memory were refused: no";
        assert_eq!(said_once(told.into_iter()), [of_both, "chases: other: 1"]);
        let many = said_once((0..20).chain(0..20).map(|cpu| (format!("CPU {cpu}"), "offline".into())));
        assert_eq!(many, ["CPU 0, CPU 1, CPU 2, CPU 3 and 16 more: offline"]);
    }
}
