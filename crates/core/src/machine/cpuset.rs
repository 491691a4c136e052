//! Lists of ids as the kernel writes them: `0-3,8`.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// More ids than any machine has (Linux ends at 8,192 CPUs and 1,024 nodes); a longer list is a mistake that would eat time.
pub const IDS_MAX: u64 = 65_536;

/// A sorted set of CPU numbers (or node numbers: the kernel writes both alike). In JSON a list string, `"0-3,8"`.
///
/// It is kept as ranges, first and last, which rise and do not touch: what a hostile list costs is its text.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(into = "String", try_from = "String")]
#[schemars(with = "String")]
pub struct CpuSet(Vec<(u32, u32)>);

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
        let (mut ranges, mut ids) = (Vec::new(), 0);
        for part in text.trim().split(',').filter(|_| !text.trim().is_empty()) {
            let (first, last) = range(part)?;
            ids += u64::from(last - first) + 1;
            if ids > IDS_MAX {
                return Err(CpuSetError::TooMany(part.into()));
            }
            ranges.push((first, last));
        }
        Ok(CpuSet::of_ranges(ranges))
    }

    /// From ranges in any order, which may overlap.
    fn of_ranges(mut ranges: Vec<(u32, u32)>) -> Self {
        ranges.sort_unstable();
        let mut apart: Vec<(u32, u32)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match apart.last_mut() {
                Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
                _ => apart.push((first, last)),
            }
        }
        apart.shrink_to_fit();
        CpuSet(apart)
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
        let before = self.0.partition_point(|(_, last)| *last < id);
        self.0.get(before).is_some_and(|(first, _)| *first <= id)
    }

    /// The ids, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().flat_map(|(first, last)| *first..=*last)
    }

    /// The number of ids.
    pub fn len(&self) -> usize {
        self.0.iter().map(|(first, last)| (last - first) as usize + 1).sum()
    }

    /// Whether there is no id.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The smallest id.
    pub fn first(&self) -> Option<u32> {
        self.0.first().map(|(first, _)| *first)
    }

    /// The ids in both sets.
    pub fn intersection(&self, other: &CpuSet) -> CpuSet {
        let (mut a, mut b) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut both = Vec::new();
        while let (Some(one), Some(two)) = (a.peek(), b.peek()) {
            let (first, last) = (one.0.max(two.0), one.1.min(two.1));
            if first <= last {
                both.push((first, last));
            }
            if one.1 < two.1 {
                a.next()
            } else {
                b.next()
            };
        }
        CpuSet(both)
    }
}

/// By ids: 0,5 comes after 0-3.
impl Ord for CpuSet {
    fn cmp(&self, other: &Self) -> Ordering {
        let alike = self.0.iter().zip(&other.0).take_while(|(one, two)| one == two).count();
        let (one, two) = (&self.0[alike..], &other.0[alike..]);
        match (one.first(), two.first()) {
            (Some((a, _)), Some((b, _))) if a != b => a.cmp(b),
            // One ends before the other: what comes next in it is beyond the other's next, or there is nothing more.
            (Some((_, a)), Some((_, b))) if a < b => {
                if one.len() > 1 {
                    Ordering::Greater
                } else {
                    Ordering::Less
                }
            }
            (Some(_), Some(_)) => {
                if two.len() > 1 {
                    Ordering::Less
                } else {
                    Ordering::Greater
                }
            }
            (one, two) => one.is_some().cmp(&two.is_some()),
        }
    }
}

impl PartialOrd for CpuSet {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
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
        CpuSet::of_ranges(ids.into_iter().map(|id| (id, id)).collect())
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
        let runs = self.0.iter().map(|(first, last)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
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
        check("0-40000,0-40000", CpuSetError::TooMany("0-40000".into()));
    }

    #[test]
    fn the_largest_list_is_read() {
        let all = CpuSet::parse("0-65535").unwrap();
        assert_eq!((all.len(), all.0.len()), (65_536, 1), "what it costs is its text");
        assert!(CpuSet::parse("0-65536").is_err());
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
            prop_assert_eq!(CpuSet::parse(&both.to_string()).unwrap(), both);
            prop_assert_eq!(a.cmp(&b), a.iter().cmp(b.iter()), "{} {}", a, b);
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in "[0-9,\\- x]{0,24}") {
            let _ = CpuSet::parse(&text);
            let _ = CpuSet::parse_mask(&text);
        }
    }
}
