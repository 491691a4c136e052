//! Fifty system calls that fail, in starting, mapping, opening, renaming and waiting: whichever it is, the command ends in its
//! time with an exit code, and says what happened.

use std::panic::resume_unwind;
use std::path::Path;
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use crate::common::seccomp::{Where, refuse};
use crate::robust::{PATIENCE, membound, p, recorded, run};

/// What a command is to do.
#[derive(Clone, Copy)]
enum Doing {
    Latency,
    Threads,
    File,
    Check,
    Redraw,
    Everything,
}

const ALL: Where = Where::All;
/// Opening to create.
const NEW: Where = Where::Bits(2, libc::O_CREAT as u32);
/// More memory than the loader of a program maps at once.
const LARGE: Where = Where::Least(1, 24 << 20);
/// Making memory executable.
const CODE: Where = Where::Bits(2, libc::PROT_EXEC as u32);

/// The call, its error, of which calls, and what is done meanwhile.
type Fault = (libc::c_long, i32, Where, Doing);

const FAULTS: [Fault; 54] = [
    // Starting.
    (libc::SYS_clone3, libc::EAGAIN, ALL, Doing::Latency),
    (libc::SYS_clone3, libc::EAGAIN, ALL, Doing::Threads),
    (libc::SYS_clone3, libc::ENOMEM, ALL, Doing::Threads),
    (libc::SYS_clone3, libc::EPERM, ALL, Doing::Check),
    (libc::SYS_clone3, libc::EAGAIN, ALL, Doing::Everything),
    (libc::SYS_sched_setaffinity, libc::EINVAL, ALL, Doing::Latency),
    (libc::SYS_sched_setaffinity, libc::EPERM, ALL, Doing::Threads),
    (libc::SYS_sched_setaffinity, libc::EPERM, ALL, Doing::Everything),
    (libc::SYS_sched_getaffinity, libc::EPERM, ALL, Doing::Latency),
    (libc::SYS_rt_sigaction, libc::EINVAL, Where::Least(0, 15), Doing::Latency),
    (libc::SYS_sigaltstack, libc::ENOMEM, ALL, Doing::Threads),
    (libc::SYS_set_robust_list, libc::EPERM, ALL, Doing::Threads),
    // Mapping.
    (libc::SYS_mmap, libc::ENOMEM, LARGE, Doing::Latency),
    (libc::SYS_mmap, libc::ENOMEM, LARGE, Doing::Threads),
    (libc::SYS_mmap, libc::ENOMEM, LARGE, Doing::Everything),
    (libc::SYS_mmap, libc::EPERM, LARGE, Doing::File),
    (libc::SYS_mprotect, libc::EACCES, CODE, Doing::Latency),
    (libc::SYS_mprotect, libc::ENOMEM, CODE, Doing::Threads),
    (libc::SYS_mprotect, libc::EACCES, CODE, Doing::Check),
    (libc::SYS_madvise, libc::EINVAL, ALL, Doing::Latency),
    (libc::SYS_madvise, libc::ENOMEM, ALL, Doing::Everything),
    (libc::SYS_move_pages, libc::EPERM, ALL, Doing::Latency),
    (libc::SYS_munmap, libc::EINVAL, ALL, Doing::Threads),
    (libc::SYS_mremap, libc::ENOMEM, ALL, Doing::Redraw),
    // Opening.
    (libc::SYS_openat, libc::EACCES, NEW, Doing::Latency),
    (libc::SYS_openat, libc::EROFS, NEW, Doing::Check),
    (libc::SYS_openat, libc::ENOSPC, NEW, Doing::Redraw),
    (libc::SYS_openat, libc::EMFILE, NEW, Doing::Everything),
    (libc::SYS_openat, libc::ENFILE, NEW, Doing::File),
    (libc::SYS_openat, libc::EOPNOTSUPP, Where::Bits(2, 0o20_000_000), Doing::File),
    (libc::SYS_mkdir, libc::EACCES, ALL, Doing::Everything),
    (libc::SYS_statx, libc::EACCES, ALL, Doing::Redraw),
    (libc::SYS_statx, libc::EIO, ALL, Doing::Check),
    (libc::SYS_fallocate, libc::ENOSPC, ALL, Doing::File),
    (libc::SYS_getdents64, libc::EIO, ALL, Doing::Latency),
    // Writing and renaming.
    (libc::SYS_rename, libc::EACCES, ALL, Doing::Check),
    (libc::SYS_rename, libc::EXDEV, ALL, Doing::Redraw),
    (libc::SYS_rename, libc::EIO, ALL, Doing::Everything),
    (libc::SYS_fsync, libc::EIO, ALL, Doing::Check),
    (libc::SYS_fsync, libc::ENOSPC, ALL, Doing::Redraw),
    (libc::SYS_fchmod, libc::EPERM, ALL, Doing::Check),
    (libc::SYS_unlink, libc::EACCES, ALL, Doing::Check),
    (libc::SYS_write, libc::ENOSPC, Where::Least(2, 4096), Doing::Latency),
    (libc::SYS_write, libc::EIO, Where::Least(2, 4096), Doing::Redraw),
    (libc::SYS_write, libc::ENOSPC, Where::Least(2, 4096), Doing::Everything),
    // Waiting.
    (libc::SYS_flock, libc::ENOLCK, ALL, Doing::Check),
    (libc::SYS_flock, libc::EINTR, ALL, Doing::Check),
    (libc::SYS_flock, libc::EIO, ALL, Doing::Check),
    (libc::SYS_wait4, libc::ECHILD, ALL, Doing::Everything),
    (libc::SYS_clone, libc::EAGAIN, ALL, Doing::Everything),
    (libc::SYS_sched_yield, libc::ENOSYS, ALL, Doing::Threads),
    (libc::SYS_getrusage, libc::EINVAL, ALL, Doing::Latency),
    (libc::SYS_ioctl, libc::EPERM, ALL, Doing::Everything),
    (libc::SYS_getrandom, libc::ENOSYS, ALL, Doing::Redraw),
];

/// What is typed, and how many seconds of measuring are asked for.
fn typed(doing: Doing, base: &Path, folder: &Path) -> (Vec<String>, u64) {
    let at = |name: &str| folder.join(name).display().to_string();
    let and = |text: &str, more: &[(&str, String)]| {
        let more = more.iter().flat_map(|(flag, path)| [flag.to_string(), path.clone()]);
        text.split(' ').map(String::from).chain(more).collect::<Vec<String>>()
    };
    match doing {
        Doing::Latency => (and("latency --size 16KiB,32MiB --budget 2s", &[("--record", at("r.jsonl"))]), 2),
        Doing::Threads => {
            let copies = "bandwidth --size 256KiB,48MiB --kernel copy --budget 2s";
            (and(copies, &[("--record", at("r.jsonl"))]), 2)
        }
        Doing::File => {
            let copies = "bandwidth --memory file-shared --size 4MiB --threads 1 --kernel copy --budget 2s";
            (and(copies, &[("--dir", folder.display().to_string())]), 2)
        }
        Doing::Check => {
            let check = "check --spec grace --reach 1% --force --budget 2s";
            (and(check, &[("--lock", at("turn")), ("--prometheus", at("n.prom"))]), 6)
        }
        Doing::Redraw => (["report", p(base), "--out", p(folder)].map(String::from).into(), 0),
        Doing::Everything => (and("--budget 3s --cpus 0", &[("--out", at("out"))]), 3),
    }
}

/// Runs a command whose calls fail, which must end as it should; a line on how it did.
fn tried((call, errno, of, doing): Fault, base: &Path) -> String {
    let folder = tempfile::tempdir().unwrap();
    let (arguments, budget) = typed(doing, base, folder.path());
    let mut command = membound();
    refuse(command.args(&arguments), call, errno, of);
    let ended = run(&mut command);
    let fault = std::io::Error::from_raw_os_error(errno);
    let first = ended.stderr.lines().find(|line| line.starts_with("membound")).unwrap_or_default();
    let line = format!(
        "{call:4} {:24} {:34} {:?} {:5.1} s  {first}\n",
        arguments[0],
        fault.to_string(),
        ended.code(),
        ended.took.as_secs_f64()
    );
    assert!(ended.is_orderly(), "{line}{:?} {}", ended.status, ended.stderr);
    assert!(
        ended.code() == Some(0) || !ended.stderr.is_empty() || ended.stdout.contains("crashed"),
        "it says nothing: {line}"
    );
    // Twice: the machine is busy with other tests.
    assert!(ended.took < 2 * Duration::from_secs(budget + 10) && ended.took < PATIENCE, "{line}");
    line
}

#[test]
fn whatever_fails_a_command_ends_and_says_so() {
    const THREADS: usize = 3;
    let top = tempfile::tempdir().unwrap();
    let base = &recorded(top.path(), "base.jsonl");
    let work = |first: usize| FAULTS.iter().skip(first).step_by(THREADS).map(|fault| tried(*fault, base)).collect();
    let table: String = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|first| scope.spawn(move || work(first))).collect();
        // What a thread has panicked with is the test's own panic.
        let lines = |thread: ScopedJoinHandle<'_, String>| thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        threads.into_iter().map(lines).collect()
    });
    assert!(FAULTS.len() >= 50);
    // For whoever runs this test alone.
    eprintln!("{table}");
}
