//! Messages between real processes, under Open MPI and under MPICH: the same binary. Skipped where a launcher
//! is not installed. No time is asserted, only what was done and what was refused.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

use crate::common::launched::{Mpirun, text};
use crate::common::program::membound;
use crate::common::signals::send;
use crate::common::skip::skip;
use membound_core::case::Work;
use membound_core::record::world::Abi;
use membound_core::record::{Measured, Outcome, Record};
use membound_core::units::Bytes;
use membound_core::work::pingpong::{Buffers, MessageMode, MessagePath, PingPong};

const BOTH: [(Mpirun, Abi); 2] = [(Mpirun::OpenMpi, Abi::OpenMpi), (Mpirun::Mpich, Abi::Mpich)];

/// Variables by which a launcher tells a process who it is: a test may itself run under one.
const LAUNCHER: [&str; 5] = ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "PALS_RANKID", "SLURM_PROCID"];

/// The command without any launcher, but with these variables.
fn alone(variables: &[(&str, &str)], arguments: &[&str]) -> Output {
    let mut command = membound();
    LAUNCHER.iter().for_each(|name| {
        command.env_remove(name);
    });
    command.arg("pingpong").args(arguments).envs(variables.iter().copied()).output().unwrap()
}

/// Exit 2, nothing on stdout, and a message with each of `parts`, once.
fn refused(output: &Output, parts: &[&str]) {
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
    assert!(!stderr.contains("panicked"), "{stderr}");
    assert_eq!(stderr.matches("membound: ").count(), 1, "only one rank speaks: {stderr}");
    parts.iter().for_each(|part| assert!(stderr.contains(part), "'{part}' is not in: {stderr}"));
}

fn succeeded(output: &Output) -> String {
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

fn work(record: &Record) -> Vec<(&PingPong, Bytes, &Measured)> {
    let each = record.measurements.iter().map(|visit| {
        let Work::PingPong(work) = &visit.case.work else { panic!("{}", visit.case) };
        let Outcome::Measured(measured) = &visit.outcome else { panic!("{}: {:?}", visit.case, visit.outcome) };
        (work, visit.case.working_set, &**measured)
    });
    each.collect()
}

#[test]
fn one_binary_measures_under_both() {
    for (mpirun, abi) in BOTH {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("run.jsonl");
        let arguments =
            ["pingpong", "--size", "0,8,64KiB,1MiB", "--mode", "pingpong,one-way,exchange", "--budget", "3s"];
        let record = ["--record", file.to_str().unwrap()];
        let Some(output) = mpirun.run(2, &[&arguments[..], &record].concat()) else { continue };
        let table = succeeded(&output);
        let first = table.lines().next().unwrap();
        assert_eq!(table.lines().filter(|line| *line == first).count(), 1, "one rank prints, once: {table}");
        let record = Record::read(&file).unwrap();
        let world = record.header.world.as_ref().unwrap();
        assert_eq!((world.library.abi, world.ranks, world.hosts.len()), (abi, 2, 1), "{world:?}");
        assert!(world.library.version.contains(abi.word()), "{world:?}");
        assert!(record.end.is_some());
        let visits = work(&record);
        assert!(!visits.is_empty(), "how many of the cases there was time for is not asserted");
        for (work, Bytes(size), measured) in visits {
            let [seats] = work.pairs[..] else { panic!("{work:?}") };
            assert!(seats[0] != seats[1] && seats[0].host == 0 && !work.oversubscribed, "{work:?}");
            assert_eq!(measured.samples.pair_ticks, std::slice::from_ref(&measured.samples.ticks));
            assert_eq!(measured.samples.migrations.iter().sum::<u32>(), 0);
            let (elements, messages) = match work.mode {
                MessageMode::PingPong => (2, 2),
                MessageMode::OneWay => (1, 1),
                MessageMode::Exchange => (1, 2),
            };
            assert_eq!((measured.volume.units, measured.volume.stored), (elements, messages * size));
        }
    }
}

#[test]
fn several_pairs_sit_on_cpus_of_their_own() {
    let cpus = membound_measure::machine::live().usable_cpus();
    if cpus.len() < 4 {
        skip(format!("two pairs need four CPUs, and {} can be used", cpus.len()));
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.jsonl");
    let arguments = ["pingpong", "--size", "8", "--budget", "2s", "--record", file.to_str().unwrap()];
    let Some(output) = Mpirun::Mpich.run(4, &arguments) else { return };
    succeeded(&output);
    let record = Record::read(&file).unwrap();
    for (work, _, measured) in work(&record) {
        let cpus: BTreeSet<u32> = work.pairs.iter().flatten().filter_map(|seat| seat.cpu).collect();
        assert_eq!(cpus.len(), 2 * work.pairs.len());
        assert_eq!(measured.samples.pair_ticks.len(), work.pairs.len());
    }
}

#[test]
fn rotating_buffers_are_larger_than_the_cache() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.jsonl");
    let arguments = ["pingpong", "--size", "4KiB", "--buffers", "rotating,same,in-place", "--budget", "6s", "--record"];
    let Some(output) = Mpirun::Mpich.run(2, &[&arguments[..], &[file.to_str().unwrap()]].concat()) else { return };
    if text(&output.stderr).contains("may be used") {
        skip("too little memory for buffers beyond this machine's caches");
        return;
    }
    succeeded(&output);
    let record = Record::read(&file).unwrap();
    let visits = work(&record);
    assert_eq!(visits.iter().map(|(work, ..)| work.buffers).collect::<BTreeSet<_>>().len(), 3);
    let machine = &record.header.machine;
    for (work, _, measured) in visits {
        let cache = machine.last_level(work.pairs[0][0].cpu.unwrap()).map_or(0, |cache| cache.size.0);
        match work.buffers {
            Buffers::Same | Buffers::InPlace => assert_eq!(work.pool, Bytes(0)),
            Buffers::Rotating => assert!(work.pool.0 >= cache && measured.obtained.bytes.0 >= 4 * cache, "{work:?}"),
        }
    }
}

#[test]
fn more_ranks_than_cpus_are_refused_or_flagged() {
    for (mpirun, _) in BOTH {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("run.jsonl");
        let own = membound_measure::machine::live().usable_cpus().first().unwrap().to_string();
        let arguments = ["pingpong", "--size", "8", "--samples", "3", "--budget", "3s", "--cpus", &own, "--record"];
        let arguments = [&arguments[..], &[file.to_str().unwrap()]].concat();
        let Some(output) = mpirun.run(2, &arguments) else { continue };
        refused(&output, &["2 processes and 1 CPU(s)", "--oversubscribe"]);
        assert!(!file.exists(), "nothing was begun");
        let output = mpirun.run(2, &[&arguments[..], &["--oversubscribe"]].concat()).unwrap();
        assert!(succeeded(&output).contains("oversubscribed"), "{}", text(&output.stdout));
        let record = Record::read(&file).unwrap();
        let visits = work(&record);
        assert!(!visits.is_empty() && visits.iter().all(|(work, ..)| work.oversubscribed));
    }
}

#[test]
fn what_makes_no_pairs_is_refused() {
    for (mpirun, _) in BOTH {
        let Some(output) = mpirun.run(1, &["pingpong", "--size", "8"]) else { continue };
        refused(&output, &["two processes", "mpirun -np 2"]);
        let all = ["pingpong", "--size", "8", "--oversubscribe"];
        refused(&mpirun.run(3, &all).unwrap(), &["3 processes make no pairs", "such as 2"]);
        refused(&mpirun.run(2, &[&all[..], &["--place", "network"]].concat()).unwrap(), &["on one host", "--host"]);
        refused(&mpirun.run(2, &[&all[..], &["--pairs", "2"]].concat()).unwrap(), &["2 pairs", "--pairs 1"]);
    }
}

#[test]
fn ranks_with_other_flags_are_told_apart() {
    for (mpirun, _) in BOTH {
        let parts: [(usize, &[&str]); 2] = [(1, &["pingpong", "--size", "8"]), (1, &["pingpong", "--size", "16"])];
        let Some(launched) = mpirun.start(&parts, &[]) else { continue };
        refused(&launched.finish(), &["rank 1", "--size 16`", "--size 8`", "same flags"]);
    }
}

#[test]
fn a_record_that_can_not_be_made_ends_all_ranks() {
    for (mpirun, _) in BOTH {
        let arguments = ["pingpong", "--size", "8", "--record", "/nonexistent/run.jsonl"];
        let Some(output) = mpirun.run(2, &arguments) else { continue };
        refused(&output, &["cannot create /nonexistent/run.jsonl"]);
    }
}

#[test]
fn the_plan_is_listed() {
    let Some(output) = Mpirun::Mpich.run(2, &["pingpong", "--list", "--size", "0..4", "--oversubscribe"]) else {
        return;
    };
    let list = succeeded(&output);
    assert!(list.contains("ranks 0-1") && list.ends_with("4 cases\n"), "{list}");
}

/// Whoever loses a rank loses nothing that was finished.
#[test]
fn a_rank_that_dies_ends_the_others_and_the_record_keeps_what_was_done() {
    for (mpirun, _) in BOTH {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("run.jsonl");
        let arguments = ["pingpong", "--size", "0..1MiB", "--budget", "60s", "--record", file.to_str().unwrap()];
        let Some(launched) = mpirun.start(&[(2, &arguments)], &[]) else { continue };
        let since = Instant::now();
        while lines(&file) < 4 {
            assert!(since.elapsed() < Duration::from_secs(60), "nothing was recorded");
            std::thread::sleep(Duration::from_millis(20));
        }
        send(libc::SIGKILL, launched.rank(1));
        assert!(!launched.finish().status.success());
        let record = Record::read(&file).unwrap();
        assert!(record.measurements.len() >= 3);
    }
}

fn lines(file: &Path) -> usize {
    std::fs::read_to_string(file).map_or(0, |text| text.lines().count())
}

#[test]
fn an_interrupt_keeps_what_is_finished() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.jsonl");
    let arguments = ["pingpong", "--size", "0..1MiB", "--budget", "60s", "--record", file.to_str().unwrap()];
    let Some(launched) = Mpirun::Mpich.start(&[(2, &arguments)], &[]) else { return };
    let since = Instant::now();
    while lines(&file) < 4 {
        assert!(since.elapsed() < Duration::from_secs(60), "nothing was recorded");
        std::thread::sleep(Duration::from_millis(20));
    }
    send(libc::SIGTERM, launched.rank(0));
    let output = launched.finish();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("every finished case is kept"), "{}", text(&output.stderr));
    let record = Record::read(&file).unwrap();
    assert!(record.end.is_some_and(|end| end.interrupted));
}

#[test]
fn the_thread_level_asked_for_is_on_record() {
    for (mpirun, _) in BOTH {
        let folder = tempfile::tempdir().unwrap();
        for level in ["single", "funneled"] {
            let file = folder.path().join(level);
            let arguments = ["pingpong", "--size", "8", "--mpi-threads", level, "--budget", "3s", "--record"];
            let Some(output) = mpirun.run(2, &[&arguments[..], &[file.to_str().unwrap()]].concat()) else { continue };
            succeeded(&output);
            assert_eq!(Record::read(&file).unwrap().header.world.unwrap().threads.word(), level);
        }
    }
}

#[test]
fn in_a_fleet_all_ranks_join() {
    for (mpirun, _) in BOTH {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out");
        let fleet = ["fleet", "run", "--out", out.to_str().unwrap(), "--", "pingpong", "--size", "8", "--budget", "3s"];
        let Some(output) = mpirun.run(2, &fleet) else { continue };
        assert!(succeeded(&output).contains("pingpong 1-1: 8 B take"), "{}", text(&output.stdout));
        let record = Record::read(&out.join("pingpong.jsonl")).unwrap();
        assert_eq!(record.header.world.as_ref().unwrap().ranks, 2);
        assert!(!work(&record).is_empty());
        refused(&mpirun.run(2, &fleet).unwrap(), &["holds the results of another run", "--out"]);
        let own_place = ["fleet", "run", "--", "pingpong", "--record", "x.jsonl"];
        refused(&mpirun.run(2, &own_place).unwrap(), &["leave --record out of the plan"]);
    }
}

#[test]
fn without_a_launcher_it_says_how_to() {
    refused(&alone(&[], &[]), &["mpirun -np 2 membound pingpong", "srun"]);
    // A batch script has a rank, but no peers.
    refused(&alone(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")], &[]), &["mpirun -np 2"]);
}

#[test]
fn libraries_that_are_missing_or_no_mpi_are_told() {
    let launched = |library| [("PMI_RANK", "0"), ("PMI_SIZE", "2"), ("MEMBOUND_MPI", library)];
    refused(
        &alone(&launched("/nonexistent/libmpi.so"), &[]),
        &["/nonexistent/libmpi.so: cannot open", "LD_LIBRARY_PATH"],
    );
    refused(&alone(&launched("libm.so.6"), &[]), &["libm.so.6 is no MPI", "no MPI_Get_library_version"]);
    // Other ranks leave it to the first to tell.
    let second = [("PMI_RANK", "1"), ("PMI_SIZE", "2"), ("MEMBOUND_MPI", "libm.so.6")];
    let output = alone(&second, &[]);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(2), String::new()));
}

/// A library that does not know this launcher starts a world of one process each.
#[test]
fn a_library_of_another_launcher_is_told() {
    if Mpirun::OpenMpi.find().is_none() {
        return;
    }
    let parts: [(usize, &[&str]); 1] = [(2, &["pingpong", "--size", "8"])];
    // Where two of its processes that nobody started together make their folder at once, one fails; and whoever ends removes it where
    // it holds no folder.
    let folder = tempfile::tempdir().unwrap();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let host = host.trim().split('.').next().unwrap();
    let user = folder.path().metadata().unwrap().uid();
    std::fs::create_dir_all(folder.path().join(format!("ompi.{host}.{user}/kept"))).unwrap();
    let variables = [("MEMBOUND_MPI", "libmpi.so.40"), ("TMPDIR", folder.path().to_str().unwrap())];
    let Some(launched) = Mpirun::Mpich.start(&parts, &variables) else { return };
    refused(&launched.finish(), &["(PMI) started 2 processes", "sees 1", "MEMBOUND_MPI"]);
}

#[test]
fn paths_are_words_of_the_plan() {
    let words: Vec<&str> = MessagePath::ALL.iter().map(|path| path.word()).collect();
    assert_eq!(words, ["same cache", "same package", "other package", "network"]);
}
