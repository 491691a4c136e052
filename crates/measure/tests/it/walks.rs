//! Machine code that walks over lines, hands them over or computes in registers, against plain Rust: what it leaves
//! behind, and that it touches nothing else.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};

use membound_core::kernel::flops::Flops;
use membound_core::kernel::mix::{LINES, Mix, STRIDE};
use membound_core::kernel::scan::REGISTER;
use membound_core::kernel::streams::{Streams, Touch};
use membound_core::kernel::{Element, Unsupported, Width};
use membound_core::machine::spec::Balance;
use membound_core::units::LINE;
use membound_measure::asm;
use membound_measure::asm::handover::{self, Side};
use membound_measure::code::{Call, Executable, MachineCode};

/// A line of doubles, as aligned as lines are.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(align(64))]
struct Line([f64; LINE as usize / 8]);

/// Each line of doubles of its own.
fn lines(count: u64) -> Vec<Line> {
    (0..count).map(|line| Line(std::array::from_fn(|k| (8 * line) as f64 + k as f64 + 0.5))).collect()
}

fn executable(code: Result<MachineCode, Unsupported>) -> Executable {
    Executable::new(&code.unwrap()).unwrap()
}

#[test]
fn mixes_store_the_lines_that_they_name() {
    const REPETITIONS: u64 = 3;
    for &mix in Mix::ALL {
        let code = executable(asm::mix(mix));
        let mut memory = lines(REPETITIONS * LINES + 2);
        let expect: Vec<Line> = memory
            .iter()
            .enumerate()
            .map(|(at, line)| {
                let inside = (1..=REPETITIONS * LINES).contains(&(at as u64));
                if inside && mix.stores((at as u64 - 1) % LINES) { Line([2.5; 8]) } else { *line }
            })
            .collect();
        assert_eq!(STRIDE, LINES * size_of::<Line>() as u64);
        let mut call = Call::empty(REPETITIONS);
        (call.pointers[0], call.scalar) = (memory[1..].as_mut_ptr() as u64, 2.5);
        // SAFETY: so many repetitions lie between the first line and the last, which nothing else uses.
        unsafe { code.run(&mut call) }.unwrap();
        assert!(memory == expect, "{mix}");
    }
}

#[test]
fn streams_are_read_written_and_copied() {
    for (touch, streams, blocks) in
        [(Touch::Read, 3, 5), (Touch::Write, 32, 2), (Touch::Copy, 4, 7), (Touch::Read, 1, 1)]
    {
        let (gap, of) = (9, Streams { streams, touch, offset_bytes: 0 });
        let code = executable(asm::streams(of, gap * LINE));
        let mut memory = lines(gap * u64::from(streams));
        let before = memory.clone();
        let mut call = Call::empty(2);
        (call.pointers[0], call.blocks, call.scalar) = (memory.as_mut_ptr() as u64, blocks, 7.0);
        // SAFETY: `blocks` lines of each stream lie in `memory`, which nothing else uses.
        unsafe { code.run(&mut call) }.unwrap();
        let place = |at: usize| (at as u64 / gap, at as u64 % gap);
        for (at, line) in memory.iter().enumerate() {
            let (stream, inside) = (place(at).0 as u32, place(at).1 < blocks);
            let expect = match touch {
                Touch::Write if inside => Line([7.0; 8]),
                Touch::Copy if inside && stream >= streams / 2 => before[at - (gap * u64::from(streams) / 2) as usize],
                _ => before[at],
            };
            assert_eq!(*line, expect, "{touch} {streams}: line {at}");
        }
        if touch == Touch::Read {
            let read = before.iter().enumerate().filter(|(at, _)| place(*at).1 < blocks);
            let sum: f64 = read.map(|(_, line)| line.0.iter().sum::<f64>()).sum();
            let found: f64 = Element::Double.decode(&call.registers()[0]).iter().sum();
            assert_eq!(found, sum, "{streams}");
        }
    }
}

#[test]
fn chains_of_arithmetic_come_to_what_plain_rust_does() {
    const START: f64 = 3.0;
    for (&element, &width) in Element::ALL.iter().flat_map(|e| Width::ALL.iter().map(move |w| (e, w))) {
        for &balance in Balance::ALL {
            let flops = Flops { element, width, balance };
            let chains = asm::chains_of_flops(flops, asm::detect());
            let code = match asm::flops(flops, asm::detect()) {
                Ok(code) => Executable::new(&code).unwrap(),
                Err(Unsupported::NotOnThisProcessor(_)) => continue,
                Err(fault) => panic!("{flops}: {fault}"),
            };
            for (factor, addend, trips) in [(2.0, 5.0, 1), (2.0, 1.0, 1), (-1.0, 7.0, 3)] {
                let lane = |number: f64| -> [u8; REGISTER] {
                    element.encode(&vec![number; REGISTER / element.bytes() as usize]).try_into().unwrap()
                };
                let lanes = [lane(factor), lane(addend), lane(START), [0; REGISTER]];
                let mut call = Call::of_scan([0; 2], &lanes, trips);
                // SAFETY: the code touches registers and its argument only.
                unsafe { code.run(&mut call) }.unwrap();
                let expect = match balance {
                    // Products that are all the same are added.
                    Balance::Fma if asm::ACCUMULATES => {
                        let added = Flops { balance: Balance::Add, ..flops };
                        added.play(chains, START, factor, factor * addend, trips)
                    }
                    _ => flops.play(chains, START, factor, addend, trips),
                };
                let found = element.decode(&call.registers()[3][..width.bytes(element) as usize]);
                assert!(found.iter().all(|number| Some(*number) == expect), "{flops}: {found:?}, not {expect:?}");
            }
        }
    }
}

#[test]
fn touches_store_what_they_say() {
    use membound_core::memory::behaviour::Touch;
    let counts = [3.0, 2.0, 1.0].map(|left: f64| f64::from_bits(left as u64));
    for touch in Touch::ALL {
        let code = executable(asm::touch(touch));
        let mut memory = lines(5);
        let mut expect = memory.clone();
        for (line, left) in expect[1..4].iter_mut().zip(counts) {
            let words =
                [0, 1, 8][[Touch::StoreWord, Touch::StoreLine].iter().position(|t| *t == touch).map_or(0, |k| k + 1)];
            line.0[..words].fill(left);
        }
        let mut call = Call::empty(1);
        (call.pointers[0], call.blocks) = (memory[1..].as_mut_ptr() as u64, 3);
        // SAFETY: three lines from there on lie in `memory`.
        unsafe { code.run(&mut call) }.unwrap();
        assert!(memory == expect, "{touch:?}");
    }
}

#[test]
fn a_pair_is_read_and_left_as_it_was() {
    let code = executable(asm::pair());
    let memory = lines(4);
    let mut call = Call::empty(10);
    call.pointers[..2].copy_from_slice(&[&memory[1], &memory[3]].map(|line| &raw const *line as u64));
    // SAFETY: both lines are in `memory`; the code reads and flushes them.
    unsafe { code.run(&mut call) }.unwrap();
    assert!(memory == lines(4));
}

#[test]
fn two_threads_hand_a_line_over() {
    const HANDOVERS: u64 = 300;
    let code = executable(asm::handover());
    let line = AtomicU64::new(0);
    let side = |side: Side| {
        let mut left = HANDOVERS;
        while left > 0 {
            let mut call = handover::call(line.as_ptr() as u64, side, left);
            // SAFETY: the word outlives the call; both sides change it atomically.
            unsafe { code.run(&mut call) }.unwrap();
            left = handover::left(&call);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| side(Side::First));
        side(Side::Second);
    });
    assert_eq!(line.load(Ordering::SeqCst), 0, "as many hand-overs each way");
}

#[test]
fn additions_take_their_time_and_end() {
    for code in [asm::core_clock_chain(), asm::wide_additions()] {
        let mut call = Call::empty(3);
        // SAFETY: the code touches registers only.
        unsafe { executable(code).run(&mut call) }.unwrap();
    }
}
