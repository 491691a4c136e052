//! Working sets of all threads: which level do they lie in, and is it the one that they were planned for?

use membound_analyze::of_record as model;
use membound_core::case::{Case, USUAL_MEMORY, steady};
use membound_core::experiments::frame::Frame;
use membound_core::kernel::isa::Isa;
use membound_core::kernel::{StoreKind, Width};
use membound_core::machine::Machine;
use membound_core::machine::fact::Fact;
use membound_core::units::Bytes;

use crate::common::imitation;

fn frame(machine: &Machine) -> Frame {
    Frame::new(machine, Isa::NONE, None).unwrap()
}

fn load(cpus: Vec<u32>, working_set: Bytes) -> Case {
    steady("load", Width::W128, StoreKind::Regular, USUAL_MEMORY, cpus, working_set)
}

/// The levels that the report names for loads of so many threads over these working sets, as claimed: no curve was measured.
fn levels(machine: &Machine, threads: usize, sizes: &[Bytes]) -> Vec<Option<String>> {
    let cpus = frame(machine).placement.first(threads).unwrap();
    let visits = sizes.iter().map(|&size| imitation::visit(&load(cpus.clone(), size), 1e10, &[])).collect();
    let report = model::report(&imitation::record(machine.clone(), visits));
    sizes.iter().map(|&size| report.rows.iter().find(|row| row.case.working_set == size)?.level.clone()).collect()
}

/// Four times the cache of 32 MiB, of which each of 16 threads has 8 MiB.
#[test]
fn many_threads_on_one_cache_reach_memory() {
    let bare = imitation::caches([1, 16, 1], false);
    let sizes = [frame(&bare).memory_size(16), Bytes::mib(127), Bytes::mib(64), Bytes::mib(28)];
    assert_eq!(sizes[0], Bytes::mib(128));
    let memory = Some("memory".to_string());
    assert_eq!(levels(&bare, 16, &sizes), [memory.clone(), None, None, Some("L3".into())]);
    // Those of a guest may have a cache each, whatever it is told.
    let guest = imitation::caches([1, 16, 1], true);
    assert_eq!(levels(&guest, 16, &[Bytes::mib(128)]), [None]);
    assert_eq!(levels(&guest, 16, &[frame(&guest).memory_size(16)])[0], memory);
    // Of two packages with one each: 8 threads of 16 MiB lie behind one.
    let mut two = guest.clone();
    two.identity.vendor = Fact::Known("GenuineIntel".into());
    assert_eq!(levels(&two, 16, &[frame(&two).memory_size(16)])[0], memory);
    // Of three a single one may be: it has 43 MiB, less than twice the cache.
    assert_eq!(levels(&two, 3, &[Bytes::mib(128)]), [None]);
    assert_eq!([levels(&two, 4, &[Bytes::mib(128)]), levels(&guest, 4, &[Bytes::mib(128)])], [[memory], [None]]);
}

/// Two threads of a core share its caches: they have half each.
#[test]
fn siblings_are_measured_in_the_level_that_was_planned() {
    for shape in [[1, 8, 2], [4, 4, 2], [2, 8, 1]] {
        let machine = imitation::caches(shape, false);
        let frame = frame(&machine);
        let threads = frame.placement.most();
        let sizes: Vec<Bytes> = frame.in_caches(threads).into_iter().map(|(_, size)| size).collect();
        let named = levels(&machine, threads, &[sizes, vec![frame.memory_size(threads)]].concat());
        let expected = ["L1", "L2", "L3", "memory"].map(|name| Some(name.to_string()));
        assert_eq!(named, expected, "{shape:?}: {:?}", frame.in_caches(threads));
    }
}

/// Copies with regular stores were measured in a cache alone: what they get from memory is not known, and no figure of non-temporal stores
/// stands for it.
#[test]
fn a_level_has_no_figure_of_another_way_to_store() {
    let machine = imitation::caches([1, 2, 1], false);
    let copy = |store, size| steady("copy", Width::W128, store, USUAL_MEMORY, vec![0], size);
    let (cache, memory) = (Bytes::kib(16), frame(&machine).memory_size(1));
    let stores = |cases: &[Case]| {
        let visits = cases.iter().map(|case| imitation::visit(case, 1e10, &[])).collect();
        let report = model::report(&imitation::record(machine.clone(), visits));
        let levels = report.levels.iter().filter(|level| ["L1", "memory"].contains(&level.name.as_str()));
        levels.map(|level| level.best.first().map(|best| report.rows[best.row].store())).collect::<Vec<_>>()
    };
    let (regular, nt) = (StoreKind::Regular, StoreKind::Nt);
    assert_eq!(stores(&[copy(regular, cache), copy(nt, memory)]), [Some(regular), None]);
    assert_eq!(stores(&[copy(nt, cache), copy(nt, memory)]), [Some(nt), Some(nt)], "no other was asked for");
}
