//! Who takes part: what each rank says of itself at the start, and what rank 0 makes of it.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::experiments::pingpong::words::{pause, receive, send, tag};
use crate::mpi::{Mpi, MpiError};
use crate::os::arguments;
use membound_core::experiments::pingpong::{Host, Slot};
use membound_core::machine::Machine;
use membound_core::machine::cpuset::CpuSet;
use membound_core::machine::room;
use membound_core::record::Clock;
use membound_core::units::Bytes;

/// Ranks that have not spoken for so long will not: they run something else.
const PATIENCE: Duration = Duration::from_secs(20);
/// Without any known cache: more than any last-level cache of a single core complex.
const CACHE_UNKNOWN: Bytes = Bytes::mib(32);

/// A rank's greeting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// Name and version of the program, and the bytes of its file: builds differ too.
    pub tool: String,
    /// Its arguments, without the program's name.
    pub arguments: Vec<String>,
    /// Host name.
    pub host: String,
    /// What tells one start of an operating system from any other: containers of one host have names of their own, and
    /// hosts may be called alike. The host name where the kernel does not tell.
    pub boot: String,
    /// CPUs that it may use.
    pub slots: Vec<Slot>,
    /// The largest of their last-level caches.
    pub last_level: Bytes,
    /// Memory that ranks of this host may use together.
    pub memory_limit: Bytes,
    /// Ticks a second of its clock.
    pub clock_hz: f64,
}

/// Why the ranks can't work together; the text names the cure.
#[derive(Debug, thiserror::Error)]
pub enum GatherError {
    /// Another program, or other flags.
    #[error(
        "rank {rank} on {host} runs `{theirs}`, and rank 0 runs `{ours}`: start the same program with the same flags \
         everywhere"
    )]
    Differs {
        /// The rank.
        rank: usize,
        /// Its host.
        host: String,
        /// What it runs.
        theirs: String,
        /// What rank 0 runs.
        ours: String,
    },
    /// What it says makes no sense here.
    #[error("rank {rank} runs another version of membound than rank 0; start the same program everywhere")]
    Foreign {
        /// The rank.
        rank: usize,
    },
    /// Some never spoke.
    #[error(
        "{missing} of {size} processes said nothing within {} s, rank {first} first: start `membound pingpong` with the same \
         flags in all of them",
        PATIENCE.as_secs()
    )]
    Silent {
        /// How many.
        missing: usize,
        /// Ranks there are.
        size: usize,
        /// The first of them.
        first: usize,
    },
    /// MPI failed.
    #[error(transparent)]
    Mpi(#[from] MpiError),
}

impl Hello {
    /// What this rank says of itself; `cpus` are those that the user allows, all where none are named.
    pub fn new(machine: &Machine, cpus: Option<&CpuSet>, clock: &Clock) -> Self {
        let host = crate::os::machine::host_name();
        let boot = Some(crate::os::machine::boot_id()).filter(|boot| !boot.is_empty());
        let file = std::env::current_exe().and_then(std::fs::metadata).map_or(0, |file| file.len());
        let usable = machine.usable_cpus();
        let usable = cpus.map_or_else(|| usable.clone(), |cpus| usable.intersection(cpus));
        let caches = usable.iter().filter_map(|cpu| machine.last_level(cpu)).map(|cache| cache.size);
        Hello {
            tool: format!("membound {} ({file} bytes)", env!("CARGO_PKG_VERSION")),
            arguments: arguments::command_line().into_iter().skip(1).collect(),
            boot: boot.unwrap_or_else(|| host.clone()),
            host,
            slots: machine.topology_order(&usable).into_iter().map(|cpu| slot(machine, cpu)).collect(),
            last_level: caches.max().unwrap_or(CACHE_UNKNOWN),
            memory_limit: room::allowance(machine.available_memory().get()),
            clock_hz: clock.hz.0,
        }
    }

    fn runs(&self) -> String {
        format!("{} {}", self.tool, self.arguments.join(" "))
    }
}

fn slot(machine: &Machine, cpu: u32) -> Slot {
    let known = machine.cpu(cpu);
    let package = known.and_then(|cpu| cpu.package.get()).unwrap_or(0);
    let thread = known.map_or(0, |known| known.core_cpus.iter().filter(|other| *other < cpu).count() as u32);
    let cache = machine.last_level(cpu).and_then(|cache| cache.cpus.first()).unwrap_or(package);
    let core = known.and_then(|known| known.core_cpus.first()).unwrap_or(cpu);
    Slot { thread, package, cache, core, cpu }
}

/// Any other rank: says who it is.
pub fn greet(mpi: &Mpi, own: &Hello) -> Result<(), MpiError> {
    send(mpi, own, 0, tag::HELLO)
}

/// Rank 0: hears all, in the order of ranks, itself first. Whatever one of them says, the others are heard too: who is
/// not heard can't be told to leave.
///
/// # Errors
/// Where one of them is another program or has other flags, or does not speak.
pub fn gather(mpi: &Mpi, own: Hello) -> Result<Vec<Hello>, GatherError> {
    let (since, size) = (Instant::now(), mpi.size());
    let mut said: Vec<Option<Option<Hello>>> = vec![None; size];
    if let Some(first) = said.first_mut() {
        *first = Some(Some(own.clone()));
    }
    while let Some(first) = said.iter().position(Option::is_none) {
        if let Some(waiting) = mpi.probe(tag::HELLO)? {
            let words = receive(mpi, waiting.bytes, waiting.from, tag::HELLO)?;
            said.get_mut(waiting.from).into_iter().for_each(|place| *place = Some(words.clone()));
        } else if since.elapsed() > PATIENCE {
            let missing = said.iter().filter(|words| words.is_none()).count();
            return Err(GatherError::Silent { missing, size, first });
        } else {
            pause(since);
        }
    }
    said.into_iter().flatten().enumerate().map(|(rank, hello)| checked(rank, hello, &own)).collect()
}

fn checked(rank: usize, hello: Option<Hello>, own: &Hello) -> Result<Hello, GatherError> {
    let hello = hello.ok_or(GatherError::Foreign { rank })?;
    if (&hello.tool, &hello.arguments) == (&own.tool, &own.arguments) {
        return Ok(hello);
    }
    Err(GatherError::Differs { rank, theirs: hello.runs(), ours: own.runs(), host: hello.host })
}

/// The hosts by their ranks' greetings, that of rank 0 first. Ranks that a launcher has bound to CPUs of their own may sit
/// on each other's: all have been given to this job.
pub fn hosts(greetings: &[Hello]) -> Vec<Host> {
    let mut hosts: Vec<(&str, Host)> = Vec::new();
    for (rank, hello) in greetings.iter().enumerate() {
        let at = hosts.iter().position(|(boot, _)| *boot == hello.boot).unwrap_or_else(|| {
            let host = Host {
                name: hello.host.clone(),
                ranks: Vec::new(),
                slots: Vec::new(),
                last_level: hello.last_level,
                memory_limit: hello.memory_limit,
            };
            hosts.push((&hello.boot, host));
            hosts.len() - 1
        });
        let host = &mut hosts[at].1;
        host.ranks.push(rank);
        host.slots.extend(&hello.slots);
        host.last_level = host.last_level.max(hello.last_level);
        host.memory_limit = host.memory_limit.min(hello.memory_limit);
    }
    let tidy = |(_, mut host): (&str, Host)| {
        host.slots.sort_unstable();
        host.slots.dedup_by_key(|slot| slot.cpu);
        host
    };
    hosts.into_iter().map(tidy).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(host: &str, boot: &str, cpus: &[u32]) -> Hello {
        let slot = |&cpu: &u32| Slot { thread: 0, package: 0, cache: 0, core: cpu, cpu };
        Hello {
            tool: "membound 1".into(),
            arguments: vec!["pingpong".into()],
            host: host.into(),
            boot: boot.into(),
            slots: cpus.iter().map(slot).collect(),
            last_level: Bytes::mib(32),
            memory_limit: Bytes::gib(u64::from(cpus[0]) + 1),
            clock_hz: 2e9,
        }
    }

    #[test]
    fn other_programs_and_other_flags_are_refused() {
        let own = hello("a", "x", &[0]);
        assert!(checked(1, Some(hello("b", "y", &[3])), &own).is_ok(), "hosts may differ");
        let check = |other: Option<Hello>, expect: &str| {
            let fault = checked(1, other, &own).unwrap_err().to_string();
            assert!(fault.contains(expect), "{fault}");
        };
        check(Some(Hello { tool: "membound 2".into(), ..own.clone() }), "rank 1 on a runs `membound 2 pingpong`");
        check(Some(Hello { arguments: vec!["-q".into()], ..own.clone() }), "rank 0 runs `membound 1 pingpong`");
        check(None, "another version");
    }

    #[test]
    fn ranks_of_one_boot_share_a_host_whatever_it_is_called() {
        let found = hosts(&[hello("a", "x", &[1]), hello("a", "y", &[0, 1]), hello("container", "x", &[0])]);
        assert_eq!(found.len(), 2);
        assert_eq!((&found[0].name[..], &found[0].ranks[..]), ("a", &[0, 2][..]));
        assert_eq!((&found[1].name[..], &found[1].ranks[..]), ("a", &[1][..]));
        let cpus: Vec<u32> = found[0].slots.iter().map(|slot| slot.cpu).collect();
        assert_eq!(cpus, [0, 1], "each given to another rank");
        assert_eq!(found[0].memory_limit, Bytes::gib(1), "the tightest of its ranks'");
    }
}
