//! Which node hangs on which switch: Slurm's `topology.conf`, and its lists of hosts (`n[1-4,7]`).

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use membound_core::input;

/// More hosts than any cluster has; a longer list is a mistake that would eat memory.
const HOSTS_MOST: usize = 131_072;
/// Switches at most: each is looked at with all that hang below it.
const SWITCHES_MOST: usize = 20_000;
/// Letters of a host's name at most.
const NAME_MOST: usize = 255;
/// Bytes of a file at most.
const FILE_MOST: u64 = 16 << 20;

/// A switch, and all nodes below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Switch {
    /// Its name.
    pub name: String,
    /// The nodes that hang on it directly.
    pub nodes: Vec<String>,
    /// The switches below it.
    pub switches: Vec<String>,
}

/// All switches.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Topology {
    /// In the order of the file.
    pub switches: Vec<Switch>,
    places: HashMap<String, usize>,
    by_name: HashMap<String, usize>,
}

/// Why there is no topology; the text says what would be right.
#[derive(Debug, thiserror::Error)]
pub enum TopologyError {
    /// The file can't be read.
    #[error("cannot read {path}: {source}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A line that says nothing known.
    #[error(
        "line {line} of the topology: {fault}; write SwitchName=s1 Nodes=n[1-4], or SwitchName=top Switches=s[1-2]"
    )]
    Line {
        /// From 1.
        line: usize,
        /// What is wrong with it.
        fault: String,
    },
    /// No switch has nodes.
    #[error("the topology names no nodes; write SwitchName=s1 Nodes=n[1-4]")]
    Empty,
}

impl Topology {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, TopologyError> {
        let text =
            input::text(path, FILE_MOST).map_err(|source| TopologyError::Unreadable { path: path.into(), source })?;
        Topology::parse(&text)
    }

    /// Parses `topology.conf`: lines of `Key=value`, keys in any case, `#` begins a comment, `\` at the end goes on with the next line.
    pub fn parse(text: &str) -> Result<Self, TopologyError> {
        let mut switches: Vec<Switch> = Vec::new();
        let mut by_name = HashMap::new();
        let mut names = 0;
        for (line, text) in lines(text) {
            let wrong = |fault: String| TopologyError::Line { line, fault };
            let mut switch = Switch { name: String::new(), nodes: Vec::new(), switches: Vec::new() };
            for word in text.split_whitespace() {
                let (key, value) = word.split_once('=').ok_or_else(|| wrong(format!("'{word}' is no Key=value")))?;
                match key.to_ascii_lowercase().as_str() {
                    "switchname" => switch.name = value.into(),
                    "nodes" => switch.nodes = hosts(value).map_err(wrong)?,
                    "switches" => switch.switches = hosts(value).map_err(wrong)?,
                    "linkspeed" => {}
                    _ => return Err(wrong(format!("unknown key '{key}'"))),
                }
            }
            if switch.name.is_empty() {
                return Err(wrong("it names no switch".into()));
            }
            if by_name.insert(switch.name.clone(), switches.len()).is_some() {
                return Err(wrong(format!("switch '{}' stands there twice", switch.name)));
            }
            names += switch.nodes.len() + switch.switches.len();
            if names > HOSTS_MOST || switches.len() == SWITCHES_MOST {
                let most = format!("more than {HOSTS_MOST} nodes or {SWITCHES_MOST} switches");
                return Err(wrong(format!("with it the topology names {most}")));
            }
            switches.push(switch);
        }
        let mut places = HashMap::new();
        for (place, switch) in switches.iter().enumerate() {
            for node in &switch.nodes {
                places.entry(node.clone()).or_insert(place);
            }
        }
        if places.is_empty() { Err(TopologyError::Empty) } else { Ok(Topology { switches, places, by_name }) }
    }

    /// The switch that a host hangs on, by its name or by what stands before the first dot (or the first blank) of it.
    pub fn switch_of(&self, host: &str) -> Option<usize> {
        let short = host.split(['.', ' ']).next().unwrap_or(host);
        self.places.get(host).or_else(|| self.places.get(short)).copied()
    }

    /// The switches at and below one, each once. A tree that leads back into itself ends there.
    pub fn below(&self, switch: usize) -> Vec<usize> {
        let mut found = vec![switch];
        let mut seen = HashSet::from([switch]);
        let mut next = 0;
        while let Some(at) = found.get(next).copied() {
            for name in &self.switches[at].switches {
                found.extend(self.by_name.get(name).copied().filter(|place| seen.insert(*place)));
            }
            next += 1;
        }
        found
    }
}

/// Lines without comments and blanks, joined where they go on; each with the number of its first.
fn lines(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim_end();
        let (part, more) = line.strip_suffix('\\').map_or((line, false), |part| (part, true));
        match lines.last_mut().filter(|_| goes_on) {
            Some((_, whole)) => {
                whole.push(' ');
                whole.push_str(part);
            }
            None => lines.push((index + 1, part.into())),
        }
        goes_on = more;
    }
    lines.retain(|(_, line)| !line.trim().is_empty());
    lines
}

/// The hosts of a list: `n[1-3,07],login` is n1, n2, n3, n07 and login. What is wrong is said in words.
pub fn hosts(list: &str) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    for part in parts(list)? {
        let names = expanded(part, HOSTS_MOST - found.len())?;
        found.extend(names);
    }
    Ok(found)
}

/// Parts between commas that stand outside of brackets.
fn parts(list: &str) -> Result<Vec<&str>, String> {
    let (mut depth, mut from, mut found) = (0i32, 0, Vec::new());
    let unmatched = || format!("the brackets of '{}' do not match", some(list));
    for (at, letter) in list.char_indices() {
        depth += i32::from(letter == '[') - i32::from(letter == ']');
        if !(0..=1).contains(&depth) {
            return Err(unmatched());
        }
        if letter == ',' && depth == 0 {
            found.push(&list[from..at]);
            from = at + 1;
        }
    }
    found.push(&list[from..]);
    if depth != 0 {
        return Err(unmatched());
    }
    if found.iter().any(|part| part.trim().is_empty()) {
        return Err(format!("'{}' has an empty name", some(list)));
    }
    Ok(found)
}

/// One name with any number of brackets, as at most so many.
fn expanded(part: &str, most: usize) -> Result<Vec<String>, String> {
    let too_many = || format!("'{}' and what stands before it name more than {HOSTS_MOST} hosts", some(part));
    let (before, mut rest) = part.split_at(part.find('[').unwrap_or(part.len()));
    let mut names = vec![before.trim().to_string()];
    while let Some((inside, after)) = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        let mut numbers: Vec<String> = Vec::new();
        for range in inside.split(',') {
            numbers.extend(numbers_of(range)?);
            if names.len().saturating_mul(numbers.len()) > most {
                return Err(too_many());
            }
        }
        let (between, next) = after.split_at(after.find('[').unwrap_or(after.len()));
        if names.first().map_or(0, String::len) + between.len() >= NAME_MOST {
            return Err(format!("'{}' names hosts of more than {NAME_MOST} letters", some(part)));
        }
        let each = |name: String| numbers.iter().map(|number| format!("{name}{number}{between}")).collect::<Vec<_>>();
        names = names.into_iter().flat_map(each).collect();
        rest = next;
    }
    if names.len() > most { Err(too_many()) } else { Ok(names) }
}

/// The beginning of what may be long.
fn some(text: &str) -> &str {
    text.char_indices().nth(60).map_or(text, |(end, _)| &text[..end])
}

/// `01-04` is 01, 02, 03 and 04: as wide as the first.
fn numbers_of(range: &str) -> Result<Vec<String>, String> {
    let wrong = || format!("'{range}' is no number and no range of numbers");
    let number = |text: &str| {
        let is_plain = !text.is_empty() && text.len() <= 18 && text.bytes().all(|byte| byte.is_ascii_digit());
        is_plain.then(|| text.parse::<u64>().ok()).flatten().ok_or_else(wrong)
    };
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let width = first.len();
    let (low, high) = (number(first)?, number(last)?);
    if low > high {
        return Err(format!("the range '{range}' runs backwards"));
    }
    if high - low >= HOSTS_MOST as u64 {
        return Err(format!("the range '{range}' names more than {HOSTS_MOST} hosts"));
    }
    Ok((low..=high).map(|n| format!("{n:0width$}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lists_of_hosts() {
        let check = |list: &str, expect: &[&str]| assert_eq!(hosts(list).unwrap(), expect, "{list}");
        check("n1", &["n1"]);
        check("n[1-3,07],login", &["n1", "n2", "n3", "n07", "login"]);
        check("r[1-2]n[08-10]", &["r1n08", "r1n09", "r1n10", "r2n08", "r2n09", "r2n10"]);
        check("a[1]b", &["a1b"]);
        for list in
            ["", "n[", "n]", "n[1-", "n[3-1]", "n[a-b]", "n[]", "a,,b", "n[1-99999999]", "a[1-2000]b[1-2000]", "n[[1]]"]
        {
            assert!(hosts(list).is_err(), "{list}");
        }
    }

    #[test]
    fn a_file_of_slurm() {
        let text = "# two racks\nSwitchName=s1 Nodes=n[1-2] LinkSpeed=100\nswitchname=s2 \\\n  Nodes=n[3-4],m1 # more\n\nSwitchName=top Switches=s[1-2]\n";
        let topology = Topology::parse(text).unwrap();
        let named = |host: &str| topology.switch_of(host).map(|place| topology.switches[place].name.as_str());
        assert_eq!(
            (named("n2"), named("m1"), named("n4.cluster"), named("n9")),
            (Some("s1"), Some("s2"), Some("s2"), None)
        );
        assert_eq!(topology.below(2), [2, 0, 1]);
        assert_eq!(topology.below(0), [0]);
        let fails = |text: &str, part: &str| {
            let fault = Topology::parse(text).unwrap_err().to_string();
            assert!(fault.contains(part), "'{part}' is not in: {fault}");
        };
        fails("", "names no nodes");
        fails("SwitchName=top Switches=s1", "names no nodes");
        fails("\nNodes=n1", "line 2 of the topology: it names no switch");
        fails("SwitchName=a Nodes=n[2-1]", "runs backwards");
        fails("SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2", "line 2");
        fails("SwitchName=a Ports=3", "unknown key 'Ports'");
        // A loop ends.
        let looped = Topology::parse("SwitchName=a Nodes=n1 Switches=b\nSwitchName=b Switches=a").unwrap();
        assert_eq!(looped.below(0), [0, 1]);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(SwitchName=|Nodes=|Switches=|s1|n|\\[|\\]|1|-|,|0|9| |\n|#|\\\\|=){0,40}") {
            let _ = Topology::parse(&text);
            let _ = hosts(&text);
        }

        #[test]
        fn what_is_written_is_read_back(prefix in "[a-z]{1,4}", low in 0u64..2000, count in 1u64..50, width in 0usize..6) {
            let list = format!("{prefix}[{low:0width$}-{:0width$}]", low + count - 1);
            let expect: Vec<String> = (low..low + count).map(|n| {
                let width = format!("{low:0width$}").len();
                format!("{prefix}{n:0width$}")
            }).collect();
            prop_assert_eq!(hosts(&list).unwrap(), expect);
        }
    }
}
