//! Questions about where CPUs are: which may be used, in which order, behind which caches.

use std::collections::BTreeSet;

use crate::index::Index;
use crate::machine::Machine;
use crate::machine::caches::{Cache, is_beside};
use crate::machine::cpus::{CoreKind, Cpu};
use crate::machine::cpuset::CpuSet;
use crate::machine::fact::Fact;
use crate::units::{Bytes, LINE, words};

words! {
    /// How near two CPUs are, as far as the kernel tells: the nearest that holds.
    Relation, "relation" {
        /// Hardware threads of one core.
        Siblings = "SMT siblings",
        /// Cores that share a second-level cache, or that the firmware calls a cluster.
        Cluster = "same cluster",
        /// Cores behind one last-level cache.
        CacheDomain = "same cache domain",
        /// Cores of one package behind different last-level caches.
        Package = "same package",
        /// Cores of two packages.
        OtherPackage = "other package",
        /// The kernel tells too little.
        Unknown = "unknown",
    }
}

impl Machine {
    /// The CPU with a number; a binary search.
    pub fn cpu(&self, id: u32) -> Option<&Cpu> {
        self.cpus.binary_search_by_key(&id, |cpu| cpu.id).ok().map(|at| &self.cpus[at])
    }

    /// How near two different CPUs are. Looks at all caches: of many pairs ask [`Machine::relations`].
    pub fn relation(&self, a: u32, b: u32) -> Relation {
        self.relation_by(a, b, &self.data_caches(a))
    }

    /// The same of many pairs: all caches are looked at once.
    pub fn relations(&self) -> impl Fn(u32, u32) -> Relation {
        let mut caches: Index<u32, Vec<&Cache>> = Index::default();
        for cache in self.caches.iter().filter(|cache| cache.holds_data()) {
            cache.cpus.iter().for_each(|cpu| caches.entry(cpu).or_default().push(cache));
        }
        move |a, b| self.relation_by(a, b, caches.get(&a).map_or(&[], Vec::as_slice))
    }

    /// `caches`: those of the first, nearest first.
    fn relation_by(&self, a: u32, b: u32, caches: &[&Cache]) -> Relation {
        let (Some(first), Some(second)) = (self.cpu(a), self.cpu(b)) else { return Relation::Unknown };
        let packages = first.package.get().zip(second.package.get());
        let in_one_package = packages.is_none_or(|(a, b)| a == b);
        let clusters = first.cluster.get().zip(second.cluster.get());
        let share =
            |level: &dyn Fn(u32) -> bool| caches.iter().any(|cache| level(cache.level) && cache.cpus.contains(b));
        let last = caches.last().map(|cache| cache.level);
        match packages {
            _ if first.core_cpus.contains(b) => Relation::Siblings,
            _ if share(&|level| level == 2 && Some(level) != last) => Relation::Cluster,
            _ if in_one_package && clusters.is_some_and(|(a, b)| a == b) => Relation::Cluster,
            _ if share(&|level| level > 1 && Some(level) == last) => Relation::CacheDomain,
            Some((a, b)) if a == b => Relation::Package,
            Some(_) => Relation::OtherPackage,
            None => Relation::Unknown,
        }
    }

    /// CPUs that are online.
    pub fn online_cpus(&self) -> CpuSet {
        self.cpus.iter().filter(|cpu| cpu.online).map(|cpu| cpu.id).collect()
    }

    /// CPUs that are online and that this process may run on. The kernel keeps the affinity within the cpuset, so the
    /// cpuset counts only where the affinity is not known.
    pub fn usable_cpus(&self) -> CpuSet {
        let online = self.online_cpus();
        match self.limits.allowed_cpus.known().or(self.limits.cpuset_cpus.known()) {
            Some(allowed) => online.intersection(allowed),
            None => online,
        }
    }

    /// `cpus` in the order in which threads should take them: first one hardware thread of each core, strong kinds before
    /// weak ones, filling one last-level cache, then the next, package after package; then the second threads alike.
    /// CPUs that the machine has not are left out.
    pub fn topology_order(&self, cpus: &CpuSet) -> Vec<u32> {
        let mut order: Vec<_> =
            cpus.iter().filter_map(|id| self.cpu(id)).map(|cpu| self.place_in_order(cpu, cpus)).collect();
        order.sort();
        order.into_iter().map(|(.., id)| id).collect()
    }

    fn place_in_order(&self, cpu: &Cpu, among: &CpuSet) -> (usize, Option<CoreKind>, Option<u32>, Option<u32>, u32) {
        let thread = cpu.core_cpus.iter().filter(|id| *id < cpu.id && among.contains(*id)).count();
        let domain = self.last_level(cpu.id).and_then(|cache| cache.cpus.first());
        (thread, cpu.kind.get(), cpu.package.get(), domain.or(cpu.node.get()), cpu.id)
    }

    /// The caches that loads and stores of a CPU go through, nearest first.
    pub fn data_caches(&self, cpu: u32) -> Vec<&Cache> {
        // `caches` is sorted by level.
        self.caches.iter().filter(|cache| cache.holds_data() && cache.cpus.contains(cpu)).collect()
    }

    /// The last cache before memory, for one CPU.
    pub fn last_level(&self, cpu: u32) -> Option<&Cache> {
        self.data_caches(cpu).into_iter().last()
    }

    /// Bytes that a CPU gets from memory at once: a line of its last cache, which processors for Arm make as large as 256 B.
    pub fn line(&self, cpu: u32) -> Bytes {
        self.last_level(cpu).map(|cache| cache.line).filter(|line| line.0 > 0).unwrap_or(Bytes(LINE))
    }

    /// Bytes that these CPUs have right before a CPU's cache of this level, where that holds nothing of them.
    pub fn beside(&self, cpu: u32, level: u32, cpus: &CpuSet) -> Bytes {
        let caches = self.data_caches(cpu);
        let Some(pair) = caches.windows(2).find(|pair| pair[1].level == level) else { return Bytes(0) };
        let (before, own) = (pair[0].level, pair[1]);
        let is_used = |cpu: &u32| own.cpus.contains(*cpu) && cpus.contains(*cpu);
        let all = self.caches.iter().filter(|cache| cache.level == before && cache.holds_data());
        let used = all.filter(|cache| cache.cpus.iter().any(|cpu| is_used(&cpu)));
        let held = used.fold(0u64, |held, cache| held.saturating_add(cache.size.0));
        Bytes(if is_beside(own.size.0 as f64, held as f64) { held } else { 0 })
    }

    /// Bytes of all the last-level caches that these CPUs see, each counted once, with those before that they hold nothing of;
    /// `None` when one of them sees none.
    pub fn last_level_bytes(&self, cpus: &CpuSet) -> Option<Bytes> {
        let mut seen: Vec<&Cache> = Vec::new();
        let mut bytes = 0u64;
        for cpu in cpus.iter() {
            let cache = self.last_level(cpu)?;
            if !seen.iter().any(|other| std::ptr::eq(*other, cache)) {
                seen.push(cache);
                bytes = bytes.saturating_add(cache.size.0).saturating_add(self.beside(cpu, cache.level, cpus).0);
            }
        }
        (!seen.is_empty()).then_some(Bytes(bytes))
    }

    /// Bytes of all the last-level caches that these CPUs may lie behind: as claimed, or in a virtual machine more.
    pub fn last_level_most(&self, cpus: &[u32]) -> Option<Bytes> {
        /// More than one cache of most processors has.
        const UNTOLD: Bytes = Bytes::mib(128);
        let claimed = self.last_level_bytes(&cpus.iter().copied().collect())?;
        let hidden = if self.is_virtual() { self.last_levels_of_guest(cpus.len()) as u64 } else { 0 };
        let one = self.last_level(*cpus.first()?)?.size;
        let one = if self.has_caches_of_qemu(cpus[0]) { one.max(UNTOLD) } else { one };
        Some(Bytes(claimed.0.max(one.0.saturating_mul(hidden))))
    }

    /// Whether a virtual machine's caches are those that QEMU makes up where it is not told to pass on the host's (target/i386/cpu.c,
    /// `legacy_l2_cache`, `legacy_l2_cache_amd`, `legacy_l3_cache`). No processor has these two.
    pub fn has_caches_of_qemu(&self, cpu: u32) -> bool {
        let is = |cache: &Cache, size: Bytes| cache.size == size && cache.ways == Fact::Known(16);
        match self.data_caches(cpu)[..] {
            [_, second, third] => {
                let is_second = is(second, Bytes::mib(4)) || is(second, Bytes::kib(512));
                self.is_virtual() && is_second && is(third, Bytes::mib(16))
            }
            _ => false,
        }
    }

    /// Last-level caches that so many CPUs of a virtual machine may lie behind, whatever it is told: a package has one, or one for
    /// each of up to sixteen chiplets, and a guest lies on two packages at the most.
    pub fn last_levels_of_guest(&self, cpus: usize) -> usize {
        cpus.min(2 * if self.may_have_chiplets() { 16 } else { 1 })
    }

    /// Threads that may share a cache, whoever is said to. One where claims hold. In a virtual machine any two may share a core and its
    /// first level (its second one is large enough for the sets of both), and all of them a last level; of those in AMD's
    /// chiplets sixteen do, from Zen 5 on thirty-two: Zen 5c has sixteen cores behind one.
    pub fn hidden_sharers(&self, cache: &Cache) -> usize {
        if !self.is_virtual() {
            return 1;
        }
        let last = cache.cpus.first().and_then(|cpu| self.last_level(cpu)).map(|last| last.level);
        match cache.level {
            1 => 2,
            level if last != Some(level) => 1,
            _ => self.sharers_of_chiplet().unwrap_or(usize::MAX),
        }
    }

    /// Threads behind a last level of a processor of chiplets; elsewhere all may be behind one.
    fn sharers_of_chiplet(&self) -> Option<usize> {
        let is_of_amd = |vendor: &&String| ["AuthenticAMD", "HygonGenuine"].contains(&vendor.as_str());
        self.identity.vendor.known().filter(is_of_amd)?;
        let family = self.identity.signature.known().and_then(|signature| signature.split('/').next()?.parse().ok());
        Some(if family.is_some_and(|family: u32| family >= 26) { 32 } else { 16 })
    }

    /// Whether a package may have several last-level caches: all but Intel's may.
    pub fn may_have_chiplets(&self) -> bool {
        self.identity.vendor.known().is_none_or(|vendor| vendor != "GenuineIntel")
    }

    /// Packages with an online CPU; 0 when the kernel tells of none.
    pub fn packages(&self) -> usize {
        let packages = self.cpus.iter().filter_map(|cpu| cpu.package.get());
        packages.collect::<BTreeSet<u32>>().len()
    }

    /// The hardware threads of each core with an online CPU, each core once, by first CPU.
    pub fn cores(&self) -> Vec<&CpuSet> {
        let mut cores: Vec<&CpuSet> = self.cpus.iter().filter(|cpu| cpu.online).map(|cpu| &cpu.core_cpus).collect();
        cores.sort();
        cores.dedup();
        cores
    }

    /// The online CPUs of each kind of core, strongest first.
    pub fn kinds(&self) -> Vec<(CoreKind, CpuSet)> {
        let known: BTreeSet<CoreKind> = self.cpus.iter().filter_map(|cpu| cpu.kind.get()).collect();
        let members = |kind| self.cpus.iter().filter(move |cpu| cpu.kind.get() == Some(kind)).map(|cpu| cpu.id);
        known.into_iter().map(|kind| (kind, members(kind).collect())).collect()
    }
}
