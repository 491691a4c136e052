//! What this process may use of the machine: affinity, cpusets, and memory and CPU limits of control groups.
//!
//! A control group limits all groups below it, so every group from the process's own up to the root is read, and the
//! one that leaves least counts. Version 1 has one tree for each controller, version 2 one for all; a machine may mount
//! both. In a container the mounted tree may begin below the root; what lies above cannot be seen.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::machine::cpuset::CpuSet;
use crate::machine::fact::Fact;
use crate::machine::pages::meminfo;
use crate::machine::source::Source;
use crate::units::Bytes;

/// A memory limit at or above this is no limit: version 1 writes the largest page-aligned number.
const UNLIMITED: u64 = 1 << 60;

/// What this process may use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Limits {
    /// CPUs that the process may run on (affinity within the cpuset).
    pub allowed_cpus: Fact<CpuSet>,
    /// Nodes that the process may have memory on.
    pub allowed_nodes: Fact<CpuSet>,
    /// CPUs of the process's cpuset.
    pub cpuset_cpus: Fact<CpuSet>,
    /// Nodes of the process's cpuset.
    pub cpuset_nodes: Fact<CpuSet>,
    /// Memory limits: of control groups, from the process's own upwards, then of the process itself (`ulimit -v`, `ulimit -d`).
    /// Empty where none is set.
    pub memory: Fact<Vec<MemoryLimit>>,
    /// CPU time limits, from the process's own control group upwards. Empty when no group sets one.
    pub cpu_time: Fact<Vec<CpuTimeLimit>>,
}

/// The memory limit of a control group, or of the process, bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryLimit {
    /// Path of the group in its tree; for the process's own limit, the command that shows it.
    pub group: String,
    /// What its processes may have together.
    pub limit: Bytes,
    /// What they have, page cache included.
    pub used: Fact<Bytes>,
    /// Page cache not used lately, which the kernel gives up before it denies memory.
    pub inactive_file: Fact<Bytes>,
}

/// The CPU time limit of a control group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuTimeLimit {
    /// Path of the group in its tree.
    pub group: String,
    /// CPUs' worth of time that its processes may have together; 1.5 is a CPU and a half.
    pub cpus: f64,
}

impl MemoryLimit {
    /// Whose limit it is, in words.
    pub fn whose(&self) -> String {
        if self.group.starts_with('/') { format!("the control group {}", self.group) } else { self.group.clone() }
    }

    /// What its processes can have more: the limit less what is used and cannot be given up.
    pub fn headroom(&self) -> Fact<Bytes> {
        self.used.clone().map(|used| {
            let kept = used.0.saturating_sub(self.inactive_file.get().unwrap_or_default().0);
            Bytes(self.limit.0.saturating_sub(kept))
        })
    }
}

pub(crate) fn read(source: &Source) -> Limits {
    const STATUS: &str = "proc/self/status";
    let status = source.text(STATUS);
    let allowed = |name: &str| {
        status.clone().and_then(|text| {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            let set = value.and_then(|value| CpuSet::parse(value).ok()).filter(|set| !set.is_empty());
            Fact::from_option(set, || format!("/{STATUS} has no {name}"))
        })
    };
    let groups = Groups::read(source);
    Limits {
        allowed_cpus: allowed("Cpus_allowed_list"),
        allowed_nodes: allowed("Mems_allowed_list"),
        cpuset_cpus: groups.cpuset(source, ["cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"]),
        cpuset_nodes: groups.cpuset(source, ["cpuset.mems.effective", "cpuset.effective_mems", "cpuset.mems"]),
        memory: with_own(groups.memory(source), source),
        cpu_time: groups.cpu_time(source),
    }
}

/// Memory limits alone.
pub(crate) fn memory(source: &Source) -> Fact<Vec<MemoryLimit>> {
    with_own(Groups::read(source).memory(source), source)
}

/// Limits of groups, and those of the process, which count what it has mapped.
fn with_own(groups: Fact<Vec<MemoryLimit>>, source: &Source) -> Fact<Vec<MemoryLimit>> {
    let (limits, status) = (source.text("proc/self/limits"), source.text("proc/self/status"));
    let own = |(name, used, command): (&str, &str, &str)| {
        let limit = limits.known()?.lines().find_map(|line| line.strip_prefix(name))?;
        let limit = limit.split_whitespace().next()?.parse().ok().filter(|bytes| *bytes < UNLIMITED)?;
        let path = "proc/self/status";
        let used = meminfo(&status, path, used);
        Some(MemoryLimit { group: command.into(), limit: Bytes(limit), used, inactive_file: Fact::Known(Bytes(0)) })
    };
    let own: Vec<MemoryLimit> =
        [("Max address space", "VmSize", "ulimit -v"), ("Max data size", "VmData", "ulimit -d")]
            .into_iter()
            .filter_map(own)
            .collect();
    match groups {
        Fact::Known(groups) => Fact::Known(groups.into_iter().chain(own).collect()),
        absent if own.is_empty() => absent,
        Fact::Absent { .. } => Fact::Known(own),
    }
}

/// Where control groups are mounted, and which groups the process is in.
struct Groups {
    mounts: Fact<Vec<Mount>>,
    /// Lines of `/proc/self/cgroup`: controllers (none for version 2) and path.
    paths: Vec<(Vec<String>, String)>,
    /// `/proc/self/cpuset`: the path in whichever tree has the cpuset controller.
    cpuset_path: Option<String>,
}

/// A mounted tree of control groups.
struct Mount {
    version: u32,
    /// Controllers of version 1, among other mount options.
    options: Vec<String>,
    /// The group that is mounted.
    top: String,
    /// Where, relative to the root folder.
    folder: String,
}

/// The groups from a process's own up to the top of a tree: path in the tree, and folder.
type Chain = Vec<(String, String)>;

impl Groups {
    fn read(source: &Source) -> Self {
        let mounts = source.text("proc/self/mountinfo").map(|text| text.lines().filter_map(mountinfo).collect());
        let old = || source.text("proc/mounts").map(|text| text.lines().filter_map(mounts_line).collect());
        let paths = source.text("proc/self/cgroup").known().cloned().unwrap_or_default();
        Groups {
            mounts: mounts.or_else(old),
            paths: paths.lines().filter_map(cgroup_line).collect(),
            cpuset_path: source.word("proc/self/cpuset").known().cloned(),
        }
    }

    /// The version of the tree that has a controller, and the process's groups in it. Version 1 goes first: a controller
    /// mounted there is not in the tree of version 2.
    fn chain(&self, controller: &str) -> Fact<(u32, Chain)> {
        self.mounts.as_ref().and_then(|mounts| {
            let has = |options: &[String]| options.iter().any(|option| option == controller);
            let first = mounts.iter().find(|mount| mount.version == 1 && has(&mount.options));
            let Some(mount) = first.or_else(|| mounts.iter().find(|mount| mount.version == 2)) else {
                return Fact::absent(format!("no control groups with a {controller} controller are mounted"));
            };
            let listed = self.paths.iter().find(|(controllers, _)| match mount.version {
                1 => has(controllers),
                _ => controllers.is_empty(),
            });
            let own = listed.map(|(_, path)| path.clone());
            let own = if controller == "cpuset" { self.cpuset_path.clone().or(own) } else { own };
            let Some(own) = own else {
                return Fact::absent(format!("/proc/self/cgroup names no group for {controller}"));
            };
            mount.chain(&own).map(|chain| (mount.version, chain))
        })
    }

    /// The set of the nearest group that has one.
    fn cpuset(&self, source: &Source, files: [&str; 3]) -> Fact<CpuSet> {
        self.chain("cpuset").and_then(|(_, chain)| {
            let paths = chain.iter().flat_map(|(_, folder)| files.map(|file| format!("{folder}/{file}")));
            let set = paths.map(|path| source.list(&path)).find(|set| set.known().is_some_and(|set| !set.is_empty()));
            set.unwrap_or_else(|| Fact::absent("no control group above this process has a cpuset"))
        })
    }

    fn memory(&self, source: &Source) -> Fact<Vec<MemoryLimit>> {
        self.chain("memory").and_then(|(version, chain)| {
            let [limit, used, inactive] = match version {
                1 => ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"],
                _ => ["memory.max", "memory.current", "inactive_file"],
            };
            if !chain.iter().any(|(_, folder)| source.text(&format!("{folder}/{limit}")).known().is_some()) {
                return no_such_file(&chain, limit);
            }
            let limits = chain.into_iter().filter_map(|(group, folder)| {
                // Beyond `memory.high` (version 2 alone) processes are slowed down until they give memory back.
                let set = |file: &str| source.number::<u64>(&format!("{folder}/{file}")).get();
                let bytes =
                    [limit, "memory.high"].into_iter().filter_map(set).filter(|bytes| *bytes < UNLIMITED).min()?;
                Some(MemoryLimit {
                    group,
                    limit: Bytes(bytes),
                    used: source.number(&format!("{folder}/{used}")).map(Bytes),
                    inactive_file: statistic(source, &format!("{folder}/memory.stat"), inactive),
                })
            });
            Fact::Known(limits.collect())
        })
    }

    fn cpu_time(&self, source: &Source) -> Fact<Vec<CpuTimeLimit>> {
        self.chain("cpu").and_then(|(version, chain)| {
            let quota = |folder: &str| match version {
                1 => {
                    let text = |file: &str| source.text(&format!("{folder}/cpu.cfs_{file}_us")).known().cloned();
                    Some(format!("{} {}", text("quota")?, text("period")?))
                }
                _ => source.text(&format!("{folder}/cpu.max")).known().cloned(),
            };
            let quotas: Vec<_> = chain.iter().map(|(group, folder)| (group, quota(folder))).collect();
            if quotas.iter().all(|(_, quota)| quota.is_none()) {
                return no_such_file(&chain, if version == 1 { "cpu.cfs_quota_us" } else { "cpu.max" });
            }
            let limits = quotas
                .into_iter()
                .filter_map(|(group, text)| Some(CpuTimeLimit { group: group.clone(), cpus: cpus_of_quota(&text?)? }));
            Fact::Known(limits.collect())
        })
    }
}

fn no_such_file<T>(chain: &Chain, file: &str) -> Fact<T> {
    let group = chain.first().map_or("", |(_, folder)| folder.as_str());
    Fact::absent(format!("neither /{group} nor a group above it has a {file}"))
}

impl Mount {
    /// The groups from `own` up to the top of this mount.
    fn chain(&self, own: &str) -> Fact<Chain> {
        let top = self.top.trim_end_matches('/');
        let below = own.strip_prefix(top).filter(|below| below.is_empty() || below.starts_with('/'));
        // A path that climbs belongs to a group outside this process's view of the tree.
        let outside = own.split('/').any(|part| part == "..") || self.folder.split('/').any(|part| part == "..");
        let Some(below) = below.filter(|_| !outside) else {
            return Fact::absent(format!("the control group {own} lies outside the tree mounted at /{}", self.folder));
        };
        let parts: Vec<&str> = below.split('/').filter(|part| !part.is_empty()).collect();
        let chain = (0..=parts.len()).rev().map(|depth| {
            let path: String = parts[..depth].iter().map(|part| format!("/{part}")).collect();
            let group = format!("{top}{path}");
            (if group.is_empty() { "/".into() } else { group }, format!("{}{path}", self.folder))
        });
        Fact::Known(chain.collect())
    }
}

/// `31 23 0:28 /top /folder rw,relatime - cgroup cgroup rw,memory`
fn mountinfo(line: &str) -> Option<Mount> {
    let (left, right) = line.split_once(" - ")?;
    let left: Vec<&str> = left.split(' ').collect();
    let right: Vec<&str> = right.split(' ').collect();
    mount(right.first()?, left.get(3)?, left.get(4)?, right.get(2)?)
}

/// `cgroup /folder cgroup rw,memory 0 0`; the mounted group is not told, and is the root outside containers.
fn mounts_line(line: &str) -> Option<Mount> {
    let parts: Vec<&str> = line.split(' ').collect();
    mount(parts.get(2)?, "/", parts.get(1)?, parts.get(3)?)
}

fn mount(kind: &str, top: &str, folder: &str, options: &str) -> Option<Mount> {
    let version = match kind {
        "cgroup" => 1,
        "cgroup2" => 2,
        _ => return None,
    };
    let options = options.split(',').map(String::from).collect();
    Some(Mount { version, options, top: top.into(), folder: folder.trim_matches('/').into() })
}

/// `4:memory:/path` or `0::/path`
fn cgroup_line(line: &str) -> Option<(Vec<String>, String)> {
    let mut parts = line.splitn(3, ':').skip(1);
    let controllers = parts.next()?.split(',').filter(|name| !name.is_empty()).map(String::from).collect();
    Some((controllers, parts.next()?.into()))
}

/// `max 100000` (version 2) and `-1 100000` (version 1) set no limit; `150000 100000` is 1.5 CPUs.
fn cpus_of_quota(text: &str) -> Option<f64> {
    let (quota, period) = text.split_once(' ')?;
    let (quota, period): (u64, u64) = (quota.parse().ok()?, period.trim().parse().ok()?);
    (period > 0).then(|| quota as f64 / period as f64)
}

/// A line `name number` of a statistics file.
fn statistic(source: &Source, path: &str, name: &str) -> Fact<Bytes> {
    source.text(path).and_then(|text| {
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok());
        Fact::from_option(value.map(Bytes), || format!("/{path} has no {name}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas() {
        let check = |text: &str, expect: Option<f64>| assert_eq!(cpus_of_quota(text), expect, "{text}");
        check("150000 100000", Some(1.5));
        check("max 100000", None);
        check("-1 100000", None);
        check("5 0", None);
        check("", None);
    }

    #[test]
    fn chains_climb_to_the_top_of_the_mount() {
        let check = |top: &str, own: &str, expect: &[(&str, &str)]| {
            let mount = mount("cgroup2", top, "/sys/fs/cgroup", "rw").unwrap();
            let expect: Chain = expect.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect();
            assert_eq!(mount.chain(own), Fact::Known(expect), "{top} {own}");
        };
        check("/", "/a/b", &[("/a/b", "sys/fs/cgroup/a/b"), ("/a", "sys/fs/cgroup/a"), ("/", "sys/fs/cgroup")]);
        check("/box", "/box", &[("/box", "sys/fs/cgroup")]);
        check("/box", "/box/a", &[("/box/a", "sys/fs/cgroup/a"), ("/box", "sys/fs/cgroup")]);
        for own in ["/other", "/boxes", "/box/../x"] {
            assert!(mount("cgroup2", "/box", "/sys/fs/cgroup", "rw").unwrap().chain(own).known().is_none(), "{own}");
        }
    }

    #[test]
    fn mounts_are_read() {
        let line = "35 31 0:32 /top /sys/fs/cgroup/memory rw,relatime shared:1 - cgroup cgroup rw,memory";
        let mount = mountinfo(line).unwrap();
        assert_eq!((mount.version, mount.top.as_str(), mount.folder.as_str()), (1, "/top", "sys/fs/cgroup/memory"));
        assert!(mount.options.contains(&"memory".to_string()));
        assert!(mountinfo("1 2 0:3 / / rw - ext4 /dev/sda rw").is_none());
    }
}
