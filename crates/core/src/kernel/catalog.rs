//! The kernels that the field compares by, one row each. Everything else about a row follows from its text. A loop of a
//! user's own is a row like these: its text is its name.

use std::sync::{Mutex, PoisonError};

use crate::in_order::distinct;
use crate::kernel::formula::Formula;
use crate::kernel::{Element, StoreKind, Unsupported, Variant};

/// How a grid's rows lie to the caches: decides how often a row that three sweeps touch comes from memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rows {
    /// Plain arrays.
    None,
    /// Rows of 256 elements: three of them fit the first-level cache, so each element is loaded once from below.
    Short,
    /// Six rows, however long: three of them are half the working set, so each element is loaded three times.
    Long,
}

/// A row of the catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kernel {
    /// Its name on the command line and in records.
    pub name: &'static str,
    /// The loop.
    pub text: &'static str,
    /// How a grid's rows lie to the caches.
    pub rows: Rows,
    /// What it is used for.
    pub about: &'static str,
}

/// Bytes that one element of the loop moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes that the program reads.
    pub loaded: u64,
    /// Bytes that the program writes.
    pub stored: u64,
    /// Bytes read only because a regular store needs its line first.
    pub write_allocated: u64,
}

impl Traffic {
    /// What the program reads and writes: STREAM's convention.
    pub fn payload(self) -> u64 {
        self.loaded + self.stored
    }

    /// What crosses the bus: payload plus write-allocate.
    pub fn bus(self) -> u64 {
        self.payload() + self.write_allocated
    }
}

/// All kernels.
pub const CATALOG: &[Kernel] = &[
    row("load", "b[i]", "reads one stream"),
    row("store", "a[i] = s", "writes one stream"),
    // Zeros are a case of their own: some processors drop or shorten the writing of all-zero lines.
    row("init", "a[i] = 0", "clears one stream, as memset does"),
    row("copy", "a[i] = b[i]", "STREAM copy"),
    row("scale", "a[i] = s*b[i]", "STREAM scale"),
    row("add", "a[i] = b[i] + c[i]", "STREAM add"),
    row("triad", "a[i] = b[i] + s*c[i]", "STREAM triad"),
    row("schoenauer", "a[i] = b[i] + c[i]*d[i]", "Schoenauer's vector triad"),
    row("update", "a[i] = s*a[i]", "changes a stream in place: no write-allocate"),
    row("rewrite", "a[i] = abs(a[i])", "rewrites a stream in place, next to no arithmetic"),
    row("daxpy", "a[i] = a[i] + s*b[i]", "BLAS 1"),
    row("sum", "sum += b[i]", "reduction over one stream"),
    row("dot", "sum += b[i]*c[i]", "reduction over two streams"),
    Kernel { rows: Rows::Short, ..row("jacobi", JACOBI, "2D five-point sweep, rows stay in cache") },
    Kernel { rows: Rows::Long, ..row("jacobi-long", JACOBI, "2D five-point sweep, rows too long for the cache") },
];

const JACOBI: &str = "a[j][i] = s*(b[j][i-1] + b[j][i+1] + b[j-1][i] + b[j+1][i])";

const fn row(name: &'static str, text: &'static str, about: &'static str) -> Kernel {
    Kernel { name, text, rows: Rows::None, about }
}

/// Most loops that one process keeps.
const OWN_MOST: usize = 4096;

/// Works on the loops of users, in the order in which they were first met.
fn own<R>(work: impl FnOnce(&mut Vec<&'static Kernel>) -> R) -> R {
    static LOOPS: Mutex<Vec<&'static Kernel>> = Mutex::new(Vec::new());
    work(&mut LOOPS.lock().unwrap_or_else(PoisonError::into_inner))
}

impl Kernel {
    /// The row of that name, or of the loop that the name spells out.
    pub fn named(name: &str) -> Option<&'static Kernel> {
        Self::find(name).ok()
    }

    /// A name's place in the catalog, to sort by; foreign names come last.
    pub fn place(name: &str) -> usize {
        CATALOG.iter().position(|kernel| kernel.name == name).unwrap_or(CATALOG.len())
    }

    /// The row of that name, or of the loop that the name spells out; else an error that lists all names or shows what is
    /// wrong with the loop.
    pub fn find(name: &str) -> Result<&'static Kernel, Unsupported> {
        let known = CATALOG.iter().find(|kernel| kernel.name == name);
        match known.or_else(|| own(|loops| loops.iter().find(|own| own.name == name).copied())) {
            Some(kernel) => Ok(kernel),
            // No kernel's name has a bracket or assigns; a loop does both.
            None if name.contains(['[', '=']) => Self::own(name),
            None => Err(Unsupported::UnknownKernel {
                name: name.into(),
                known: CATALOG.iter().map(|k| k.name).collect::<Vec<_>>().join(", "),
            }),
        }
    }

    /// Keeps a user's loop, once, by its agreed text. Rows are shared by all that hold one, so what is kept stays: texts
    /// are short ([`TEXT_MOST`](crate::kernel::parser::TEXT_MOST)), and there are at most [`OWN_MOST`] of them.
    fn own(text: &str) -> Result<&'static Kernel, Unsupported> {
        let formula = Formula::parse(text).map_err(Unsupported::Loop)?;
        if formula.grid {
            return Err(Unsupported::NoSuchInstruction(
                "loops of your own go over plain arrays, as a[i]; over grids there are jacobi and jacobi-long",
            ));
        }
        let text = formula.to_string();
        own(|loops| match loops.iter().find(|own| own.name == text) {
            Some(kernel) => Ok(*kernel),
            None if loops.len() == OWN_MOST => {
                Err(Unsupported::NoSuchInstruction("one run can't have more than 4096 different loops"))
            }
            None => {
                let text: &'static str = Box::leak(text.into_boxed_str());
                let kernel: &'static Kernel = Box::leak(Box::new(row(text, text, "a loop of your own")));
                loops.push(kernel);
                Ok(kernel)
            }
        })
    }

    /// Whether it is a loop of a user's own.
    pub fn is_own(&self) -> bool {
        self.name.contains('[')
    }

    /// The loop's text as a tree.
    pub fn formula(&self) -> Formula {
        Formula::parse(self.text).expect("a test parses every row of the catalog, and other texts came from a tree")
    }

    /// Fewest elements of each stream with which the loop computes one.
    pub fn least_elements(&self) -> u64 {
        // Rows of a grid are made long enough.
        if self.rows == Rows::None { self.formula().margins().least_columns() } else { 1 }
    }

    /// Bytes that one element moves. Elements of one row count once, however many of its neighbours are used.
    pub fn traffic(&self, store: StoreKind, element: Element) -> Traffic {
        let formula = self.formula();
        let loaded = match self.rows {
            Rows::None | Rows::Short => formula.streams.iter().filter(|s| s.loaded).count(),
            Rows::Long => distinct(formula.loads().iter().map(|a| (a.stream, a.row))).len(),
        };
        let stored = formula.streams.iter().filter(|s| s.stored).count();
        let allocating = formula.streams.iter().filter(|s| s.stored && !s.loaded).count();
        let bytes = |n: usize| n as u64 * element.bytes();
        Traffic {
            loaded: bytes(loaded),
            stored: bytes(stored),
            write_allocated: if store.write_allocates() { bytes(allocating) } else { 0 },
        }
    }

    /// The rows of a grid of which each of `streams` arrays gets `elements`: (rows, elements in a row). A plain array
    /// is one row.
    pub fn shape(&self, elements: u64, element: Element) -> (u64, u64) {
        match self.rows {
            Rows::None => (1, elements.max(self.least_elements())),
            Rows::Short => ((elements / 256).max(3), 256.min((elements / 3).max(3))),
            // A multiple of a line, so that all rows are aligned alike.
            Rows::Long => (6, (elements / 6 / element.in_line()).max(1) * element.in_line()),
        }
    }

    /// The traffic in a few letters, as TheBandwidthBenchmark writes it: `L2 S1 WA`.
    pub fn traffic_letters(&self) -> String {
        let traffic = self.traffic(StoreKind::Regular, Element::Double);
        let mut parts = Vec::new();
        for (letter, bytes) in [("L", traffic.loaded), ("S", traffic.stored)] {
            if bytes > 0 {
                parts.push(format!("{letter}{}", bytes / Element::Double.bytes()));
            }
        }
        if traffic.write_allocated > 0 {
            parts.push("WA".into());
        }
        parts.join(" ")
    }
}

impl Variant {
    /// The kernel's row, or nothing where the name is foreign (a record from another version).
    pub fn row(&self) -> Option<&'static Kernel> {
        Kernel::named(&self.kernel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Loads, stores, write-allocates and flops for each element, counted by hand from the loop's text.
    #[test]
    fn traffic_is_as_counted_by_hand() {
        let check = |name: &str, loads: u64, stores: u64, write_allocates: u64, flops: u32| {
            let kernel = Kernel::find(name).unwrap();
            for (element, bytes) in [(Element::Double, 8), (Element::Float, 4)] {
                let traffic = kernel.traffic(StoreKind::Regular, element);
                assert_eq!(
                    (traffic.loaded, traffic.stored, traffic.write_allocated, kernel.formula().flops()),
                    (bytes * loads, bytes * stores, bytes * write_allocates, flops),
                    "{name} {element}"
                );
            }
        };
        check("load", 1, 0, 0, 0);
        check("store", 0, 1, 1, 0);
        check("init", 0, 1, 1, 0);
        check("copy", 1, 1, 1, 0);
        check("scale", 1, 1, 1, 1);
        check("add", 2, 1, 1, 1);
        check("triad", 2, 1, 1, 2);
        check("schoenauer", 3, 1, 1, 2);
        check("update", 1, 1, 0, 1);
        check("rewrite", 1, 1, 0, 1);
        check("daxpy", 2, 1, 0, 2);
        check("sum", 1, 0, 0, 1);
        check("dot", 2, 0, 0, 2);
        check("jacobi", 1, 1, 1, 4);
        check("jacobi-long", 3, 1, 1, 4);
        assert_eq!(CATALOG.len(), 15);
    }

    /// The ratios of REFERENCE: store 2, copy 3/2, triad 4/3, Schoenauer triad 5/4, update 1.
    #[test]
    fn the_write_allocate_costs_what_arithmetic_says() {
        let ratio = |name: &str| {
            let kernel = Kernel::find(name).unwrap();
            let bus = |store| kernel.traffic(store, Element::Double).bus() as f64;
            bus(StoreKind::Regular) / bus(StoreKind::Nt)
        };
        assert_eq!(ratio("store"), 2.0);
        assert_eq!(ratio("copy"), 1.5);
        assert_eq!(ratio("triad"), 4.0 / 3.0);
        assert_eq!(ratio("schoenauer"), 1.25);
        assert_eq!(ratio("update"), 1.0);
        // A block of zeros is not read before it is written.
        let init = Kernel::find("init").unwrap();
        let bus = |store| init.traffic(store, Element::Double).bus();
        assert_eq!([StoreKind::Regular, StoreKind::Rep, StoreKind::Zero].map(bus), [16, 16, 8]);
    }

    #[test]
    fn a_loop_of_ones_own_is_found_by_its_text() {
        let kernel = Kernel::find("x[i]=y[i]+2*z[i-1]").unwrap();
        assert_eq!((kernel.name, kernel.text), ("x[i] = y[i] + 2*z[i-1]", "x[i] = y[i] + 2*z[i-1]"));
        assert!(std::ptr::eq(kernel, Kernel::named(kernel.name).unwrap()));
        let traffic = kernel.traffic(StoreKind::Regular, Element::Double);
        assert_eq!((traffic.loaded, traffic.stored, traffic.write_allocated), (16, 8, 8));
        assert_eq!((kernel.traffic_letters(), kernel.least_elements()), ("L2 S1 WA".into(), 2));
        assert!(kernel.is_own() && CATALOG.iter().all(|kernel| !kernel.is_own()));
        let fault = Kernel::find("x[i] = y[k]").unwrap_err().to_string();
        assert!(fault.ends_with("\n  x[i] = y[k]\n           ^"), "{fault}");
        assert!(Kernel::find("a[j][i] = b[j][i]").unwrap_err().to_string().contains("jacobi"));
    }

    /// Loads of one stream count once, whatever their offsets; a gather reads the element and its index.
    #[test]
    fn traffic_of_ones_own_loop_is_as_counted_by_hand() {
        let check = |text: &str, expect: [u64; 3]| {
            for (element, bytes) in [(Element::Double, 8), (Element::Float, 4)] {
                let traffic = Kernel::find(text).unwrap().traffic(StoreKind::Regular, element);
                let found = [traffic.loaded, traffic.stored, traffic.write_allocated];
                assert_eq!(found, expect.map(|count| count * bytes), "{text} {element}");
            }
        };
        check("a[i] = b[i-1] + b[i] + b[i+1]", [1, 1, 1]);
        check("a[i] += b[i]", [2, 1, 0]);
        check("a[i] = b[i]; c[i] = sqrt(b[i])", [1, 2, 2]);
        check("x += v[i]*u[k[i]]", [3, 0, 0]);
        check("a[i] = b[i]*a[i]; c[i] = d[i]", [3, 2, 1]);
    }

    #[test]
    fn traffic_is_written_in_the_fields_letters() {
        assert_eq!(Kernel::find("triad").unwrap().traffic_letters(), "L2 S1 WA");
        assert_eq!(Kernel::find("daxpy").unwrap().traffic_letters(), "L2 S1");
        assert_eq!(Kernel::find("load").unwrap().traffic_letters(), "L1");
    }
}
