//! Lists of ids as the kernel writes them: `0-3,8`.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// More ids than any machine has; a longer list is a mistake that would eat memory.
const IDS_MAX: u64 = 1_048_576;

/// A sorted set of CPU numbers (or node numbers: the kernel writes both alike). In JSON a list string, `"0-3,8"`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(into = "String", try_from = "String")]
#[schemars(with = "String")]
pub struct CpuSet(Vec<u32>);

/// A list of ids that could not be read; its text says what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CpuSetError {
    /// A part that is neither a number nor a range.
    #[error("'{0}' is not a list of CPUs; write numbers and ranges with commas, such as 0-3,8")]
    NotAList(String),
    /// A range whose end comes before its start.
    #[error("the range '{0}' runs backwards; write the smaller number first, such as 0-3")]
    Reversed(String),
    /// More ids than a machine can have.
    #[error("the list names more than {IDS_MAX} CPUs; check the range '{0}'")]
    TooMany(String),
    /// Not a mask.
    #[error("'{0}' is not a mask of CPUs; write hexadecimal words of 32 bits with commas, such as 00000000,0000000f")]
    NotAMask(String),
}

impl CpuSet {
    /// Parses `0-3,8`. Nothing at all is the empty set, as in the `cpulist` of a node without CPUs.
    pub fn parse(text: &str) -> Result<Self, CpuSetError> {
        let mut ids = Vec::new();
        for part in text.trim().split(',').filter(|_| !text.trim().is_empty()) {
            let (first, last) = range(part)?;
            if u64::from(last - first) + 1 + ids.len() as u64 > IDS_MAX {
                return Err(CpuSetError::TooMany(part.into()));
            }
            ids.extend(first..=last);
        }
        Ok(ids.into_iter().collect())
    }

    /// Parses the kernel's other form, a mask: `00000000,0000000f` is 0-3. Words of 32 bits, the highest first.
    pub fn parse_mask(text: &str) -> Result<Self, CpuSetError> {
        let wrong = || CpuSetError::NotAMask(text.trim().chars().take(40).collect());
        let mut ids = Vec::new();
        for (at, word) in text.trim().rsplit(',').enumerate() {
            let plain = (1..=8).contains(&word.len()) && word.bytes().all(|b| b.is_ascii_hexdigit());
            let bits = plain.then(|| u32::from_str_radix(word, 16).ok()).flatten().ok_or_else(wrong)?;
            let first = u32::try_from(at * 32).ok().filter(|first| u64::from(*first) < IDS_MAX).ok_or_else(wrong)?;
            ids.extend((0..32).filter(|bit| bits >> bit & 1 == 1).map(|bit| first + bit));
        }
        Ok(ids.into_iter().collect())
    }

    /// Whether `id` is in the set; a binary search.
    pub fn contains(&self, id: u32) -> bool {
        self.0.binary_search(&id).is_ok()
    }

    /// The ids, ascending.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// The number of ids.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no id.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The smallest id.
    pub fn first(&self) -> Option<u32> {
        self.0.first().copied()
    }

    /// The ids in both sets.
    pub fn intersection(&self, other: &CpuSet) -> CpuSet {
        CpuSet(self.iter().filter(|id| other.contains(*id)).collect())
    }
}

fn range(part: &str) -> Result<(u32, u32), CpuSetError> {
    let number = |text: &str| {
        let text = text.trim();
        let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        plain.then(|| text.parse().ok()).flatten().ok_or_else(|| CpuSetError::NotAList(part.trim().into()))
    };
    let (first, last) = part.split_once('-').unwrap_or((part, part));
    let (first, last) = (number(first)?, number(last)?);
    if first > last { Err(CpuSetError::Reversed(part.trim().into())) } else { Ok((first, last)) }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(ids: I) -> Self {
        let mut ids: Vec<u32> = ids.into_iter().collect();
        ids.sort_unstable();
        ids.dedup();
        CpuSet(ids)
    }
}

impl FromStr for CpuSet {
    type Err = CpuSetError;

    fn from_str(text: &str) -> Result<Self, CpuSetError> {
        CpuSet::parse(text)
    }
}

impl TryFrom<String> for CpuSet {
    type Error = CpuSetError;

    fn try_from(text: String) -> Result<Self, CpuSetError> {
        CpuSet::parse(&text)
    }
}

impl From<CpuSet> for String {
    fn from(set: CpuSet) -> String {
        set.to_string()
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs = self.0.chunk_by(|a, b| a.checked_add(1) == Some(*b));
        let runs = runs.map(|run| match run {
            [one] => one.to_string(),
            [first, .., last] => format!("{first}-{last}"),
            [] => String::new(),
        });
        f.pad(&runs.collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lists_are_read_and_written() {
        let check = |text: &str, ids: &[u32], written: &str| {
            let set = CpuSet::parse(text).unwrap();
            assert_eq!(set.iter().collect::<Vec<_>>(), ids, "{text}");
            assert_eq!(set.to_string(), written);
        };
        check("0-3,8", &[0, 1, 2, 3, 8], "0-3,8");
        check("", &[], "");
        check("\n", &[], "");
        check("8, 0-1,1-2\n", &[0, 1, 2, 8], "0-2,8");
        check("4294967295", &[u32::MAX], "4294967295");
    }

    #[test]
    fn wrong_lists_are_refused() {
        let check = |text: &str, error: CpuSetError| assert_eq!(CpuSet::parse(text), Err(error), "{text}");
        check("a", CpuSetError::NotAList("a".into()));
        check("+1", CpuSetError::NotAList("+1".into()));
        check("1,", CpuSetError::NotAList("".into()));
        check("1--2", CpuSetError::NotAList("1--2".into()));
        check("4294967296", CpuSetError::NotAList("4294967296".into()));
        check("3-0", CpuSetError::Reversed("3-0".into()));
        check("0-4294967295", CpuSetError::TooMany("0-4294967295".into()));
        check("0-1000000,0-1000000", CpuSetError::TooMany("0-1000000".into()));
    }

    #[test]
    fn the_largest_list_is_read() {
        assert_eq!(CpuSet::parse("0-1048575").unwrap().len(), 1_048_576);
        assert!(CpuSet::parse("0-1048576").is_err());
    }

    #[test]
    fn masks_are_read() {
        let check = |text: &str, list: &str| assert_eq!(CpuSet::parse_mask(text), CpuSet::parse(list), "{text}");
        check("0000000f", "0-3");
        check("1111,00000003\n", "0-1,32,36,40,44");
        check("0", "");
        for text in ["", ",", "0x1", "fffffffff", "+1", "g"] {
            assert!(CpuSet::parse_mask(text).is_err(), "{text}");
        }
    }

    #[test]
    fn json_is_a_list_string() {
        let set = CpuSet::parse("0-3,8").unwrap();
        assert_eq!(serde_json::to_string(&set).unwrap(), r#""0-3,8""#);
        assert_eq!(serde_json::from_str::<CpuSet>(r#""0-3,8""#).unwrap(), set);
        assert!(serde_json::from_str::<CpuSet>(r#""3-0""#).is_err());
    }

    proptest! {
        #[test]
        fn a_written_set_is_read_back(ids in prop::collection::btree_set(0u32..5000, 0..60)) {
            let set: CpuSet = ids.iter().copied().collect();
            prop_assert_eq!(&CpuSet::parse(&set.to_string()).unwrap(), &set);
            prop_assert_eq!(set.iter().collect::<Vec<_>>(), ids.into_iter().collect::<Vec<_>>());
        }

        #[test]
        fn an_intersection_holds_what_both_hold(
            a in prop::collection::vec(0u32..100, 0..50),
            b in prop::collection::vec(0u32..100, 0..50),
        ) {
            let (a, b): (CpuSet, CpuSet) = (a.into_iter().collect(), b.into_iter().collect());
            let both = a.intersection(&b);
            for id in 0..100 {
                prop_assert_eq!(both.contains(id), a.contains(id) && b.contains(id));
            }
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in "[0-9,\\- x]{0,24}") {
            let _ = CpuSet::parse(&text);
            let _ = CpuSet::parse_mask(&text);
        }
    }
}
