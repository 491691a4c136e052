//! Why a node is not like its neighbours: its facts held against theirs, and which levels suffer. The causes are those of the
//! verdict on a single machine (`model/verdict`), and so are their cures; here neighbours say what would be right, which no
//! machine can say of itself.
//!
//! A fact alone is no cause: what it spoils must be slower as well. Where facts tell nothing, the pattern does: what runs
//! in the first caches knows nothing of memory, and suffers from the core's clock; what only large working sets in huge pages suffer
//! from is address translation; what memory alone suffers from, with many threads more than one access at a time, is its width.

use std::collections::BTreeMap;

use crate::across::fleet::cells::{Backing, Cell, Kind};
use crate::across::fleet::distances::Distances;
use crate::across::fleet::finding::{Odd, Options, signed};
use crate::across::fleet::nodes::{CPU_TIME_LIMIT, Facts, Fleet, Hardware, NO_LIMIT, Node};
use crate::across::verdict::diagnosis::CauseKind;
use crate::across::verdict::rules::cure;
use membound_core::stats::cohort;
use membound_core::stats::cohort::Spread;
use membound_core::units::{Bytes, Hertz, counted, percent, significant};

/// Thresholds: shares of one, beyond what the cohort's scale explains.
mod threshold {
    /// Scales of the healthy nodes that a fact must lie off.
    pub const SCALES: f64 = 5.0;
    /// Core clock below the usual one.
    pub const CLOCK: f64 = 0.008;
    /// Huge pages not obtained.
    pub const HUGE: f64 = 0.05;
    /// Page cache, or a node's free memory.
    pub const PAGE_CACHE: f64 = 0.15;
    /// Pages elsewhere.
    pub const STRAY: f64 = 0.05;
    /// Time taken by the hypervisor.
    pub const STEAL: f64 = 0.01;
    /// Samples during which another task ran.
    pub const DISTURBED: f64 = 0.1;
    /// Unsteady samples in memory.
    pub const UNSTEADY: f64 = 0.02;
    /// Memory that differs by less is what kernels take for themselves.
    pub const MEMORY: f64 = 0.03;
    /// Share of a cohort that makes a setting the usual one.
    pub const USUAL: f64 = 0.8;
}

/// Why, and what helps.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Found {
    pub cause: Option<CauseKind>,
    pub why: String,
    pub evidence: Vec<String>,
    pub cure: String,
    pub test: String,
}

impl Found {
    /// Beside cores that are lost: what slows the others down is told first, if that is known.
    pub fn beside(self, lost: Found) -> Found {
        let evidence = [&lost.evidence[..], &self.evidence].concat();
        if self.cause.is_some() { Found { evidence, ..self } } else { Found { evidence, ..lost } }
    }
}

/// Cores that a node lacks. It needs no slower figure: who wants all cores gets fewer.
pub(crate) fn lost_cores(own: &Hardware, usual: &Hardware) -> Option<Found> {
    if own.cores == 0 || own.cores >= usual.cores {
        return None;
    }
    let (count, of, what) = match own.packages < usual.packages {
        true => (own.packages, usual.packages, "package"),
        false => (own.cores, usual.cores, "core"),
    };
    Some(Found {
        cause: None,
        why: format!("{count} of {}", counted(of, what)),
        evidence: vec![format!("{} are online, its neighbours have {}", counted(own.cores, "core"), usual.cores)],
        cure:
            "look for cores that are offline (lscpu -e) or switched off in the firmware, and for a package that failed"
                .into(),
        test: "membound machine".into(),
    })
}

/// Cases that crashed or came to wrong results on a node. They have no figures, so nothing else tells of them.
pub(crate) fn failed_cases(node: &Node) -> Option<Found> {
    let report = format!("membound report {}", node.file);
    (node.facts.failed_cases > 0).then(|| Found {
        cause: None,
        why: format!("{} crashed or came to wrong results", counted(node.facts.failed_cases, "case")),
        evidence: Vec::new(),
        cure: format!(
            "drain it until {report} and the kernel's log (dmesg) say why: memory or a processor may be failing"
        ),
        test: report,
    })
}

/// What is usual in a cohort.
#[derive(Debug, Default)]
pub(crate) struct Typical {
    numbers: Vec<Option<Spread>>,
    settings: BTreeMap<&'static str, String>,
}

/// A number among the facts.
type Number = fn(&Facts) -> Option<f64>;

const NUMBERS: [Number; 14] = [
    |facts| facts.clock_hz,
    |facts| facts.modules.map(f64::from),
    |facts| facts.module_mt_s.map(f64::from),
    |facts| facts.memory_bytes.map(|bytes| bytes as f64),
    |facts| facts.huge_share,
    |facts| facts.stray_share,
    |facts| facts.page_cache_share,
    |facts| facts.least_free_share,
    |facts| facts.steal_share,
    |facts| facts.disturbed_share,
    |facts| facts.unsteady_memory,
    |facts| facts.unsteady_caches,
    |facts| facts.cpu_time,
    |facts| facts.load_average,
];

/// Places in [`NUMBERS`].
mod number {
    pub const CLOCK: usize = 0;
    pub const MODULES: usize = 1;
    pub const MODULE_SPEED: usize = 2;
    pub const MEMORY: usize = 3;
    pub const HUGE: usize = 4;
    pub const STRAY: usize = 5;
    pub const PAGE_CACHE: usize = 6;
    pub const LEAST_FREE: usize = 7;
    pub const STEAL: usize = 8;
    pub const DISTURBED: usize = 9;
    pub const UNSTEADY: usize = 10;
    pub const UNSTEADY_CACHES: usize = 11;
    pub const CPU_TIME: usize = 12;
}

impl Typical {
    pub fn of(fleet: &Fleet, distances: &Distances) -> Typical {
        let facts = || distances.nodes.iter().map(|node| &fleet.nodes[*node].facts);
        let spread = |number: &Number| cohort::spread(&mut facts().filter_map(number).collect::<Vec<f64>>());
        let settings = usual_settings(facts()).into_iter().map(|(name, value, _)| (name, value)).collect();
        Typical { numbers: NUMBERS.iter().map(spread).collect(), settings }
    }

    /// The node's number and the usual one.
    fn both(&self, facts: &Facts, number: usize) -> Option<(f64, Spread)> {
        Some((NUMBERS[number](facts)?, self.numbers[number]?))
    }

    /// The two where the node's is lower by at least so much, and by more than healthy ones scatter.
    fn lower(&self, facts: &Facts, number: usize, by: f64) -> Option<(f64, f64)> {
        let (own, usual) = self.both(facts, number)?;
        (usual.middle - own > by.max(threshold::SCALES * usual.scale)).then_some((own, usual.middle))
    }

    fn higher(&self, facts: &Facts, number: usize, by: f64) -> Option<(f64, f64)> {
        let (own, usual) = self.both(facts, number)?;
        (own - usual.middle > by.max(threshold::SCALES * usual.scale)).then_some((own, usual.middle))
    }

    /// Lower by a share.
    fn less(&self, facts: &Facts, number: usize, by: f64) -> Option<(f64, f64)> {
        let (own, usual) = self.both(facts, number)?;
        (own < usual.middle * (1.0 - by) && usual.middle - own > threshold::SCALES * usual.scale)
            .then_some((own, usual.middle))
    }

    /// A setting that is not the usual one: its value and the usual.
    fn other<'a>(&'a self, facts: &'a Facts, name: &str) -> Option<(&'a str, &'a str)> {
        let (own, usual) = (facts.setting(name)?, self.settings.get(name)?);
        (own != usual).then_some((own, usual))
    }
}

/// How the node deviates where it matters for causes.
struct Pattern {
    noise: f64,
    core: Option<f64>,
    l3: Option<f64>,
    memory: Option<f64>,
    latency: Option<f64>,
    several: Option<f64>,
    huge: Option<f64>,
    base: Option<f64>,
}

impl Pattern {
    fn of(fleet: &Fleet, distances: &Distances, place: usize, noise: f64) -> Pattern {
        let effect = |is_wanted: fn(&Cell) -> bool| distances.effect_where(fleet, place, is_wanted);
        Pattern {
            noise,
            core: effect(|cell| cell.is_of_level() && matches!(cell.level.as_str(), "L1" | "L2")),
            l3: effect(|cell| cell.is_of_level() && cell.level == "L3"),
            memory: effect(|cell| is_bandwidth(cell) && cell.level == "memory"),
            latency: effect(|cell| cell.kind == Kind::Latency && cell.level == "memory"),
            several: effect(|cell| is_bandwidth(cell) && cell.level == "memory" && cell.threads > 1),
            huge: effect(|cell| is_large(cell) && cell.backing == Backing::Huge),
            base: effect(|cell| is_large(cell) && cell.backing == Backing::Base),
        }
    }

    fn is_down(&self, effect: Option<f64>) -> bool {
        effect.is_some_and(|effect| effect <= -self.noise)
    }

    /// Whether anything that lies in memory is slower.
    fn has_slow_memory(&self) -> bool {
        [self.memory, self.latency, self.several, self.huge].into_iter().any(|effect| self.is_down(effect))
    }

    fn has_slow_core(&self) -> bool {
        self.is_down(self.core)
    }
}

fn is_bandwidth(cell: &Cell) -> bool {
    cell.is_of_level() && cell.kind != Kind::Latency
}

fn is_large(cell: &Cell) -> bool {
    cell.is_of_level() && matches!(cell.level.as_str(), "L3" | "L4" | "memory" | "between levels")
}

/// What a rule looks at.
struct Scene<'a> {
    facts: &'a Facts,
    typical: &'a Typical,
    pattern: &'a Pattern,
}

/// What a rule found: why in a few words, how that is known, the cure.
type Reason = (String, String, &'static str);
type Rule = fn(&Scene<'_>) -> Option<Reason>;

/// Rules in the order in which they are believed: what is certain from facts first, then what the pattern alone tells.
const RULES: [(CauseKind, Rule); 11] = [
    (CauseKind::CpuTime, cpu_time),
    (CauseKind::Clock, clock),
    (CauseKind::TimeTaken, time_taken),
    (CauseKind::FewChannels, few_channels),
    (CauseKind::PageSize, page_size),
    (CauseKind::PageCache, page_cache),
    (CauseKind::WrongNode, wrong_node),
    (CauseKind::NumaBalancing, numa_balancing),
    (CauseKind::Neighbour, neighbour),
    (CauseKind::PageSize, page_size_by_pattern),
    (CauseKind::FewChannels, few_channels_by_pattern),
];

/// The cause of what a node shows.
pub(crate) fn cause(fleet: &Fleet, distances: &Distances, typical: &Typical, place: usize, options: Options) -> Found {
    let facts = &fleet.nodes[distances.nodes[place]].facts;
    let pattern = Pattern::of(fleet, distances, place, options.noise);
    let scene = Scene { facts, typical, pattern: &pattern };
    let mut found: Vec<(CauseKind, Reason)> = Vec::new();
    for (kind, rule) in RULES {
        // What facts tell needs no pattern.
        if found.iter().all(|(known, _)| *known != kind) {
            found.extend(rule(&scene).map(|reason| (kind, reason)));
        }
    }
    let mut evidence: Vec<String> = found.iter().map(|(_, reason)| reason.1.clone()).collect();
    evidence.extend(differences(&scene));
    match found.into_iter().next() {
        Some((kind, (why, _, cure))) => {
            Found { cause: Some(kind), why, evidence, cure: cure.into(), test: test(kind).into() }
        }
        None => Found {
            cause: None,
            why: unexplained(&pattern).into(),
            evidence,
            cure: "membound compare RECORD NEIGHBOUR'S-RECORD shows all that differs between it and a healthy node"
                .into(),
            test: "membound".into(),
        },
    }
}

fn test(kind: CauseKind) -> &'static str {
    match kind {
        CauseKind::Clock => "membound bandwidth --kernel load --size 16KiB --threads 1",
        CauseKind::TimeTaken => "membound bandwidth --kernel load --size 16KiB --threads 1 --samples 1000",
        CauseKind::PageSize => "membound bandwidth --kernel triad --memory 4k,thp,huge-2m",
        CauseKind::PageCache => "membound numa --page-cache",
        CauseKind::Neighbour => "membound bandwidth --kernel triad --samples 200",
        CauseKind::CpuTime => "membound machine",
        _ => "membound numa",
    }
}

fn unexplained(pattern: &Pattern) -> &'static str {
    let down = |effect| pattern.is_down(effect);
    match (down(pattern.core), down(pattern.l3), pattern.has_slow_memory()) {
        (true, ..) => "slow caches at the usual clock, no cause found",
        (false, true, _) => "slow beyond the second cache, as by a low clock of the uncore",
        (false, false, true) => "slow memory, no cause found",
        _ => "no cause found",
    }
}

fn cpu_time(scene: &Scene<'_>) -> Option<Reason> {
    let own = scene.facts.cpu_time?;
    // A number is usual among those that have one.
    let has_usually_none = scene.typical.settings.get(CPU_TIME_LIMIT).is_some_and(|usual| usual == NO_LIMIT);
    let usual = if has_usually_none { None } else { Some(scene.typical.numbers[number::CPU_TIME]?.middle) };
    let is_less = usual.is_none_or(|usual| own < 0.99 * usual);
    let usual = usual.map_or_else(|| "have no such limit".into(), |cpus| format!("that of {}", significant(cpus)));
    let evidence = format!("a control group allows it the time of {} CPUs, its neighbours {usual}", significant(own));
    (is_less && scene.pattern.has_slow_memory())
        .then(|| ("a limit on CPU time".into(), evidence, "raise cpu.max of the group (systemd: CPUQuota=)"))
}

fn clock(scene: &Scene<'_>) -> Option<Reason> {
    if !scene.pattern.has_slow_core() {
        return None;
    }
    let governor = scene.typical.other(scene.facts, "governor");
    let set = governor.map_or_else(String::new, |(own, usual)| format!("; the governor is {own}, usual is {usual}"));
    let cure = if governor.is_some() { cure::GOVERNOR } else { cure::CLOCK };
    if let Some((own, usual)) = scene.typical.less(scene.facts, number::CLOCK, threshold::CLOCK) {
        let (own, usual, share) = (Hertz(own), Hertz(usual), own / usual);
        let evidence = format!("cores ran at {own}, {} of the usual {usual}{set}", percent(share));
        return Some((format!("low core clock, {own} of {usual}"), evidence, cure));
    }
    if scene.facts.clock_hz.is_some() {
        return None;
    }
    let core = scene.pattern.core.unwrap_or(0.0);
    let evidence = format!("the first two caches, which know nothing of memory, are at {}{set}", signed(core));
    Some(("as by a low core clock".into(), evidence, cure))
}

fn time_taken(scene: &Scene<'_>) -> Option<Reason> {
    let pattern = scene.pattern;
    if !pattern.has_slow_core() && !pattern.is_down(pattern.l3) && !pattern.has_slow_memory() {
        return None;
    }
    let steal = scene.typical.higher(scene.facts, number::STEAL, threshold::STEAL);
    let disturbed = scene.typical.higher(scene.facts, number::DISTURBED, threshold::DISTURBED);
    let steal = steal.map(|(own, usual)| {
        format!("the hypervisor took {} of all CPU time, usual are {}", percent(own), percent(usual))
    });
    let disturbed = disturbed.map(|(own, usual)| {
        format!("another task ran during {} of the samples, usual are {}", percent(own), percent(usual))
    });
    let evidence: Vec<String> = [steal, disturbed].into_iter().flatten().collect();
    let cure = cure::time(scene.facts.is_virtual);
    (!evidence.is_empty()).then(|| ("others take its time".into(), evidence.join("; "), cure))
}

fn few_channels(scene: &Scene<'_>) -> Option<Reason> {
    let (facts, typical) = (scene.facts, scene.typical);
    if !scene.pattern.has_slow_memory() || scene.pattern.has_slow_core() {
        return None;
    }
    if let Some((own, usual)) = typical.lower(facts, number::MODULES, 0.5) {
        let evidence = format!("{own} memory modules are fitted, its neighbours have {usual}");
        return Some((format!("{own} of {usual} memory modules"), evidence, cure::CHANNELS));
    }
    if let Some((own, usual)) = typical.less(facts, number::MEMORY, threshold::MEMORY) {
        let [exact, rounded] =
            [1, 1024].map(|step| [own, usual].map(|bytes| Bytes::mib((bytes as u64 >> 20).next_multiple_of(step))));
        // As a node is bought, where that tells them apart.
        let [own, usual] = if rounded[0] < rounded[1] { rounded } else { exact };
        let evidence = format!("it has {own} of memory, its neighbours have {usual}");
        return Some((format!("{own} of {usual} of memory"), evidence, cure::CHANNELS));
    }
    if let Some((own, usual)) = typical.less(facts, number::MODULE_SPEED, 0.01) {
        let evidence = format!("memory modules run at {own} MT/s, those of its neighbours at {usual}");
        let cure = "look for the memory speed in the firmware's settings, and for a module that is made for less";
        return Some((format!("memory at {own} of {usual} MT/s"), evidence, cure));
    }
    let is_odd = facts.has_uneven_modules && typical.settings.get("modules").is_none_or(|usual| usual == "alike");
    is_odd.then(|| {
        ("memory modules of several sizes".into(), "its memory modules are of several sizes".into(), cure::UNEVEN)
    })
}

fn page_size(scene: &Scene<'_>) -> Option<Reason> {
    if !scene.pattern.has_slow_memory() && !scene.pattern.is_down(scene.pattern.huge) {
        return None;
    }
    let setting = scene.typical.other(scene.facts, "transparent huge pages");
    let share = scene.typical.lower(scene.facts, number::HUGE, threshold::HUGE);
    let mut evidence: Vec<String> = Vec::new();
    evidence.extend(share.map(|(own, usual)| {
        format!(
            "{} of the memory that was wanted in huge pages came in them, usual are {}",
            percent(own),
            percent(usual)
        )
    }));
    evidence.extend(setting.map(|(own, usual)| format!("transparent huge pages are {own}, usual is {usual}")));
    let is_off = setting.is_some_and(|setting| setting.0 == "never");
    let why = if is_off { "transparent huge pages are off" } else { "no huge pages" };
    let cure = if is_off { cure::HUGE_PAGES_OFF } else { cure::HUGE_PAGES };
    (share.is_some() || is_off).then(|| (why.into(), evidence.join("; "), cure))
}

fn page_cache(scene: &Scene<'_>) -> Option<Reason> {
    if !scene.pattern.has_slow_memory() || scene.pattern.has_slow_core() {
        return None;
    }
    let cached = scene.typical.higher(scene.facts, number::PAGE_CACHE, threshold::PAGE_CACHE);
    let free = scene.typical.lower(scene.facts, number::LEAST_FREE, threshold::PAGE_CACHE);
    let (why, evidence) = match (cached, free) {
        (Some((own, usual)), _) => (
            format!("page cache holds {} of memory", percent(own)),
            format!("page cache held {} of memory before the run, usual are {}", percent(own), percent(usual)),
        ),
        (None, Some((own, usual))) => (
            "a full NUMA node".into(),
            format!("of one node only {} was free before the run, usual are {}", percent(own), percent(usual)),
        ),
        (None, None) => return None,
    };
    Some((why, evidence, cure::PAGE_CACHE))
}

fn wrong_node(scene: &Scene<'_>) -> Option<Reason> {
    let (own, usual) = scene.typical.higher(scene.facts, number::STRAY, threshold::STRAY)?;
    let evidence =
        format!("{} of the pages lie on another node than asked for, usual are {}", percent(own), percent(usual));
    scene.pattern.has_slow_memory().then(|| ("pages on the wrong node".into(), evidence, cure::WRONG_NODE))
}

fn numa_balancing(scene: &Scene<'_>) -> Option<Reason> {
    let (own, usual) = scene.typical.other(scene.facts, "NUMA balancing")?;
    let evidence = format!("kernel.numa_balancing is {own}, usual is {usual}");
    let is_on = own != "0" && usual == "0";
    (is_on && scene.pattern.has_slow_memory()).then(|| ("NUMA balancing is on".into(), evidence, cure::NUMA_BALANCING))
}

fn neighbour(scene: &Scene<'_>) -> Option<Reason> {
    let (own, usual) = scene.typical.higher(scene.facts, number::UNSTEADY, threshold::UNSTEADY)?;
    let caches = scene.typical.higher(scene.facts, number::UNSTEADY_CACHES, (own - usual) / 2.0);
    let evidence = format!(
        "in memory the fast tenth of the samples is {} above the median, usual are {}",
        percent(own),
        percent(usual)
    );
    let is_ours = caches.is_none() && !scene.pattern.has_slow_core() && scene.pattern.has_slow_memory();
    is_ours.then(|| ("a neighbour on the memory".into(), evidence, cure::NEIGHBOUR))
}

fn page_size_by_pattern(scene: &Scene<'_>) -> Option<Reason> {
    let pattern = scene.pattern;
    let base = pattern.base.filter(|_| !pattern.is_down(pattern.base))?;
    let huge = pattern.huge.filter(|_| pattern.is_down(pattern.huge) && !pattern.has_slow_core())?;
    let evidence = format!(
        "large working sets that ask for huge pages are at {}, those in base pages at {}",
        signed(huge),
        signed(base)
    );
    Some(("as without huge pages".into(), evidence, cure::HUGE_PAGES))
}

fn few_channels_by_pattern(scene: &Scene<'_>) -> Option<Reason> {
    let pattern = scene.pattern;
    // Of a guest's memory its neighbours take what they take.
    if scene.facts.is_virtual {
        return None;
    }
    let memory = pattern.several.or(pattern.memory)?;
    let caches_hold = !pattern.has_slow_core() && !pattern.is_down(pattern.l3);
    // Fewer channels take as long to answer a single access.
    let latency_holds = pattern.latency.is_none_or(|latency| latency > memory / 2.0);
    let evidence =
        format!("bandwidth of memory alone is at {}; caches and latency are as its neighbours'", signed(memory));
    (pattern.is_down(Some(memory)) && caches_hold && latency_holds)
        .then(|| ("as if memory channels were missing".into(), evidence, cure::CHANNELS))
}

/// Settings that are not the usual ones, as further evidence.
fn differences(scene: &Scene<'_>) -> Vec<String> {
    let told = ["transparent huge pages", "governor", "NUMA balancing"];
    let names = scene.facts.settings.iter().map(|setting| setting.0).filter(|name| !told.contains(name));
    let line = |name: &'static str| {
        let (own, usual) = scene.typical.other(scene.facts, name)?;
        Some(format!("{name}: {own}, usual is {usual}"))
    };
    names.filter_map(line).collect()
}

/// The usual value of each setting, where there is one, and how many have it.
fn usual_settings<'a>(facts: impl Iterator<Item = &'a Facts>) -> Vec<(&'static str, String, usize)> {
    let mut counts: BTreeMap<&'static str, BTreeMap<&str, usize>> = BTreeMap::new();
    for facts in facts {
        for (name, value) in &facts.settings {
            *counts.entry(name).or_default().entry(value).or_insert(0) += 1;
        }
    }
    let usual = |(name, values): (&'static str, BTreeMap<&str, usize>)| {
        let all: usize = values.values().sum();
        let (value, most) = values.into_iter().max_by_key(|(_, count)| *count)?;
        (most as f64 >= threshold::USUAL * all as f64).then(|| (name, value.to_string(), most))
    };
    counts.into_iter().filter_map(usual).collect()
}

/// What is not the same on all nodes of a cohort.
pub(crate) fn odd(fleet: &Fleet, nodes: &[usize]) -> Vec<Odd> {
    let facts = || nodes.iter().map(|node| &fleet.nodes[*node].facts);
    let of = |(name, usual, most): (&'static str, String, usize)| {
        if most == nodes.len() {
            return None;
        }
        let mut others: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for node in nodes {
            let node = &fleet.nodes[*node];
            if let Some(value) = node.facts.setting(name).filter(|value| *value != usual) {
                others.entry(value).or_default().push(node.host.clone());
            }
        }
        let others: Vec<(String, Vec<String>)> =
            others.into_iter().map(|(value, names)| (value.to_string(), names)).collect();
        (!others.is_empty()).then(|| Odd { what: name.into(), usual, others })
    };
    usual_settings(facts()).into_iter().filter_map(of).collect()
}
