//! Every memory kind: it is obtained with proofs that hold, or refused with a reason that names the cure; what is written
//! is read back; mapped again it is as it first was; taken away it ends a case, not the process; and nothing is left over.
//! Where this machine lacks what a test needs, the test says so and passes.
#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use std::{fs, io, ptr};

use membound_core::case::{Case, Protocol, Work, usual};
use membound_core::kernel::catalog::Kernel;
use membound_core::kernel::{StoreKind, Variant, Width};
use membound_core::memory::proof::Proof;
use membound_core::memory::{MemoryKind, MemorySpec};
use membound_core::record::Outcome;
use membound_core::units::Bytes;
use membound_measure::asm::assemble;
use membound_measure::code::{Call, Executable};
use membound_measure::executor::native::Native;
use membound_measure::memory::no_memory::NoMemory;
use membound_measure::memory::places::Places;
use membound_measure::memory::region::Region;
use membound_measure::memory::touch;
use membound_measure::os::faults::guard;
use membound_measure::os::thread;
use membound_measure::schedule::{Executor, Quota};

use crate::common::alone::alone;
use crate::common::skip::{skip, thread_of_test};
use MemoryKind as Kind;

const SIZE: Bytes = Bytes::kib(256);
const FILES: [Kind; 4] = [Kind::FilePrivate, Kind::FileShared, Kind::FilePrivateCold, Kind::FileSharedCold];
/// What must be had wherever the tests run.
const ALWAYS: [Kind; 8] = [
    Kind::Base,
    Kind::Thp,
    Kind::Heap,
    Kind::Shared,
    Kind::Memfd,
    Kind::Populated,
    Kind::FilePrivate,
    Kind::FileShared,
];

/// A folder on this package's disk, seen to be empty when it goes.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn places(&self) -> Places {
        Places { folder: self.path().into(), ..Places::default() }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let left: Vec<_> = fs::read_dir(self.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(std::thread::panicking() || left.is_empty(), "{left:?}");
    }
}

fn region(kind: Kind, places: &Places) -> Result<Region, NoMemory> {
    Region::new(MemorySpec::of(kind), SIZE, places)
}

/// The reason why there is no such memory.
fn refusal(kind: Kind, bytes: Bytes, places: &Places) -> String {
    match Region::new(MemorySpec::of(kind), bytes, places) {
        Ok(_) => panic!("{bytes} of {kind} were had"),
        Err(reason) => reason.to_string(),
    }
}

fn assert_has(text: &str, parts: &[&str]) {
    parts.iter().for_each(|part| assert!(text.contains(part), "'{part}' is not in: {text}"));
}

/// The proof that `by` gave.
fn proof(region: &Region, by: &str) -> Proof {
    let proofs = region.inspect(region.bytes()).proofs;
    let found = proofs.iter().find(|proof| proof.by == by).cloned();
    found.unwrap_or_else(|| panic!("no proof by {by}: {proofs:?}"))
}

/// Whether cold files stay cold there: file systems that keep pages of their own (ZFS, network file systems) may not.
fn drops_pages(region: &Region) -> bool {
    let found = proof(region, "statfs").seen;
    let known = ["ext4", "xfs", "btrfs"].contains(&found.as_str());
    if !known {
        skip(format!("whether {found} drops its pages is not known"));
    }
    known
}

#[test]
fn every_kind_is_obtained_with_proofs_or_refused_with_a_reason() {
    let _pool = pool();
    let folder = Folder::new();
    for &kind in Kind::ALL {
        match region(kind, &folder.places()) {
            Err(reason) => {
                println!("{kind}: {reason}");
                assert!(!ALWAYS.contains(&kind), "{kind}: {reason}");
                assert!(reason.to_string().contains("; "), "no cure: {reason}");
            }
            Ok(mut region) => {
                assert!(region.bytes() >= SIZE);
                let proofs = region.inspect(region.bytes()).proofs;
                println!("{kind}: {proofs:?}");
                let strict = !kind.is_cold() || drops_pages(&region);
                proofs.iter().for_each(|proof| assert!(proof.holds || !strict, "{kind}: {proof:?}"));
                region.words().iter_mut().enumerate().for_each(|(i, word)| *word = i as f64);
                assert!(region.words().iter().enumerate().all(|(i, word)| *word == i as f64), "{kind}");
            }
        }
    }
}

#[test]
fn more_than_an_address_space_is_refused() {
    let folder = Folder::new();
    for &kind in Kind::ALL {
        for bytes in [u64::MAX, u64::MAX - 4096, 1 << 62] {
            refusal(kind, Bytes(bytes), &folder.places());
        }
    }
}

#[test]
fn files_mapped_again_keep_what_was_shared_and_only_that() {
    let folder = Folder::new();
    for (kind, keeps) in [
        (Kind::FileShared, true),
        (Kind::FileSharedCold, true),
        (Kind::FilePrivate, false),
        (Kind::FilePrivateCold, false),
    ] {
        let Ok(mut region) = region(kind, &folder.places()) else {
            skip(format!("no {kind}"));
            continue;
        };
        let before = region.words().to_vec();
        if FILES.contains(&kind) {
            assert!(before.iter().all(|word| (1.0..2.0).contains(word)), "{kind}: the file has a hole");
        }
        region.words().fill(7.0);
        region.unmap();
        assert!(region.words().is_empty());
        region.map().unwrap();
        let expect = if keeps { vec![7.0; before.len()] } else { before };
        assert!(region.words() == expect, "{kind}");
    }
}

#[test]
fn files_that_are_memory_are_fresh_when_mapped_again() {
    let folder = Folder::new();
    for kind in [Kind::Memfd, Kind::Tmpfs] {
        let Ok(mut region) = region(kind, &folder.places()) else {
            skip(format!("no {kind}"));
            continue;
        };
        region.words().fill(7.0);
        region.unmap();
        region.map().unwrap();
        assert!(region.words().iter().all(|word| *word == 0.0), "{kind}");
    }
}

/// Open files in `folder`: they have no name there.
fn unnamed_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| fs::read_link(path).is_ok_and(|target| target.starts_with(folder))).collect()
}

/// Cuts all open files in `folder` to nothing.
fn truncate_files(folder: &Path) {
    let files = unnamed_files(folder);
    assert!(!files.is_empty());
    files.iter().for_each(|path| File::options().write(true).open(path).unwrap().set_len(0).unwrap());
}

#[test]
fn a_cold_file_that_can_t_be_dropped_says_so() {
    let folder = Folder::new();
    for kind in [Kind::FilePrivateCold, Kind::FileSharedCold] {
        let mut region = region(kind, &folder.places()).unwrap();
        if !drops_pages(&region) {
            return;
        }
        let mut again = || {
            region.words().fill(7.0);
            region.unmap();
            region.map().unwrap();
            proof(&region, "mincore")
        };
        assert!(again().holds, "{kind}: pages that were just used are dropped");
        let file = File::open(&unnamed_files(folder.path())[0]).unwrap();
        let (length, flags) = (SIZE.0 as usize, libc::MAP_SHARED | libc::MAP_POPULATE);
        // SAFETY: a fresh mapping at no fixed address.
        let held = unsafe { libc::mmap(ptr::null_mut(), length, libc::PROT_READ, flags, file.as_raw_fd(), 0) };
        assert_ne!(held, libc::MAP_FAILED);
        let proof = again();
        assert!(!proof.holds && proof.seen.starts_with("256 KiB of"), "{kind}: {proof:?}");
        // SAFETY: the mapping from above, to which nothing refers.
        unsafe { libc::munmap(held, length) };
    }
}

#[test]
fn a_file_on_the_wrong_file_system_is_no_proof() {
    let folder = Folder::new();
    let wrong = Places { tmpfs: folder.path().into(), folder: "/dev/shm".into(), ..Places::default() };
    let on_disk = region(Kind::Tmpfs, &wrong).unwrap();
    let found = proof(&on_disk, "statfs");
    assert_eq!(found.holds, found.seen == "tmpfs", "{found:?}");
    match region(Kind::FileShared, &wrong) {
        Ok(in_memory) => {
            let found = proof(&in_memory, "statfs");
            assert_eq!(found.holds, found.seen != "tmpfs", "{found:?}");
        }
        Err(fault) => skip(fault),
    }
}

#[test]
fn a_folder_that_can_t_be_used_is_named() {
    let missing = PathBuf::from("/nowhere/at/all");
    let places = Places {
        folder: missing.clone(),
        tmpfs: missing.clone(),
        dax: Some(missing.clone()),
        devices: missing,
        ..Places::default()
    };
    for kind in FILES {
        assert_has(&refusal(kind, SIZE, &places), &["/nowhere/at/all", "No such file", "--dir"]);
    }
    assert_has(&refusal(Kind::Tmpfs, SIZE, &places), &["/nowhere/at/all", "No such file", "tmpfs"]);
    assert_has(&refusal(Kind::Dax, SIZE, &places), &["/nowhere/at/all", "No such file", "--dax"]);
    assert_has(&refusal(Kind::DmaHeap, SIZE, &places), &["dma_heap/system is not", "CONFIG_DMABUF_HEAPS_SYSTEM"]);
    assert_has(&refusal(Kind::DmaHeapUncached, SIZE, &places), &["system-uncached is not there", "Android"]);
    assert_has(&refusal(Kind::Udmabuf, SIZE, &places), &["udmabuf is not there", "CONFIG_UDMABUF"]);
}

#[test]
fn a_node_that_is_not_there_is_a_reason() {
    let folder = Folder::new();
    for kind in ALWAYS {
        for (node, says) in [(1000, "node 1000"), (u32::MAX, "from 0 to 1023")] {
            let spec = MemorySpec::on(kind, node);
            let reason = Region::new(spec, SIZE, &folder.places()).unwrap_err().to_string();
            assert_has(&reason, &[says, "; "]);
        }
    }
}

#[test]
fn a_file_lies_on_the_node_asked_for() {
    let folder = Folder::new();
    for kind in FILES.into_iter().chain([Kind::Tmpfs, Kind::Memfd]) {
        let mut region = match Region::new(MemorySpec::on(kind, 0), SIZE, &folder.places()) {
            Ok(region) => region,
            Err(fault) => {
                skip(fault);
                continue;
            }
        };
        region.words().fill(1.0);
        let found = region.inspect(region.bytes()).pages_on_node;
        assert!(found.iter().all(|found| found.node == 0), "{kind}: {found:?}");
    }
}

#[test]
fn a_disk_without_room_is_told_before_it_is_filled() {
    let folder = Folder::new();
    for kind in FILES {
        let reason = refusal(kind, Bytes(1 << 60), &folder.places());
        assert_has(&reason, &[folder.path().to_str().unwrap(), "free", "are needed", "--size", "--dir"]);
    }
}

#[test]
fn dax_needs_a_folder_that_is_mapped_directly() {
    let folder = Folder::new();
    assert_has(&refusal(Kind::Dax, SIZE, &folder.places()), &["no folder", "--dax DIR"]);
    let places = Places { dax: Some(folder.path().into()), ..Places::default() };
    match region(Kind::Dax, &places) {
        Ok(region) => assert!(proof(&region, "statx").holds),
        Err(reason) => assert_has(&reason.to_string(), &["page cache", "dax=always", folder.path().to_str().unwrap()]),
    }
}

/// Runs `test` in a thread with mounts of its own; says why where that is not possible.
fn with_mounts(mounts: impl FnOnce() -> io::Result<()> + Send, test: impl FnOnce() + Send) {
    let separate = || -> io::Result<()> {
        // SAFETY: only this thread's view of the mounts changes.
        answered(unsafe { libc::unshare(libc::CLONE_NEWNS) })?;
        mount(c"none", Path::new("/"), c"", libc::MS_REC | libc::MS_PRIVATE, c"")?;
        mounts()
    };
    let run = || match separate() {
        Ok(()) => test(),
        Err(fault) => skip(format!("mounting takes root: {fault}")),
    };
    std::thread::scope(|scope| thread_of_test().spawn_scoped(scope, run).unwrap().join().unwrap());
}

fn answered(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn mount(from: &std::ffi::CStr, to: &Path, kind: &std::ffi::CStr, flags: u64, data: &std::ffi::CStr) -> io::Result<()> {
    let to = std::ffi::CString::new(to.to_str().unwrap()).unwrap();
    // SAFETY: all are C strings.
    answered(unsafe { libc::mount(from.as_ptr(), to.as_ptr(), kind.as_ptr(), flags, data.as_ptr().cast()) })
}

#[test]
fn a_full_memory_file_system_is_found_before_anything_is_touched() {
    let folder = Folder::new();
    let path = folder.path();
    let mounts = || mount(c"none", path, c"tmpfs", 0, c"size=1m");
    with_mounts(mounts, || {
        let places = Places { tmpfs: path.into(), ..folder.places() };
        let whole = Region::new(MemorySpec::of(Kind::Tmpfs), Bytes::mib(1), &places).unwrap();
        assert!(proof(&whole, "statfs").holds);
        // The blocks are taken, though nothing was touched.
        assert_has(&refusal(Kind::Tmpfs, Bytes::kib(4), &places), &["No space left", "smaller --size", "remount"]);
        drop(whole);
        assert_has(&refusal(Kind::Tmpfs, Bytes::mib(2), &places), &["No space left"]);
        region(Kind::Tmpfs, &places).unwrap().words().fill(1.0);
        assert_has(&refusal(Kind::FileShared, Bytes::mib(2), &places), &["tmpfs", "has 1 MiB free, 2 MiB are needed"]);
    });
}

#[test]
fn a_read_only_folder_is_a_reason() {
    let folder = Folder::new();
    let path = folder.path();
    let mounts = || mount(c"none", path, c"tmpfs", libc::MS_RDONLY, c"size=1m");
    with_mounts(mounts, || {
        let places = Places { tmpfs: path.into(), ..folder.places() };
        for kind in [Kind::Tmpfs, Kind::FilePrivate, Kind::FileSharedCold] {
            assert_has(&refusal(kind, SIZE, &places), &["Read-only file system", path.to_str().unwrap(), "folder"]);
        }
    });
}

/// The pool of 2 MiB pages belongs to one test at a time.
fn pool() -> MutexGuard<'static, ()> {
    static POOL: Mutex<()> = Mutex::new(());
    POOL.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn pool_pages(field: &str) -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_pool_without_free_pages_is_a_reason() {
    let _pool = pool();
    let more = Bytes::mib(2 * (pool_pages("HugePages_Free:") + 1));
    let surplus = fs::read_to_string("/proc/sys/vm/nr_overcommit_hugepages").unwrap_or_default();
    if surplus.trim() != "0" {
        return skip("the pool may grow");
    }
    assert_has(&refusal(Kind::Huge2M, more, &Places::default()), &["huge-2m", "vm.nr_hugepages"]);
    let tib = Bytes(1 << 40);
    assert_has(&refusal(Kind::Huge1G, tib, &Places::default()), &["huge-1g", "hugepagesz=1G"]);
}

const POOL: &str = "/proc/sys/vm/nr_hugepages";

/// Gives the pool its size back.
struct PoolSize(String);

impl Drop for PoolSize {
    fn drop(&mut self) {
        fs::write(POOL, &self.0).unwrap();
    }
}

impl PoolSize {
    /// A pool of 4 free pages, where it is empty and may be changed.
    fn four() -> Option<PoolSize> {
        let before = fs::read_to_string(POOL).unwrap_or_default();
        if before.trim() != "0" || fs::write(POOL, "4").is_err() {
            skip("the pool of huge pages is in use, or not ours to change");
            return None;
        }
        let size = PoolSize(before);
        if pool_pages("HugePages_Free:") < 4 {
            skip("no 4 huge pages can be had");
            return None;
        }
        Some(size)
    }
}

#[test]
fn pool_pages_once_mapped_can_t_be_taken_away() {
    let _pool = pool();
    let free = pool_pages("HugePages_Free:");
    let Some(size) = PoolSize::four() else { return };
    let mut region = Region::new(MemorySpec::of(Kind::Huge2M), Bytes::mib(4), &Places::default()).unwrap();
    fs::write(POOL, "0").unwrap();
    assert_eq!(pool_pages("HugePages_Rsvd:"), 2);
    touch::touch(&mut region, |bytes| bytes.fill(1)).unwrap();
    assert_eq!(region.inspect(region.bytes()).huge_bytes, Some(Bytes::mib(4)));
    drop((region, size));
    assert_eq!(pool_pages("HugePages_Free:"), free);
}

#[test]
fn a_huge_page_that_is_missing_is_replaced_whole() {
    const PAGE: usize = 2 << 20;
    let _pool = pool();
    let Some(_size) = PoolSize::four() else { return };
    // SAFETY: a new file, and a fresh mapping of two pages of it at no fixed address.
    let (file, start) = unsafe {
        let flags = libc::MFD_HUGETLB | libc::MFD_HUGE_2MB;
        let file = File::from_raw_fd(libc::memfd_create(c"huge".as_ptr(), flags));
        file.set_len(2 * PAGE as u64).unwrap();
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        (file.as_raw_fd(), libc::mmap(ptr::null_mut(), 2 * PAGE, protection, libc::MAP_SHARED, file.into_raw_fd(), 0))
    };
    assert_ne!(start, libc::MAP_FAILED);
    let words = start.cast::<f64>();
    // SAFETY: the file is ours and open; the range is the mapping above, to which nothing else refers, and the words
    // written lie in it.
    unsafe {
        words.write(5.0);
        libc::ftruncate(file, PAGE as libc::off_t);
        let last = words.add(2 * PAGE / 8 - 1);
        let range = start as usize..start as usize + 2 * PAGE;
        assert!(guard(range, PAGE, || last.write(6.0)).is_err());
        assert_eq!((words.read(), last.read()), (5.0, 6.0));
        libc::munmap(start, 2 * PAGE);
        libc::close(file);
    }
}

fn variant(kernel: &str) -> Variant {
    Variant { unroll: 4, ..usual(kernel, Width::W128, StoreKind::Regular) }
}

#[test]
fn a_file_cut_short_is_a_fault_in_kernels_and_an_error_in_plain_rust() {
    let folder = Folder::new();
    for kind in FILES {
        let mut region = region(kind, &folder.places()).unwrap();
        truncate_files(folder.path());
        let (kernel, variant) = (Kernel::find("load").unwrap(), variant("load"));
        let code = Executable::new(&assemble(&variant, membound_measure::asm::detect()).unwrap()).unwrap();
        let mut call = Call::new(&kernel.formula(), &variant, &[region.address()], 1, SIZE.0 / 8);
        // SAFETY: the code only reads, from memory that is mapped or must fault.
        let fault = unsafe { code.run(&mut call) }.unwrap_err();
        assert_has(&fault.to_string(), &["SIGBUS"]);
        let fault = touch::touch(&mut region, |bytes| bytes.fill(1)).unwrap_err();
        assert_has(&fault.to_string(), &["taken away", "SIGBUS"]);
        // What stands there now is harmless, and the next guard is a new one.
        assert_eq!(touch::touch(&mut region, |bytes| bytes[9]), Ok(1), "{kind}");
        region.unmap();
        region.map().unwrap();
        assert!(touch::touch(&mut region, |bytes| bytes[0]).is_err(), "{kind}");
    }
}

#[test]
fn what_was_not_taken_away_stays() {
    let folder = Folder::new();
    let mut region = region(Kind::FileShared, &folder.places()).unwrap();
    region.words().fill(7.0);
    let file = File::options().write(true).open(&unnamed_files(folder.path())[0]).unwrap();
    file.set_len(SIZE.0 / 2).unwrap();
    touch::touch(&mut region, |bytes| bytes.iter().fold(0, |all, byte| all | byte)).unwrap_err();
    let (kept, lost) = region.words().split_at(SIZE.0 as usize / 8 / 2);
    assert!(kept.iter().all(|word| *word == 7.0) && lost.iter().all(|word| *word == 0.0));
}

fn case(kernel: &str, kind: Kind) -> Case {
    Case::new(Work::Kernel(variant(kernel)), MemorySpec::of(kind), vec![thread::current_cpu().unwrap()], SIZE)
}

/// A control group in which this process may have a single huge page; gone when dropped.
struct OneHugePage {
    root: PathBuf,
    group: PathBuf,
    /// Whether groups may have limits on huge pages only since we asked for it.
    is_new: bool,
}

impl OneHugePage {
    fn enter() -> io::Result<OneHugePage> {
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let mut folders = mounts.lines().filter(|line| line.starts_with("cgroup2 "));
        let root = folders.find_map(|line| line.split(' ').nth(1)).ok_or(io::ErrorKind::NotFound)?;
        let root = PathBuf::from(root);
        let is_new = !fs::read_to_string(root.join("cgroup.subtree_control"))?.contains("hugetlb");
        if is_new {
            fs::write(root.join("cgroup.subtree_control"), "+hugetlb")?;
        }
        let name = format!("membound-test-{}", std::process::id());
        let group = OneHugePage { group: root.join(name), root, is_new };
        fs::create_dir(&group.group)?;
        fs::write(group.group.join("hugetlb.2MB.max"), "2M")?;
        fs::write(group.group.join("cgroup.procs"), "0")?;
        Ok(group)
    }
}

impl Drop for OneHugePage {
    fn drop(&mut self) {
        // The group may not have been made, or not entered.
        let _ = fs::write(self.root.join("cgroup.procs"), "0");
        let _ = fs::remove_dir(&self.group);
        if self.is_new {
            let _ = fs::write(self.root.join("cgroup.subtree_control"), "-hugetlb");
        }
    }
}

#[test]
fn a_pool_page_that_a_control_group_refuses_ends_the_case() {
    let _pool = pool();
    if !alone("memory::a_pool_page_that_a_control_group_refuses_ends_the_case", |_| ()) {
        return;
    }
    let Some(_size) = PoolSize::four() else { return };
    let _group = match OneHugePage::enter() {
        Ok(group) => group,
        Err(fault) => return skip(format!("no control group of our own for huge pages: {fault}")),
    };
    let visit_with = |working_set| {
        let case = Case { working_set, ..case("store", Kind::Huge2M) };
        visit(&mut Native::new(std::slice::from_ref(&case), Places::default(), false).unwrap(), &case)
    };
    let outcome = visit_with(Bytes::mib(2));
    assert!(matches!(outcome, Outcome::Measured(_)), "{outcome:?}");
    match visit_with(Bytes::mib(4)) {
        Outcome::Crashed { reason } => assert_has(&reason, &["taken away", "SIGBUS"]),
        outcome => panic!("{outcome:?}"),
    }
}

fn visit(native: &mut Native, case: &Case) -> Outcome {
    let quota = Quota { least_samples: 2, most_samples: 2, time: Duration::from_millis(20), interrupted: &|| false };
    native.visit(case, &quota)
}

#[test]
fn a_case_whose_memory_is_taken_away_crashes_alone() {
    let folder = Folder::new();
    // The first refills its stream in plain Rust before each visit, the second leaves all to the kernel.
    for (kernel, reason) in [("daxpy", "filled or checked"), ("store", "the kernel was stopped by SIGBUS")] {
        let case = case(kernel, Kind::FileShared);
        let mut native = Native::new(std::slice::from_ref(&case), folder.places(), false).unwrap();
        let outcome = visit(&mut native, &case);
        assert!(matches!(outcome, Outcome::Measured(_)), "{outcome:?}");
        truncate_files(folder.path());
        match visit(&mut native, &case) {
            Outcome::Crashed { reason: found } => assert_has(&found, &[reason]),
            outcome => panic!("{outcome:?}"),
        }
        let outcome = visit(&mut native, &case);
        assert!(matches!(outcome, Outcome::Measured(_)), "a case after it gets new memory: {outcome:?}");
    }
}

#[test]
fn each_kind_with_a_place_can_be_measured() {
    let folder = Folder::new();
    for kind in [Kind::Memfd, Kind::Tmpfs].into_iter().chain(FILES) {
        for protocol in [Protocol::Steady, Protocol::FirstUse] {
            let case = Case { protocol, ..case("copy", kind) };
            let mut native = Native::new(std::slice::from_ref(&case), folder.places(), true).unwrap();
            match visit(&mut native, &case) {
                Outcome::Measured(measured) => assert!(!measured.obtained.proofs.is_empty(), "{case}"),
                Outcome::Unavailable { reason } if kind == Kind::Tmpfs => skip(&reason),
                outcome => panic!("{case}: {outcome:?}"),
            }
        }
    }
}

/// A folder that looks like a PCI device's in sysfs: BAR 2 is memory, BAR 0 is I/O ports.
struct Device(tempfile::TempDir);

impl Device {
    fn new() -> Device {
        let device = Device(tempfile::tempdir().unwrap());
        device.put("resource2", &BAR);
        device.put("resource2_wc", &BAR);
        device.put("resource0", &BAR);
        device.put("enable", b"1\n");
        let ports = "0x000000000000c000 0x000000000000c0ff 0x0000000000040101\n";
        let none = "0x0000000000000000 0x0000000000000000 0x0000000000000000\n";
        let memory = "0x00000000e0000000 0x00000000e003ffff 0x000000000014220c\n";
        device.put("resource", [ports, none, memory].concat().as_bytes());
        device
    }

    fn put(&self, name: &str, text: &[u8]) {
        fs::write(self.0.path().join(name), text).unwrap();
    }

    fn remove(&self, name: &str) {
        fs::remove_file(self.0.path().join(name)).unwrap();
    }

    fn places(&self, name: &str, bar_writes: bool) -> Places {
        Places { bar: Some(self.0.path().join(name)), bar_writes, ..Places::default() }
    }
}

static BAR: [u8; SIZE.0 as usize] = [0x5a; SIZE.0 as usize];

#[test]
fn a_bar_is_read_and_not_written() {
    let device = Device::new();
    for (kind, name) in [(Kind::Bar, "resource2"), (Kind::BarWc, "resource2_wc")] {
        let mut region = region(kind, &device.places("resource2", false)).unwrap();
        assert!(!region.is_writable() && region.words().is_empty());
        // A plain file is no BAR: sysfs says nothing about it.
        let proof = proof(&region, "sysfs");
        assert!(!proof.holds && proof.seen.ends_with(name), "{proof:?}");
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps.lines().find(|line| line.starts_with(&format!("{:x}-", region.address()))).unwrap();
        assert_has(line, &[" r--s ", name]);
        for open in unnamed_files(device.0.path()) {
            let about = fs::read_to_string(open.to_str().unwrap().replace("/fd/", "/fdinfo/")).unwrap();
            let flags = about.lines().find_map(|line| line.strip_prefix("flags:")).unwrap().trim();
            assert_eq!(i32::from_str_radix(flags, 8).unwrap() & libc::O_ACCMODE, libc::O_RDONLY);
        }
        drop(region);
        let mut native = Native::new(&[], device.places("resource2", false), false).unwrap();
        match visit(&mut native, &case("store", kind)) {
            Outcome::Unavailable { reason } => assert_has(&reason, &["only be read", "--allow-device-writes"]),
            outcome => panic!("{outcome:?}"),
        }
        let outcome = visit(&mut native, &case("load", kind));
        assert!(matches!(outcome, Outcome::Measured(_)), "{outcome:?}");
        assert_eq!(fs::read(device.0.path().join(name)).unwrap(), BAR);
    }
}

#[test]
fn a_bar_is_written_where_that_is_allowed() {
    let device = Device::new();
    let mut region = region(Kind::Bar, &device.places("resource2", true)).unwrap();
    region.words()[0] = 1.0;
    drop(region);
    assert_eq!(fs::read(device.0.path().join("resource2")).unwrap()[..8], 1f64.to_le_bytes());
    assert_eq!(fs::read(device.0.path().join("resource2_wc")).unwrap(), BAR);
}

/// All regions of a BAR have one memory behind them: what one holds must not change what another holds, whichever of the
/// two files maps it.
#[test]
fn each_region_has_a_part_of_the_bar_to_itself() {
    let device = Device::new();
    let half = Bytes(SIZE.0 / 2);
    let places = device.places("resource2", true);
    let of = |kind| Region::new(MemorySpec::of(kind), half, &places);
    let (mut first, mut second) = (of(Kind::Bar).unwrap(), of(Kind::BarWc).unwrap());
    first.words().fill(1.0);
    second.words().fill(2.0);
    first.unmap();
    first.map().unwrap();
    first.words()[0] = 3.0;
    let at = |name: &str, place: u64| fs::read(device.0.path().join(name)).unwrap()[place as usize..][..8].to_vec();
    assert_eq!(at("resource2", 0), 3f64.to_le_bytes());
    assert_eq!(at("resource2_wc", half.0), 2f64.to_le_bytes());
    assert_eq!(at("resource2_wc", 0), [0x5a; 8]);
    let reason = of(Kind::Bar).unwrap_err().to_string();
    assert_has(&reason, &["resource2 has 256 KiB", "leave no 128 KiB", "smaller --size"]);
    drop(first);
    let mut again = of(Kind::BarWc).unwrap();
    again.words()[0] = 4.0;
    assert_eq!(at("resource2_wc", 0), 4f64.to_le_bytes());
}

#[test]
fn each_way_to_have_no_bar_is_a_reason_of_its_own() {
    let device = Device::new();
    let of = |kind, name| refusal(kind, SIZE, &device.places(name, false));
    assert_has(&refusal(Kind::Bar, SIZE, &Places::default()), &["no device was named", "--device /sys/bus/pci"]);
    assert_has(&of(Kind::Bar, "resource5"), &["resource5", "No such file", "ls /sys/bus/pci"]);
    assert_has(&of(Kind::Bar, "config"), &["is no BAR", "--device"]);
    assert_has(&of(Kind::BarWc, "resource0"), &["resource0 has no _wc file", "prefetchable", "`bar`"]);
    assert_has(&of(Kind::Bar, "resource0"), &["I/O ports", "memory BAR"]);
    let larger = Bytes(SIZE.0 + 1);
    let reason = refusal(Kind::Bar, larger, &device.places("resource2", false));
    assert_has(&reason, &["resource2 has 256 KiB, 260 KiB are needed", "smaller --size"]);
    device.put("enable", b"0\n");
    assert_has(&of(Kind::Bar, "resource2"), &["disabled", "enable says 0", "driver"]);
    assert_has(&of(Kind::BarWc, "resource2"), &["disabled"]);
    device.remove("enable");
    device.remove("resource2_wc");
    device.remove("resource2");
    fs::create_dir(device.0.path().join("resource2")).unwrap();
    fs::create_dir(device.0.path().join("resource2/deep")).unwrap();
    assert_has(&of(Kind::Bar, "resource2"), &["resource2"]);
}

/// What is no DMA heap refuses the request, and is not taken for one.
#[test]
fn a_node_that_is_no_heap_is_a_reason() {
    let devices = tempfile::tempdir().unwrap();
    fs::create_dir(devices.path().join("dma_heap")).unwrap();
    for name in ["dma_heap/system", "dma_heap/system-uncached", "udmabuf"] {
        fs::write(devices.path().join(name), "").unwrap();
    }
    let places = Places { devices: devices.path().into(), ..Places::default() };
    for kind in [Kind::DmaHeap, Kind::DmaHeapUncached, Kind::Udmabuf] {
        assert_has(&refusal(kind, SIZE, &places), &["Inappropriate ioctl", "--size"]);
    }
}

/// No memory may be locked: neither by the limit nor by privilege.
fn lock_nothing() -> io::Result<()> {
    const CAP_IPC_LOCK: libc::c_ulong = 14;
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: setrlimit reads the struct; prctl takes numbers.
    unsafe {
        answered(libc::setrlimit(libc::RLIMIT_MEMLOCK, &none))?;
        // Only root has it, and may drop it.
        libc::prctl(libc::PR_CAPBSET_DROP, CAP_IPC_LOCK);
    }
    Ok(())
}

#[test]
fn a_limit_on_locked_memory_is_a_reason() {
    let prepare = |command: &mut Command| {
        // SAFETY: what is called between fork and exec are system calls only.
        unsafe { command.pre_exec(lock_nothing) };
    };
    if alone("memory::a_limit_on_locked_memory_is_a_reason", prepare) {
        assert_has(&refusal(Kind::Locked, SIZE, &Places::default()), &["locked", "ulimit -l", "--size"]);
    }
}

/// Mappings, open files and free pool pages of this process.
fn belongings() -> [usize; 3] {
    let lines = |path: &str| fs::read_to_string(path).unwrap().lines().count();
    let files = fs::read_dir("/proc/self/fd").unwrap().count();
    [lines("/proc/self/maps"), files, pool_pages("HugePages_Free:") as usize]
}

#[test]
fn nothing_is_left_over() {
    let _pool = pool();
    if !alone("memory::nothing_is_left_over", |_| ()) {
        return;
    }
    let (folder, device) = (Folder::new(), Device::new());
    let places = Places { folder: folder.path().into(), ..device.places("resource2", true) };
    let round = || {
        for &kind in Kind::ALL {
            // A file cut short leaves other memory behind, which must go too.
            let Ok(mut region) = region(kind, &places) else { continue };
            touch::touch(&mut region, |bytes| bytes.fill(1)).unwrap();
            region.unmap();
            region.map().unwrap();
            if FILES.contains(&kind) {
                truncate_files(folder.path());
                touch::touch(&mut region, |bytes| bytes.fill(1)).unwrap_err();
            }
        }
    };
    // What the library needs once, it may keep.
    (0..2).for_each(|_| round());
    let before = belongings();
    (0..50).for_each(|_| round());
    assert_eq!(belongings(), before, "[mappings, open files, free pool pages]");
    println!("mappings, open files, free pool pages: {before:?}");
}

/// Whatever was freed before: what is measured as first use would else be of pages that were used.
#[cfg(target_env = "gnu")]
#[test]
fn heap_memory_is_fresh_each_time() {
    let faults = || {
        let mut region = Region::new(MemorySpec::of(Kind::Heap), Bytes::mib(1), &Places::default()).unwrap();
        let before = thread::ThreadUsage::now();
        region.words().fill(1.0);
        thread::ThreadUsage::now().faults - before.faults
    };
    let [first, later @ ..] = [0; 5].map(|_| faults());
    if first == 0 {
        skip("this system counts no page faults (getrusage)");
        return;
    }
    assert!(later.iter().all(|faults| *faults > first / 2), "{first}, {later:?}");
}
