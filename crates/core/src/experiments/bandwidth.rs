//! Store kinds side by side over working sets, and STREAM.

use crate::case::{Case, Protocol, USUAL_MEMORY, product, product4, steady};
use crate::experiments::choice::{Choice, check_size};
use crate::experiments::frame::{Frame, PlanError, all_and_one};
use crate::in_order::each_once;
use crate::kernel::catalog::Kernel;
use crate::kernel::{StoreKind, Width};
use crate::memory::MemorySpec;
use crate::units::{Bytes, LINE};

/// STREAM's four kernels by its rules: arrays of at least four times the last-level caches each, where no size is given.
pub fn stream(
    frame: &Frame,
    threads: usize,
    memory: MemorySpec,
    width: Width,
    array: Option<Bytes>,
) -> Result<Vec<Case>, PlanError> {
    let cpus = frame.placement.first(threads)?;
    let by_rule = 4 * frame.last_level[usize::from(threads > 1)].0.max(Bytes::mib(8).0);
    let array = array.map_or(by_rule.min(frame.memory_limit.0 / 8), |array| array.0);
    let lines = LINE * threads as u64;
    let array = array / lines * lines;
    let mut cases = Vec::new();
    for store in [StoreKind::Regular, StoreKind::Nt] {
        for kernel in ["copy", "scale", "add", "triad"] {
            let streams = Kernel::named(kernel).map_or(3, |k| k.formula().streams.len() as u64);
            let mut case = steady(kernel, width, store, memory, cpus.clone(), Bytes(array * streams));
            case.protocol = Protocol::Stream;
            cases.push(case);
        }
    }
    Ok(cases)
}

/// STREAM for a choice of threads, memory, width and size of three arrays; that follows from STREAM's rule unless given.
pub fn stream_choice(frame: &Frame, choice: &Choice) -> Result<Vec<Case>, PlanError> {
    let memories = if choice.memory.is_empty() { vec![USUAL_MEMORY] } else { choice.memory.clone() };
    let arrays = match &choice.sizes[..] {
        [] => vec![None],
        sizes => sizes.iter().map(|size| Some(Bytes(size.0 / 3))).collect(),
    };
    let widths = if choice.widths.is_empty() { vec![frame.widest()] } else { choice.widths.clone() };
    let counts = if choice.threads.is_empty() { vec![frame.placement.most()] } else { choice.threads.clone() };
    let mut cases = Vec::new();
    for (&threads, &size) in product(&counts, &choice.sizes) {
        let triad = Kernel::named("triad").expect("the catalog has it");
        check_size(frame, size, triad, choice.element, threads)?;
        // Whole lines of three arrays for each thread: less is rounded to nothing.
        let least = Bytes(3 * LINE * threads as u64);
        if size < least {
            return Err(PlanError::TooSmall { size, threads, least });
        }
    }
    for ((&memory, &width), (&threads, &array)) in product4(&memories, &widths, &counts, &arrays) {
        cases.extend(stream(frame, threads, memory, width, array)?);
    }
    if !choice.stores.is_empty() {
        cases.retain(|case| case.variant().is_some_and(|variant| choice.stores.contains(&variant.store)));
    }
    Ok(cases)
}

/// STREAM's Triad beside a loop of one's own: what memory gives here.
pub fn triad_beside(frame: &Frame, choice: &Choice) -> Result<Vec<Case>, PlanError> {
    let is_ours = |case: &Case| case.variant().is_some_and(|variant| variant.kernel == "triad");
    let (counts, stores) = (
        if choice.threads.is_empty() { all_and_one(frame) } else { choice.threads.clone() },
        if choice.stores.is_empty() { vec![StoreKind::Regular] } else { choice.stores.clone() },
    );
    // Memory types and devices are not what STREAM is about.
    let memory: Vec<MemorySpec> =
        choice.memory.iter().copied().filter(|memory| !memory.kind.is_memory_type()).collect();
    if memory.is_empty() {
        return Ok(Vec::new());
    }
    let cases = stream_choice(frame, &Choice { threads: counts, stores, memory, sizes: Vec::new(), ..choice.clone() })?;
    Ok(cases.into_iter().filter(is_ours).collect())
}

/// Store kinds side by side over working sets: where does which one win?
pub fn stores(frame: &Frame, choice: &Choice) -> Result<Vec<Case>, PlanError> {
    let named = |names: &[&str]| names.iter().filter_map(|name| Kernel::named(name)).collect::<Vec<_>>();
    let kernels =
        if choice.kernels.is_empty() { named(&["store", "copy", "schoenauer"]) } else { choice.kernels.clone() };
    // Kinds of stores stand beside each other of one memory and one width.
    let memory = choice.memory.first().copied().unwrap_or(USUAL_MEMORY);
    let counts = if choice.threads.is_empty() { all_and_one(frame) } else { choice.threads.clone() };
    let width = choice.widths.first().copied().unwrap_or(frame.widest());
    let mut cases = Vec::new();
    for &threads in &counts {
        let cpus = frame.placement.first(threads)?;
        let last = Bytes(frame.memory_size(threads).0 / threads as u64);
        let sizes = if choice.sizes.is_empty() {
            frame.sweep(1, last).into_iter().map(|size| Bytes(size.0 * threads as u64)).collect()
        } else {
            choice.sizes.clone()
        };
        for (&size, &kernel) in product(&sizes, &kernels) {
            check_size(frame, size, kernel, choice.element, threads)?;
            let case =
                |width, store| steady(kernel.name, width, store, memory, cpus.clone(), size).over(choice.element);
            cases.push(case(width, StoreKind::Regular));
            cases.push(case(width, StoreKind::Nt));
            cases.push(case(Width::Scalar, StoreKind::NtMasked));
            cases.push(Case { misaligned_bytes: 8, ..case(Width::W128, StoreKind::NtMasked) });
            if kernel.formula().loads().len() <= 1 && kernel.formula().flops() == 0 {
                cases.push(case(Width::Scalar, StoreKind::Rep));
            }
            if kernel.formula().writes_zeros() {
                cases.push(case(Width::Scalar, StoreKind::Zero));
            }
        }
    }
    Ok(each_once(cases))
}

/// Whether a case stores in a way that few programs have a choice of: where time is short, others come first.
pub fn stores_rarely(case: &Case) -> bool {
    const RARE: [StoreKind; 3] = [StoreKind::NtMasked, StoreKind::Rep, StoreKind::Zero];
    case.variant().is_some_and(|variant| RARE.contains(&variant.store))
}
