//! Every number of chains as machine code against plain Rust: each chain stands where its links lead, and nothing is
//! written.
#![allow(unsafe_code)]

use membound_core::kernel::chase::{Chase, Order, walk};
use membound_core::units::Bytes;
use membound_measure::code::{Call, Executable};

fn follow(chase: Chase, set: Bytes, trips: u64) {
    let code = Executable::new(&membound_measure::asm::chase(chase).unwrap()).unwrap();
    let cycle = chase.cycle(set, u64::from(chase.chains));
    let mut words = vec![0.0; cycle.words()];
    let address = words.as_ptr() as u64;
    cycle.write(&mut words, address);
    let before = words.clone();
    let starts = cycle.starts(address, chase.chains);
    let mut call = Call::of_chase(&starts, trips);
    // SAFETY: every position is a place of the cycle, which lies in `words` and leads nowhere else.
    unsafe { code.run(&mut call) }.unwrap();
    let walked: Vec<u64> =
        starts.iter().map(|&from| walk(&words, address, from, trips * Chase::LINKS).unwrap()).collect();
    assert_eq!(call.positions(chase.chains), walked, "{chase}");
    assert_eq!(cycle.after(address, chase.chains, trips * Chase::LINKS), walked, "{chase}");
    let same = before.iter().zip(&words).all(|(before, after)| before.to_bits() == after.to_bits());
    assert!(same, "{chase} wrote to its places");
}

#[test]
fn all_numbers_of_chains() {
    for chains in 1..=Chase::CHAINS_MOST {
        for order in [Order::Random, Order::PageRandom, Order::Strided] {
            for trips in [1, 7, 100] {
                follow(Chase { chains, ..Chase::of(order) }, Bytes::kib(20), trips);
            }
        }
    }
}

#[test]
fn all_strides() {
    for stride_bytes in [8, 64, 128, 4160] {
        for &order in Order::ALL {
            follow(Chase { stride_bytes, chains: 3, block_bytes: 8192, order }, Bytes::kib(64), 33);
        }
    }
}

/// As many places as chains: each chain walks in the others' steps.
#[test]
fn the_smallest_set() {
    for chains in [1, 12, 13, 32] {
        let chase = Chase { chains, ..Chase::of(Order::Random) };
        follow(chase, chase.least(), 3);
    }
}

#[test]
fn what_no_chase_has_is_refused() {
    let chase = Chase::of(Order::Random);
    for wrong in [
        Chase { chains: 0, ..chase },
        Chase { chains: 33, ..chase },
        Chase { stride_bytes: 12, ..chase },
        Chase { block_bytes: 32, ..chase },
    ] {
        assert!(membound_measure::asm::chase(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_link_that_leads_nowhere_ends_the_call() {
    let code = Executable::new(&membound_measure::asm::chase(Chase::of(Order::Random)).unwrap()).unwrap();
    let mut call = Call::of_chase(&[8], 1);
    // SAFETY: no mapping holds address 8.
    assert!(unsafe { code.run(&mut call) }.is_err());
}
