//! Machine code in memory, and calling it.
//!
//! Writable and executable are two types: [`MachineCode`] is plain bytes, [`Executable`] is mapped read-and-execute
//! and can't be written any more. A fault inside the code (SIGILL, SIGSEGV, SIGBUS) ends the call with
//! [`Fault`]: the handler continues at the code's own exit, whose frame needs no unwinding.

#![allow(unsafe_code)]

use std::ptr;

#[cfg(all(target_os = "linux", target_arch = "aarch64"))]
use crate::os::registers::zero_block_bytes;
use crate::os::{faults, memory};
use membound_core::kernel::formula::{Access, Formula, Role, Target};
use membound_core::kernel::parser::SUMS_MOST;
use membound_core::kernel::scan::REGISTER;
use membound_core::kernel::{LoadKind, StoreKind, Variant, Width};

/// Assembled bytes, position-independent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineCode {
    /// The instructions; the entry is the first.
    pub bytes: Vec<u8>,
    /// Offset of the main loop.
    pub main_loop: usize,
    /// Offset at which a fault continues.
    pub fault_exit: usize,
}

/// Sums are kept in this many registers: latency (4 cycles) x adds a cycle (2) on every core since Haswell and Zen.
/// A64FX (9 x 2) would need 18: sums in its first level come at less than half of what its ports load.
pub(crate) const SUMS: usize = 8;
/// Bytes of the lane area: a register of 512 bits for each partial sum.
const LANES: usize = SUMS * REGISTER;

/// Whether non-temporal accesses must be at multiples of their size, as on x86.
const ALIGNS_NT: bool = cfg!(target_arch = "x86_64");

/// Bytes that one instruction fills with zeros: only Arm's does.
#[cfg(not(all(target_os = "linux", target_arch = "aarch64")))]
fn zero_block_bytes() -> u32 {
    0
}

/// Elements at the end that masked stores leave to others: of single elements too they address 16 bytes, and what lies beyond the
/// array may be no memory.
fn unmasked(variant: &Variant) -> u64 {
    let is_masked = variant.store == StoreKind::NtMasked && variant.width == Width::Scalar;
    if is_masked { 16 / variant.element.bytes() - 1 } else { 0 }
}

/// Bytes that one access of the main loop works on.
pub(crate) fn access_bytes(variant: &Variant) -> u64 {
    match variant.store {
        // Never less than an element, so that what there is no code for has a shape, too.
        StoreKind::Zero => u64::from(zero_block_bytes()).max(variant.element.bytes()),
        _ => variant.width.bytes(variant.element),
    }
}

/// Registers that each of so many sums is kept in: together no more than [`SUMS`].
pub(crate) fn partial_sums(sums: usize) -> usize {
    SUMS / sums.max(1).next_power_of_two()
}

/// The arguments and results of one call. The layout is known to the assembler by the offsets below.
#[derive(Debug, Clone)]
#[repr(C, align(64))]
pub struct Call {
    /// Address of the first element that each (stream, row) pair works on.
    pub pointers: [u64; 12],
    /// Bytes from one row to the next.
    pub row_bytes: u64,
    /// Rows worked on; at least 1.
    pub rows: u64,
    /// Passes over everything; at least 1.
    pub repetitions: u64,
    /// Single elements before the first block.
    pub peel: u64,
    /// Trips of the main loop.
    pub blocks: u64,
    /// Single vectors after the last block.
    pub vectors: u64,
    /// Single elements at the end.
    pub tail: u64,
    /// The loop's scalar `s`; the code makes an element of it.
    pub scalar: f64,
    saved_stack: u64,
    fault: u64,
    /// Whether a pass is nothing but blocks of plain arrays.
    even: u64,
    /// The code's own, to bring an element from one kind of register to another; and it lets the lanes begin on a line.
    spill: u64,
    /// Elements, as registers were stored.
    lanes: [u8; LANES],
    /// An element for each sum: the sum of single elements. The last one loaded, where nothing is summed.
    singles: [[u8; 8]; SUMS_MOST],
}

/// What differs between calls over parts of the same streams.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    /// Bytes before it in each stream.
    before: u64,
    peel: u64,
    blocks: u64,
    vectors: u64,
    tail: u64,
    even: u64,
}

impl Call {
    pub(crate) const POINTERS: i32 = 0;
    pub(crate) const ROW_BYTES: i32 = 96;
    pub(crate) const ROWS: i32 = 104;
    pub(crate) const REPETITIONS: i32 = 112;
    pub(crate) const PEEL: i32 = 120;
    pub(crate) const BLOCKS: i32 = 128;
    pub(crate) const VECTORS: i32 = 136;
    pub(crate) const TAIL: i32 = 144;
    pub(crate) const SCALAR: i32 = 152;
    #[cfg(target_arch = "x86_64")]
    pub(crate) const SAVED_STACK: i32 = 160;
    pub(crate) const EVEN: i32 = 176;
    #[cfg(target_arch = "x86_64")]
    pub(crate) const SPILL: i32 = 184;
    pub(crate) const LANES: i32 = 192;
    pub(crate) const SINGLES: i32 = 704;

    /// A call with nothing to do but `repetitions` trips.
    pub fn empty(repetitions: u64) -> Self {
        Call {
            pointers: [0; 12],
            row_bytes: 0,
            rows: 1,
            repetitions,
            peel: 0,
            blocks: 0,
            vectors: 0,
            tail: 0,
            scalar: 0.0,
            saved_stack: 0,
            fault: 0,
            even: 0,
            spill: 0,
            lanes: [0; LANES],
            singles: [[0; 8]; SUMS_MOST],
        }
    }

    /// The arguments for one pass of `variant` over `arrays` (addresses of stream 0, 1, ...), each of `rows` rows of
    /// `columns` elements. Decides which elements may use aligned instructions.
    pub fn new(formula: &Formula, variant: &Variant, arrays: &[u64], rows: u64, columns: u64) -> Self {
        let mut call = Call::empty(1);
        let element_bytes = variant.element.bytes();
        let row_bytes = columns * element_bytes;
        // Margins are read, not computed.
        let margins = formula.margins();
        let elements = columns.saturating_sub(margins.left + margins.right);
        call.rows = rows.saturating_sub(margins.above + margins.below);
        call.row_bytes = row_bytes;
        let pairs = formula.lanes_of_access();
        for (slot, &(stream, row)) in call.pointers.iter_mut().zip(&pairs) {
            let first = (margins.above * row_bytes + margins.left * element_bytes) as i64;
            *slot = match formula.streams[stream].role {
                // Indices count from a gathered stream's first element.
                Role::Gathered => arrays[stream],
                _ => arrays[stream].wrapping_add_signed(first + i64::from(row) * row_bytes as i64),
            };
        }
        if variant.store == StoreKind::Rep {
            call.tail = elements;
            return call;
        }
        let mut aligned: Vec<u64> = Vec::new();
        // An instruction fills the block around an address, wherever in it that is.
        if variant.store == StoreKind::Zero {
            aligned.push(call.pointers[0]);
        }
        for (&address, &pair) in call.pointers.iter().zip(&pairs) {
            let is_here = |access: &&Access| (access.stream, access.row) == pair;
            if ALIGNS_NT && variant.store == StoreKind::Nt {
                let at = |access: &Access| address.wrapping_add_signed(i64::from(access.column) * element_bytes as i64);
                aligned.extend(formula.stores().iter().filter(is_here).map(at));
            }
            let is_loaded_nt = |access: &Access| formula.may_load_nt(access);
            if ALIGNS_NT && variant.load == LoadKind::Nt && formula.loads().iter().filter(is_here).any(is_loaded_nt) {
                aligned.push(address);
            }
        }
        let pitch = (call.rows > 1).then_some(row_bytes);
        call.set_trips(elements, variant, &aligned, pitch);
        call
    }

    /// Splits `elements` into peel, blocks, vectors and tail. `aligned` addresses must be multiples of an access at
    /// the same element and on every row (`pitch` apart); where they can't be, all elements go one by one.
    fn set_trips(&mut self, elements: u64, variant: &Variant, aligned: &[u64], pitch: Option<u64>) {
        let (element_bytes, vector_bytes) = (variant.element.bytes(), access_bytes(variant));
        let vector = vector_bytes / element_bytes;
        let misaligned = |address: u64| address % vector_bytes;
        if let Some(&anchor) = aligned.first() {
            let off = misaligned(anchor);
            let together = aligned.iter().all(|&a| misaligned(a) == off);
            let same_on_rows = pitch.is_none_or(|p| p % vector_bytes == 0);
            if off % element_bytes != 0 || !together || !same_on_rows {
                self.tail = elements;
                return;
            }
            self.peel = ((vector_bytes - off) % vector_bytes / element_bytes).min(elements);
        }
        let kept = unmasked(variant).min(elements - self.peel);
        let rest = elements - self.peel - kept;
        let block = vector * u64::from(variant.unroll);
        self.blocks = rest / block;
        self.vectors = rest % block / vector;
        self.tail = rest % vector + kept;
        self.even = u64::from(self.blocks > 0 && self.peel + self.vectors + self.tail == 0);
    }

    /// What this call is about, as a part of streams that has so many bytes before it.
    pub(crate) fn part(&self, before: u64) -> Part {
        let Call { peel, blocks, vectors, tail, even, .. } = *self;
        Part { before, peel, blocks, vectors, tail, even }
    }

    /// Aims a call over one part of streams at another one.
    pub(crate) fn move_on(&mut self, from: Part, to: Part) {
        let by = to.before.wrapping_sub(from.before);
        self.pointers.iter_mut().for_each(|pointer| *pointer = pointer.wrapping_add(by));
        let Part { peel, blocks, vectors, tail, even, .. } = to;
        (self.peel, self.blocks, self.vectors, self.tail, self.even) = (peel, blocks, vectors, tail, even);
    }

    /// The arguments for `trips` trips of a scan whose first store and first load are at these addresses.
    pub fn of_scan(addresses: [u64; 2], registers: &[[u8; REGISTER]; 4], trips: u64) -> Self {
        let mut call = Call::empty(trips.max(1));
        call.pointers[..2].copy_from_slice(&addresses);
        call.lanes[..4 * REGISTER].copy_from_slice(registers.as_flattened());
        call
    }

    /// After a scan: what its registers hold, as far as they are as wide as its accesses.
    pub fn registers(&self) -> [[u8; REGISTER]; 4] {
        let mut registers = [[0; REGISTER]; 4];
        registers.as_flattened_mut().copy_from_slice(&self.lanes[..4 * REGISTER]);
        registers
    }

    /// The arguments for `trips` trips of a chase whose chains begin at these addresses; 64 at most.
    pub fn of_chase(positions: &[u64], trips: u64) -> Self {
        let mut call = Call::empty(trips.max(1));
        for (lane, position) in call.lanes.chunks_exact_mut(8).zip(positions) {
            lane.copy_from_slice(&position.to_ne_bytes());
        }
        call
    }

    /// After a chase: where its chains stand.
    pub fn positions(&self, chains: u32) -> Vec<u64> {
        let position = |lane: &[u8]| lane.try_into().map_or(0, u64::from_ne_bytes);
        self.lanes.chunks_exact(8).take(chains as usize).map(position).collect()
    }

    /// Whether any of it is done by the main loop's accesses, and not all of it element by element.
    pub(crate) fn has_whole_accesses(&self) -> bool {
        self.blocks + self.vectors > 0
    }

    /// Elements computed by one pass.
    pub fn elements(&self, variant: &Variant) -> u64 {
        let vector = access_bytes(variant) / variant.element.bytes();
        let row = self.peel + (self.blocks * u64::from(variant.unroll) + self.vectors) * vector + self.tail;
        row * self.rows
    }

    /// After a call that reduces: its sums. After one that only loads: the last value.
    pub fn results(&self, formula: &Formula, variant: &Variant) -> Vec<f64> {
        let vector_bytes = variant.width.bytes(variant.element) as usize;
        let decode = |bytes: &[u8]| variant.element.decode(bytes);
        let single = |sum: usize| decode(&self.singles[sum])[0];
        if formula.sums.is_empty() {
            let is_single = self.tail > 0 || self.blocks + self.vectors == 0 || variant.width == Width::Scalar;
            let last = decode(&self.lanes[..vector_bytes]).last().copied().filter(|_| !is_single);
            let only_loads = formula.stores().is_empty();
            return only_loads.then(|| last.unwrap_or(single(0))).into_iter().collect();
        }
        // The lane area holds registers of the variant's own width. Their sum is one of doubles: the partial sums are the
        // machine code's, and they alone are rounded to elements.
        let bytes = partial_sums(formula.sums.len()) * vector_bytes;
        let sum = |sum: usize| decode(&self.lanes[sum * bytes..][..bytes]).iter().sum::<f64>() + single(sum);
        (0..formula.sums.len()).map(sum).collect()
    }

    /// Bytes of each sum's partial ones, as [`Self::results`] finds them; 0 where nothing is summed.
    pub(crate) fn sum_bytes(formula: &Formula, variant: &Variant) -> usize {
        let registers = if formula.sums.is_empty() { 0 } else { partial_sums(formula.sums.len()) };
        registers * variant.width.bytes(variant.element) as usize
    }

    /// The first sum of a call that adds up doubles: [`Self::result`] in some nanoseconds.
    pub(crate) fn sum_of_doubles(&self, sum_bytes: usize) -> f64 {
        let partial = self.lanes[..sum_bytes].as_chunks().0;
        partial.iter().map(|bytes| f64::from_le_bytes(*bytes)).sum::<f64>() + f64::from_le_bytes(self.singles[0])
    }

    /// The first of [`Self::results`]; 0 where there is none.
    pub fn result(&self, formula: &Formula, variant: &Variant) -> f64 {
        self.results(formula, variant).first().copied().unwrap_or(0.0)
    }

    /// Most additions to one of a reduction's partial sums in a pass, of so many statements that add to one sum.
    pub fn most_additions(&self, formula: &Formula, variant: &Variant) -> u64 {
        let of_one = |sum: usize| formula.statements.iter().filter(|s| s.target == Target::Sum(sum)).count() as u64;
        let statements = (0..formula.sums.len()).map(of_one).max().unwrap_or(0);
        let registers = partial_sums(formula.sums.len()) as u64;
        let trip = u64::from(variant.unroll).div_ceil(registers);
        (self.blocks * trip + self.vectors + self.peel + self.tail) * statements
    }
}

/// A kernel was ended by a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the kernel was stopped by {}", faults::name(*.signal))]
pub struct Fault {
    /// The signal's number.
    pub signal: i32,
}

/// Machine code that can be called and no longer written.
#[derive(Debug)]
pub struct Executable {
    start: usize,
    length: usize,
    /// Address at which a fault continues.
    fault_exit: usize,
}

/// Generated code: what it keeps and where its argument is, the convention of Unix says, on whatever system it runs.
#[cfg(target_arch = "x86_64")]
type Entry = extern "sysv64" fn(*mut Call);

/// As above.
#[cfg(not(target_arch = "x86_64"))]
type Entry = extern "C" fn(*mut Call);

impl Executable {
    /// Copies `code` to fresh pages, then makes them read-and-execute. Never both writable and executable.
    pub fn new(code: &MachineCode) -> std::io::Result<Self> {
        faults::handle();
        let (start, length) = memory::code(&code.bytes)?;
        Ok(Executable { start, length, fault_exit: start + code.fault_exit })
    }

    /// Runs the code once with `call` as its argument.
    ///
    /// # Safety
    /// The bytes must come from this crate's assembler, and every address that `call` leads them to must be memory
    /// that this thread may read and write for the whole call, or not mapped at all.
    pub unsafe fn run(&self, call: &mut Call) -> Result<(), Fault> {
        call.fault = 0;
        let address: *mut Call = call;
        // SAFETY: `start` is the entry of code that follows this calling convention and takes one pointer.
        let entry: Entry = unsafe { std::mem::transmute(self.start) };
        let code = self.start..self.start + self.length;
        // SAFETY: the exit belongs to that code, which keeps `call` in the register that is restored; `call` outlives it.
        unsafe {
            faults::continued(code, self.fault_exit, address as usize, &raw mut (*address).fault, || entry(address));
        }
        // SAFETY: `address` is `call`, borrowed exclusively; the handler may have written `fault` behind the borrow.
        match unsafe { ptr::read_volatile(&raw const (*address).fault) } {
            0 => Ok(()),
            signal => Err(Fault { signal: signal as i32 }),
        }
    }
}

impl Drop for Executable {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` and no call can be running: calls borrow `self`.
        unsafe { memory::unmap(self.start, self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn the_assembler_knows_the_layout() {
        let check = |offset: i32, field: usize| assert_eq!(offset as usize, field);
        check(Call::POINTERS, offset_of!(Call, pointers));
        check(Call::ROW_BYTES, offset_of!(Call, row_bytes));
        check(Call::ROWS, offset_of!(Call, rows));
        check(Call::REPETITIONS, offset_of!(Call, repetitions));
        check(Call::PEEL, offset_of!(Call, peel));
        check(Call::BLOCKS, offset_of!(Call, blocks));
        check(Call::VECTORS, offset_of!(Call, vectors));
        check(Call::TAIL, offset_of!(Call, tail));
        check(Call::SCALAR, offset_of!(Call, scalar));
        check(Call::SAVED_STACK, offset_of!(Call, saved_stack));
        check(Call::EVEN, offset_of!(Call, even));
        check(Call::SPILL, offset_of!(Call, spill));
        check(Call::SINGLES, offset_of!(Call, singles));
        check(Call::LANES, offset_of!(Call, lanes));
    }
}
