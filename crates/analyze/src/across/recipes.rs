//! The lines that put arrays on nodes, in the ways that programs have: from outside, by libnuma, by memkind, by a system call
//! alone, in Fortran and by OpenMP's allocators. A test compiles those that a C compiler takes.

use crate::across::advisor::Advice;

/// A way to do it, and its lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipe {
    /// The interface, and what it takes to use it.
    pub what: &'static str,
    /// Header files of the lines; empty where they are no C.
    pub headers: &'static [&'static str],
    /// What to write.
    pub lines: Vec<String>,
}

/// An array that must be asked for elsewhere than by malloc.
struct Moved<'a> {
    name: &'a str,
    bytes: u64,
    node: u32,
}

/// What it is called, its headers, and its lines for an array.
type Way = (&'static str, &'static [&'static str], fn(&Moved<'_>) -> Vec<String>);

/// The ways to place the arrays that do not lie on the default node. Where all lie on one node, no line of the program
/// changes.
pub fn recipes(advice: &Advice) -> Vec<Recipe> {
    let moved: Vec<Moved<'_>> = advice
        .streams
        .iter()
        .filter(|placed| placed.node != advice.default)
        .map(|placed| Moved { name: &placed.stream.name, bytes: placed.stream.bytes.0, node: placed.node })
        .collect();
    if moved.is_empty() {
        return Vec::new();
    }
    let ways: [Way; 6] = [
        ("C with libnuma (-lnuma)", &["numa.h"], by_libnuma),
        ("C with memkind (-lmemkind), where that node is high-bandwidth memory", &["hbwmalloc.h"], by_memkind),
        ("C without a library: the pages come from that node when they are touched", MBIND, by_mbind),
        ("C with OpenMP 5 (-fopenmp), where the runtime knows of such memory", &["omp.h"], by_openmp),
        ("Fortran with OpenMP 5", &[], by_openmp_fortran),
        ("Fortran (Intel), where that node is high-bandwidth memory (-lmemkind)", &[], by_fastmem),
    ];
    let recipe = |(what, headers, way): Way| Recipe { what, headers, lines: moved.iter().flat_map(way).collect() };
    ways.into_iter().map(recipe).collect()
}

const MBIND: &[&str] = &["sys/mman.h", "sys/syscall.h", "unistd.h"];

fn by_libnuma(Moved { name, bytes, node }: &Moved<'_>) -> Vec<String> {
    vec![format!("double *{name} = numa_alloc_onnode({bytes}UL, {node});")]
}

fn by_memkind(Moved { name, bytes, .. }: &Moved<'_>) -> Vec<String> {
    vec![format!("double *{name} = hbw_malloc({bytes}UL);")]
}

/// 2 is MPOL_BIND. The last argument is one more than the bits of the mask: the kernel takes one away.
fn by_mbind(Moved { name, bytes, node }: &Moved<'_>) -> Vec<String> {
    let (word, bit) = (node / 64, node % 64);
    vec![
        format!("double *{name} = mmap(NULL, {bytes}UL, PROT_READ | PROT_WRITE,"),
        "    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);".into(),
        format!("unsigned long on_{name}[16] = {{ [{word}] = 1UL << {bit} }};"),
        format!("syscall(SYS_mbind, {name}, {bytes}UL, 2, on_{name}, 1025, 0);"),
    ]
}

fn by_openmp(Moved { name, bytes, .. }: &Moved<'_>) -> Vec<String> {
    vec![format!("double *{name} = omp_alloc({bytes}UL, omp_high_bw_mem_alloc);")]
}

fn by_openmp_fortran(Moved { name, bytes, .. }: &Moved<'_>) -> Vec<String> {
    vec![format!("!$omp allocate({name}) allocator(omp_high_bw_mem_alloc)"), format!("allocate({name}({}))", bytes / 8)]
}

fn by_fastmem(Moved { name, bytes, .. }: &Moved<'_>) -> Vec<String> {
    vec![
        format!("real(8), allocatable :: {name}(:)"),
        format!("!DIR$ ATTRIBUTES FASTMEM :: {name}"),
        format!("allocate({name}({}))", bytes / 8),
    ]
}
