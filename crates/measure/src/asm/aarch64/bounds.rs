//! What emitted loops leave to be gained, by LLVM's models of the cores: cycles of one trip, beside those of loops by hand and
//! what the cores' ports allow. The table of `docs/aarch64.md` is made here: `BOOK=write cargo test -p membound-measure bounds`
//! writes it, and `-- --nocapture` prints which loop by hand is the best one.

use std::path::Path;
use std::process::Command;

use membound_core::case;
use membound_core::kernel::isa::Isa;
use membound_core::kernel::{Element, StoreKind, Width};

use crate::asm::aarch64::Assembler;
use crate::asm::aarch64::isa::NEON;
use crate::asm::aarch64::listing::listing;
use crate::asm::aarch64::tests::{for_llvm, printed};
use crate::asm::kernel;
use crate::skip::skip;

/// Models change from one LLVM to the next: those of this one are meant.
const LLVM: &str = "19";
const ITERATIONS: f64 = 200.0;
/// How far an emitted loop may be above the best one by hand, and ports unused.
const ABOVE_MOST: f64 = 0.03;
const UNUSED_MOST: f64 = 0.03;
/// Bytes of each stream in one trip, of emitted loops and of those by hand.
const TRIP: usize = 512;

/// A core that LLVM has a model of, and what membound emits there at the widest width.
struct Core {
    name: &'static str,
    title: &'static str,
    isa: Isa,
    /// The least cycles that a trip of each of [`LOOPS`] can take.
    least: [f64; 4],
    /// Stores whose model contradicts itself: their loops are shown, and nothing is held against them.
    doubted: Option<Form>,
}

/// Ports as the same models have them: what is held against them is the loop, not our reading of a guide.
const CORES: [Core; 5] = [
    // Two pipes for loads and stores; a store of 16 bytes takes one of them twice. By the model, `st1` takes
    // it once for as many bytes, which contradicts that.
    Core {
        name: "neoverse-n1",
        title: "Neoverse N1",
        isa: NEON,
        least: [32.0 / 2.0, 64.0 / 2.0, 96.0 / 2.0, 128.0 / 2.0],
        doubted: Some(Form::FourMoving),
    },
    // Three pipes for loads, two of them also for the addresses of stores; data go by two vector pipes, as does arithmetic.
    Core {
        name: "neoverse-n2",
        title: "Neoverse N2",
        isa: Isa { sve_bytes: 16, ..NEON },
        least: [32.0 / 3.0, 32.0 / 2.0, 32.0 / 2.0, 64.0 / 2.0],
        doubted: None,
    },
    // Two of three pipes take SVE's loads, and its stores.
    Core {
        name: "neoverse-v1",
        title: "Neoverse V1",
        isa: Isa { sve_bytes: 32, ..NEON },
        least: [16.0 / 2.0, 16.0 / 2.0, 32.0 / 2.0, 48.0 / 2.0],
        doubted: None,
    },
    // As N2, with four vector pipes.
    Core {
        name: "neoverse-v2",
        title: "Neoverse V2",
        isa: Isa { sve_bytes: 16, ..NEON },
        least: [32.0 / 3.0, 32.0 / 2.0, 32.0 / 2.0, (64.0 + 16.0) / 3.0],
        doubted: None,
    },
    // Two pipes for addresses; one store per cycle.
    Core {
        name: "a64fx",
        title: "A64FX",
        isa: Isa { sve_bytes: 64, ..NEON },
        least: [8.0 / 2.0, 8.0, 8.0, (16.0 + 8.0) / 2.0],
        doubted: None,
    },
];

/// A kernel, as loops by hand know it.
struct Loop {
    kernel: &'static str,
    loads: usize,
    stores: bool,
}

const LOOPS: [Loop; 4] = [
    Loop { kernel: "load", loads: 1, stores: false },
    Loop { kernel: "store", loads: 0, stores: true },
    Loop { kernel: "copy", loads: 1, stores: true },
    Loop { kernel: "triad", loads: 2, stores: true },
];

/// An instruction of a loop by hand that accesses memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// `ldr`, `str` of 16 bytes.
    One,
    /// `ldp`, `stp` of 32.
    Pair,
    /// The same, which moves its pointer.
    PairMoving,
    /// `ld1`, `st1` of 64, which moves its pointer.
    FourMoving,
    /// `ld1d`, `st1d` of a register of SVE.
    Sve,
    /// `ldr`, `str` of one, without a predicate.
    SveWhole,
}

const NEON_FORMS: [Form; 4] = [Form::One, Form::Pair, Form::PairMoving, Form::FourMoving];
const SVE_FORMS: [Form; 2] = [Form::Sve, Form::SveWhole];

impl Form {
    fn is_sve(self) -> bool {
        SVE_FORMS.contains(&self)
    }

    fn moves(self) -> bool {
        matches!(self, Form::PairMoving | Form::FourMoving)
    }

    /// Registers that one instruction loads or stores.
    fn registers(self) -> usize {
        match self {
            Form::One | Form::Sve | Form::SveWhole => 1,
            Form::Pair | Form::PairMoving => 2,
            Form::FourMoving => 4,
        }
    }

    /// The instruction: `k` counts registers in this trip of `all`. Offsets of SVE reach from -8 to 7 registers, so pointers are in
    /// the middle.
    fn text(self, loads: bool, register: usize, pointer: usize, k: usize, all: usize) -> String {
        let [r, next, third, fourth] = [0, 1, 2, 3].map(|n| register + n);
        let (plain, pair, vector) = if loads { ("ldr", "ldp", "ld1") } else { ("str", "stp", "st1") };
        let middle = k as i64 - all as i64 / 2;
        match self {
            Form::One => format!("{plain} q{r}, [x{pointer}, #{}]", 16 * k),
            Form::Pair => format!("{pair} q{r}, q{next}, [x{pointer}, #{}]", 16 * k),
            Form::PairMoving => format!("{pair} q{r}, q{next}, [x{pointer}], #32"),
            Form::FourMoving => {
                format!("{vector} {{v{r}.2d, v{next}.2d, v{third}.2d, v{fourth}.2d}}, [x{pointer}], #64")
            }
            Form::Sve => {
                format!("{vector}d z{r}.d, p0{}, [x{pointer}, #{middle}, mul vl]", if loads { "/z" } else { "" })
            }
            Form::SveWhole => format!("{plain} z{r}, [x{pointer}, #{middle}, mul vl]"),
        }
    }
}

/// Loads of `group` registers of each stream, arithmetic on them, their stores; and again.
fn by_hand(of: &Loop, Shape { load, store, group }: Shape, core: &Core) -> Vec<String> {
    let all = TRIP / if load.is_sve() { core.isa.sve_bytes as usize } else { 16 };
    let mut lines = Vec::new();
    for first in (0..all).step_by(group) {
        for stream in 0..of.loads {
            let at = |k| load.text(true, stream * group + k, 3 + stream, first + k, all);
            lines.extend((0..group).step_by(load.registers()).map(at));
        }
        if of.loads == 2 {
            lines.extend((0..group).map(|k| match load.is_sve() {
                true => format!("fmla z{k}.d, p0/m, z{}.d, z31.d", group + k),
                false => format!("fmla v{k}.2d, v{}.2d, v31.2d", group + k),
            }));
        }
        if of.stores {
            let at = |k| store.text(false, k, 2, first + k, all);
            lines.extend((0..group).step_by(store.registers()).map(at));
        }
    }
    let moved = (0..of.loads).filter(|_| !load.moves()).map(|stream| 3 + stream);
    let moved = moved.chain((of.stores && !store.moves()).then_some(2));
    lines.extend(moved.map(|pointer| format!("add x{pointer}, x{pointer}, #{TRIP}")));
    lines.extend(["subs x11, x11, #1".into(), "b.ne #-64".into()]);
    lines
}

/// A loop by hand, by what it is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shape {
    load: Form,
    store: Form,
    group: usize,
}

/// All that are held against a core's emitted loops.
fn shapes(of: &Loop, core: &Core) -> Vec<Shape> {
    let mut shapes = Vec::new();
    let widest: &[Form] = if core.isa.sve_bytes > 16 { &SVE_FORMS } else { &[] };
    for forms in [&NEON_FORMS[..], widest] {
        for (&load, &store) in forms.iter().flat_map(|load| forms.iter().map(move |store| (load, store))) {
            // What is not done has no form.
            if of.loads == 0 && load != forms[0] || !of.stores && store != forms[0] {
                continue;
            }
            for group in [1, 2, 4, 8] {
                let fits = |form: Form| group % form.registers() == 0;
                if (of.loads == 0 || fits(load)) && (!of.stores || fits(store)) {
                    shapes.push(Shape { load, store, group });
                }
            }
        }
    }
    shapes
}

/// The main loop that is emitted, as text.
fn emitted(of: &Loop, core: &Core) -> Vec<String> {
    let width = if core.isa.sve_bytes >= 64 { Width::W512 } else { Width::W256 };
    let variant = case::usual(of.kernel, width, StoreKind::Regular);
    assert_eq!(width.bytes(Element::Double) * u64::from(variant.unroll), TRIP as u64);
    let code = kernel::assemble::<Assembler>(&variant, core.isa).unwrap();
    let text = listing(&code);
    let mut lines = Vec::new();
    for line in text.split_once("; main loop\n").unwrap().1.lines() {
        let mut parts = line.trim().splitn(3, "  ");
        let at = usize::from_str_radix(parts.next().unwrap(), 16).unwrap();
        let instruction = parts.nth(1).unwrap();
        lines.push(for_llvm(instruction, at));
        if instruction.starts_with("b.ne") {
            break;
        }
    }
    lines
}

/// Cycles of one trip of each loop, by one core's model.
fn cycles(program: &str, core: &Core, loops: &[Vec<String>]) -> Vec<f64> {
    let region =
        |(k, lines): (usize, &Vec<String>)| format!("# LLVM-MCA-BEGIN {k}\n{}\n# LLVM-MCA-END {k}\n", lines.join("\n"));
    let text: String = loops.iter().enumerate().map(region).collect();
    let mut command = Command::new(program);
    command.args(["-mtriple=aarch64", &format!("-mcpu={}", core.name), &format!("-iterations={ITERATIONS}")]);
    let text = printed(command.args(["-instruction-info=0", "-resource-pressure=0"]), text).unwrap();
    let total = |line: &str| Some(line.strip_prefix("Total Cycles:")?.trim().parse::<f64>().unwrap() / ITERATIONS);
    let found: Vec<f64> = text.lines().filter_map(total).collect();
    assert_eq!(found.len(), loops.len(), "{text}");
    found
}

/// One cell of the table.
struct Comparison {
    emitted: f64,
    least: f64,
    best: (f64, Shape),
    /// The best of those whose model contradicts itself.
    doubted: Option<f64>,
    worst: f64,
}

impl Comparison {
    fn new(program: &str, core: &Core, (of, least): (&Loop, f64)) -> Self {
        let shapes = shapes(of, core);
        let loops = [emitted(of, core)].into_iter().chain(shapes.iter().map(|shape| by_hand(of, *shape, core)));
        let found = cycles(program, core, &loops.collect::<Vec<_>>());
        let mut by_hand: Vec<(f64, Shape)> = found[1..].iter().copied().zip(shapes).collect();
        by_hand.sort_by(|a, b| a.0.total_cmp(&b.0));
        let is_doubted = |(_, shape): &&(f64, Shape)| of.stores && core.doubted == Some(shape.store);
        let best = *by_hand.iter().find(|shape| !is_doubted(shape)).unwrap();
        let doubted = by_hand.iter().find(is_doubted).map(|doubted| doubted.0);
        Comparison { emitted: found[0], least, best, doubted, worst: by_hand[by_hand.len() - 1].0 }
    }

    /// What is wrong with the emitted loop.
    fn fault(&self) -> Option<String> {
        let Comparison { emitted, least, best: (best, shape), .. } = *self;
        if emitted > (1.0 + ABOVE_MOST) * best {
            return Some(format!("{emitted} cycles, by hand {best}: {shape:?}"));
        }
        (least < (1.0 - UNUSED_MOST) * emitted).then(|| format!("{emitted} cycles, but ports allow {least}"))
    }
}

/// The table of the documentation: a row for each loop, a column for each core.
fn table(found: &[Vec<Comparison>]) -> String {
    let row = |head: &str, cell: &dyn Fn(&Vec<Comparison>) -> String| {
        let cells: Vec<String> = found.iter().map(cell).collect();
        format!("| {head} | {} |\n", cells.join(" | "))
    };
    let titles: Vec<&str> = CORES.iter().map(|core| core.title).collect();
    let mut text = format!("| loop | {} |\n|{}\n", titles.join(" | "), "---|".repeat(1 + titles.len()));
    for (k, of) in LOOPS.iter().enumerate() {
        let all = |of: &Vec<Comparison>| {
            let Comparison { emitted, best: (best, _), least, .. } = of[k];
            format!("{emitted:.2} / {best:.2} / {least:.2}")
        };
        text += &row(of.kernel, &all);
    }
    text + &row("the slowest triad by hand", &|of| format!("{:.2}", of[3].worst))
}

/// The first program of these names that is of this LLVM.
fn analyzer() -> Option<String> {
    [format!("llvm-mca-{LLVM}"), "llvm-mca".into()].into_iter().find(|name| {
        let said = Command::new(name).arg("--version").output();
        said.is_ok_and(|said| String::from_utf8_lossy(&said.stdout).contains(&format!("LLVM version {LLVM}.")))
    })
}

#[test]
fn emitted_loops_are_as_fast_as_the_best_by_hand() {
    let Some(program) = analyzer() else { return skip(format!("no llvm-mca of LLVM {LLVM}")) };
    let of_core = |core: &'static Core| {
        let program = program.clone();
        std::thread::spawn(move || LOOPS.iter().zip(core.least).map(|of| Comparison::new(&program, core, of)).collect())
    };
    let threads: Vec<_> = CORES.iter().map(of_core).collect();
    let found: Vec<Vec<Comparison>> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    let mut faults = Vec::new();
    for (core, (of, found)) in
        CORES.iter().zip(&found).flat_map(|(core, of)| LOOPS.iter().zip(of).map(move |of| (core, of)))
    {
        println!(
            "{} {}: {:.2}, best by hand {:?}, doubted {:?}",
            core.title, of.kernel, found.emitted, found.best, found.doubted
        );
        faults.extend(found.fault().map(|fault| format!("{} {}: {fault}", core.title, of.kernel)));
    }
    assert_eq!(faults, Vec::<String>::new());
    is_documented(&table(&found));
}

/// Holds the table against the documentation, which a package of this crate lacks, or writes it there.
fn is_documented(table: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/aarch64.md");
    let Ok(text) = std::fs::read_to_string(&path) else { return };
    let start = text.find("| loop | Neoverse").expect("the documentation has the table");
    let end = start + text[start..].find("\n\n").unwrap() + 1;
    if std::env::var("BOOK").is_ok_and(|what| what == "write") {
        return std::fs::write(&path, [&text[..start], table, &text[end..]].concat()).unwrap();
    }
    assert_eq!(&text[start..end], table, "BOOK=write cargo test -p membound-measure bounds");
}
