//! What there is to know about figures: one table of words, of the letters that stand for them in narrow tables, of what
//! they mean and what helps.

use membound_core::units::words;

macro_rules! flags {
    ($($name:ident, $word:literal, $letter:literal, $means:literal, $cure:literal;)+) => {
        words! {
            /// Something to know about the figures of a row.
            Flag, "flag" { $(#[doc = $means] $name = $word),+ }
        }

        impl Flag {
            /// The letter that stands for it in narrow tables.
            pub fn letter(self) -> char {
                match self { $(Flag::$name => $letter),+ }
            }

            /// What was seen.
            pub fn means(self) -> &'static str {
                match self { $(Flag::$name => $means),+ }
            }

            /// What helps.
            pub fn cure(self) -> &'static str {
                match self { $(Flag::$name => $cure),+ }
            }
        }
    };
}

flags! {
    Disturbed, "disturbed", 'q', "less than half of the visits were undisturbed",
        "repeat when the host is quiet, or ask for a machine of your own: what one gets is `experienced`";
    Bimodal, "bimodal", 'b', "the samples fall into two groups",
        "look at the modes, not only the median; on a shared host repeat when it is quiet";
    Outliers, "outliers", 'o', "some samples lie far from the others",
        "look for work that runs from time to time; the median hardly feels it";
    Steal, "steal", 's', "the hypervisor took time",
        "ask for dedicated cores, or repeat when the host is quiet";
    Switches, "switches", 'w', "another task ran on a CPU of ours",
        "stop it, or leave it CPUs of its own with --cpus";
    Stopped, "stopped", 'z', "the process stood still during a sample",
        "repeat it: a signal, a suspend, a paused guest or a quota of CPU time stopped it";
    Faults, "faults", 'f', "pages were faulted in during samples",
        "switch NUMA balancing and page migration off";
    Migrated, "migrated", 'm', "a thread ran on another CPU than asked for",
        "check cpusets";
    Imbalanced, "imbalanced", 't', "threads with equal work took unequal time",
        "look for other work on the slower CPU, or repeat: its memory lies otherwise then";
    Drift, "drift", 'd', "the figure moved between rounds",
        "something else used the machine; compare within one run only";
    ClockChanged, "clock-changed", 'c', "the core clock changed during samples",
        "fix the clock with the performance governor; compare bytes per cycle";
    FewSamples, "few-samples", 'n', "too few samples for the interval asked for",
        "give a longer --budget";
    WideInterval, "wide-interval", 'i', "the interval is wider than asked for",
        "give a longer --budget, or a quieter machine";
    PagesDiffer, "pages-differ", 'p', "the pages obtained are not those asked for",
        "see `obtained` in the rows; free memory or set THP to madvise";
    ControllersDisagree, "controllers-disagree", 'x', "the memory controllers counted other bytes than the loop's",
        "look for others that use the memory; else the count of the loop's bytes is wrong for this machine";
    Asymmetric, "asymmetric", 'a', "the other way round it takes another time",
        "look at both directions; the slower one counts where lines go back and forth";
    IdleDiffers, "idle-differs", 'l', "idle threads beside it changed the latency",
        "fix the clock with the performance governor; idle siblings share a core's clock and caches";
    NotMonotone, "not-monotone", 'u', "latency or bandwidth fell with more load",
        "repeat when the machine is quiet, with a longer --budget";
    CacheKept, "cache-kept", 'e', "the page cache could not be emptied first",
        "empty it as root, or run in a cgroup of its own";
    CacheShort, "cache-short", 'h', "the page cache did not hold all of the file",
        "free memory, or take a smaller file";
    MayBeCached, "may-be-cached", 'k', "the working set is too small to be in memory for sure",
        "take at least four times the last-level cache";
    Starved, "starved", 'v', "other tasks kept the loading threads from running",
        "stop them, or leave them CPUs of their own with --cpus";
    Oversubscribed, "oversubscribed", 'r', "more processes ran than there are CPUs",
        "run at most one process a CPU";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_letter_stands_for_one_flag() {
        let letters: BTreeSet<char> = Flag::ALL.iter().map(|flag| flag.letter()).collect();
        assert_eq!(letters.len(), Flag::ALL.len());
    }
}
