//! Whether a device works on the very memory that the processor has mapped, by what each sees of the other's stores.
//!
//! ```text
//! device stores Z | map | host loads: Z, or the probe itself fails
//!                       | host stores A, device loads without unmapping: A or still Z
//!                       | device stores B, host loads without remapping: B or still A
//! unmap           |     | device loads: B where there is one memory; A where unmapping has copied
//! ```
//! Where both see each other's stores at once, the processor's load after the device's store tells more: a page fault each time
//! means that the page went to the device and came back (CUDA's managed memory), and is no sharing of one memory.
//!
//! Flags are wishes and drivers do as they like: USE_HOST_PTR copies where alignment does not suit, a plain buffer of an
//! integrated device is shared. What a device does to a mapped buffer is undefined by OpenCL's standard (section 5.4.2), so it
//! is looked at, and nothing relies on it.

use crate::units::words;

words! {
    /// Where the device works while the processor has a buffer mapped.
    Sharing, "kind of sharing" {
        /// On the same memory: zero copy.
        Same = "zero-copy",
        /// On a copy: mapping or unmapping moves the data.
        Copied = "copied",
        /// On memory of which one side sees the other's stores, and not the other way round.
        OneWay = "one-way",
        /// At the same addresses, whose pages move to whoever touches them.
        Migrated = "migrated",
    }
}

/// A buffer that both sides can touch.
pub trait Shared {
    /// Why it can't be touched.
    type Fault;

    /// Maps it for reading and writing.
    fn map(&mut self) -> Result<(), Self::Fault>;
    /// Unmaps it, and waits until that is done.
    fn unmap(&mut self) -> Result<(), Self::Fault>;
    /// The processor stores to its first word through the mapping.
    fn host_store(&mut self, word: u64) -> Result<(), Self::Fault>;
    /// The processor loads it.
    fn host_load(&mut self) -> Result<u64, Self::Fault>;
    /// The device stores to it.
    fn device_store(&mut self, word: u64) -> Result<(), Self::Fault>;
    /// The device loads it.
    fn device_load(&mut self) -> Result<u64, Self::Fault>;
    /// Page faults of the calling thread so far; always the same where that is not known.
    fn faults(&self) -> u64;
}

/// What was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// What that shows; nothing where words were lost that both sides must agree on.
    pub sharing: Option<Sharing>,
    /// Whether the device saw the processor's store before it was unmapped.
    pub by_device: bool,
    /// Whether the processor saw the device's store while it was mapped.
    pub by_host: bool,
    /// Whether each of the processor's loads after a store of the device's made a page fault.
    pub with_faults: bool,
}

/// Times that the device stores before the processor loads, for page faults. A single one may be chance.
const TURNS: usize = 3;

/// Words that no memory holds by chance.
const WORDS: [u64; 3] = [0x6d65_6d62_6f75_6e64, 0x5a5a_0001_a5a5_fffe, 0x0123_4567_89ab_cdef];

/// Looks how a buffer is shared. What it held is lost.
pub fn observe<S: Shared>(buffer: &mut S) -> Result<Seen, S::Fault> {
    let [before, by_host, by_device] = WORDS;
    buffer.device_store(before)?;
    buffer.map()?;
    let is_sound = buffer.host_load()? == before;
    buffer.host_store(by_host)?;
    let seen_by_device = buffer.device_load()? == by_host;
    buffer.device_store(by_device)?;
    let seen_by_host = buffer.host_load()? == by_device;
    let with_faults = seen_by_host && moves_pages(buffer, by_device)?;
    buffer.unmap()?;
    // Whoever copies back on unmapping brings the processor's word, whoever shares keeps the device's.
    let left = buffer.device_load()?;
    let is_kept = left == by_host || left == by_device;
    let sharing = match (seen_by_device, seen_by_host) {
        _ if !is_sound || !is_kept => None,
        (true, true) if with_faults => Some(Sharing::Migrated),
        (true, true) => Some(Sharing::Same),
        (false, false) => Some(Sharing::Copied),
        _ => Some(Sharing::OneWay),
    };
    Ok(Seen { sharing, by_device: seen_by_device, by_host: seen_by_host, with_faults })
}

/// Whether every load of the processor's after a store of the device's has to fetch the page.
fn moves_pages<S: Shared>(buffer: &mut S, word: u64) -> Result<bool, S::Fault> {
    for _ in 0..TURNS {
        buffer.device_store(word)?;
        let before = buffer.faults();
        buffer.host_load()?;
        if buffer.faults() == before {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Seen {
    /// In words.
    pub fn describe(&self) -> String {
        let sees = |sees: bool| if sees { "sees" } else { "does not see" };
        let how = if self.with_faults { ", each time by a page fault" } else { "" };
        format!(
            "while it is mapped the device {} the processor's store, and the processor {} the device's{how}",
            sees(self.by_device),
            sees(self.by_host)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A memory of the processor's and one of the device's, and what mapping and unmapping copies.
    #[derive(Default)]
    struct Simulated {
        host: u64,
        device: u64,
        is_one: bool,
        /// The device reads what the processor wrote, but writes to memory of its own.
        reads_through: bool,
        loses: bool,
        /// The page is fetched from the device when the processor loads it, and so often.
        fetches: u64,
        fetched: u64,
    }

    impl Shared for Simulated {
        type Fault = ();

        fn map(&mut self) -> Result<(), ()> {
            self.host = self.device;
            Ok(())
        }

        fn unmap(&mut self) -> Result<(), ()> {
            if !self.is_one {
                self.device = if self.loses { 0 } else { self.host };
            }
            Ok(())
        }

        fn host_store(&mut self, word: u64) -> Result<(), ()> {
            self.host = word;
            if self.is_one || self.reads_through {
                self.device = word;
            }
            Ok(())
        }

        fn host_load(&mut self) -> Result<u64, ()> {
            self.fetched += u64::from(self.fetched < self.fetches);
            Ok(self.host)
        }

        fn device_store(&mut self, word: u64) -> Result<(), ()> {
            self.device = word;
            if self.is_one {
                self.host = word;
            }
            Ok(())
        }

        fn device_load(&mut self) -> Result<u64, ()> {
            Ok(self.device)
        }

        fn faults(&self) -> u64 {
            self.fetched
        }
    }

    #[test]
    fn sharing_is_told_by_what_each_side_sees() {
        let check = |mut memory: Simulated, expect| assert_eq!(observe(&mut memory).unwrap().sharing, expect);
        check(Simulated { is_one: true, ..Simulated::default() }, Some(Sharing::Same));
        check(Simulated::default(), Some(Sharing::Copied));
        check(Simulated { reads_through: true, ..Simulated::default() }, Some(Sharing::OneWay));
        check(Simulated { is_one: true, fetches: 9, ..Simulated::default() }, Some(Sharing::Migrated));
        // A fault or two at first is chance.
        check(Simulated { is_one: true, fetches: 4, ..Simulated::default() }, Some(Sharing::Same));
        check(Simulated { loses: true, ..Simulated::default() }, None);
    }
}
