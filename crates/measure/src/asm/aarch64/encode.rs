//! Code in the making: instructions, addresses and jumps.

use membound_core::kernel::Unsupported;
use membound_core::kernel::isa::Isa;

use crate::asm::aarch64::opcodes::*;
use crate::asm::instruction_set::Address;
use crate::code::MachineCode;

/// A general register, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct General(pub u8);

/// A place in the code, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Label(usize);

/// Hold addresses that no instruction can express. The prologue saves all but the first.
const FAR: [General; 8] =
    [General(16), General(19), General(20), General(21), General(22), General(23), General(24), General(25)];
/// Holds constants on their way (IP1 of the procedure call standard: free between calls).
pub(super) const PASSING: General = General(17);

/// Ways to encode one access to memory. The first one that can express the offset is taken.
pub(super) type Ways = [Opcode];

/// By the first of several ways that can express the offset.
pub(super) fn encoded(ways: &Ways, registers: &[i64], base: General, offset: i64) -> Option<u32> {
    let operands: Vec<i64> = registers.iter().copied().chain([base.0.into(), offset]).collect();
    ways.iter().find_map(|way| way.encode(&operands))
}

/// A jump whose target may not be placed yet.
#[derive(Debug)]
struct Jump {
    opcode: Opcode,
    /// Which instruction it is.
    at: usize,
    /// What it looks at, if anything.
    register: Option<General>,
    to: Label,
}

/// Appends instructions of A64.
#[derive(Debug)]
pub(crate) struct Assembler {
    pub(super) isa: Isa,
    words: Vec<u32>,
    /// Instructions before each label, once placed.
    labels: Vec<Option<usize>>,
    jumps: Vec<Jump>,
    /// What each of [`FAR`] holds: a register's value and so many bytes, as long as that does not change.
    far: [Option<(General, i64)>; FAR.len()],
    /// What could not be encoded first.
    pub(super) fault: Option<Unsupported>,
}

impl Assembler {
    pub(super) fn empty(isa: Isa) -> Self {
        Assembler { isa, words: Vec::new(), labels: Vec::new(), jumps: Vec::new(), far: [None; FAR.len()], fault: None }
    }

    /// Appends an instruction with its operands in the order of its text.
    pub(super) fn emit(&mut self, opcode: Opcode, operands: &[i64]) {
        match opcode.encode(operands) {
            Some(word) => self.words.push(word),
            None => self.refuse(Unsupported::Assembler(format!("{} can't take {operands:?}", opcode.text))),
        }
    }

    /// Remembers why there is no such code.
    pub(super) fn refuse(&mut self, why: Unsupported) {
        self.fault.get_or_insert(why);
    }

    /// What was known of this register no longer holds.
    pub(super) fn forget(&mut self, register: General) {
        self.far.iter_mut().for_each(|far| *far = far.filter(|(base, _)| *base != register));
    }

    pub(super) fn new_label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    pub(super) fn place_label(&mut self, label: Label) {
        // Who comes from elsewhere has not computed the same address.
        self.far = [None; FAR.len()];
        self.labels[label.0] = Some(self.words.len());
    }

    pub(super) fn jump_to(&mut self, opcode: Opcode, register: Option<General>, to: Label) {
        self.jumps.push(Jump { opcode, at: self.words.len(), register, to });
        self.words.push(NOP.bits);
    }

    /// `register = value`, in as few instructions as it has parts of 16 bits that are not zero.
    pub(super) fn number(&mut self, register: General, value: u64) {
        self.forget(register);
        let parts: Vec<(usize, i64)> =
            (0..4).map(|k| (k, (value >> (16 * k) & 0xffff) as i64)).filter(|(_, part)| *part != 0).collect();
        if parts.is_empty() {
            return self.emit(MOVZ, &[register.0.into(), 0]);
        }
        for (count, (k, part)) in parts.into_iter().enumerate() {
            let opcode = match count {
                0 => [MOVZ, MOVZ_16, MOVZ_32, MOVZ_48][k],
                _ => [MOVZ, MOVK_16, MOVK_32, MOVK_48][k],
            };
            self.emit(opcode, &[register.0.into(), part]);
        }
    }

    /// `to = from + bytes`
    pub(super) fn sum(&mut self, to: General, from: General, bytes: i64) {
        self.forget(to);
        let [to_number, from_number] = [to, from].map(|register| i64::from(register.0));
        let (add, add_pages) = if bytes < 0 { (SUB_IMMEDIATE, SUB_PAGES) } else { (ADD_IMMEDIATE, ADD_PAGES) };
        let (pages, rest) = ((bytes.unsigned_abs() >> 12) as i64, (bytes.unsigned_abs() & 0xfff) as i64);
        match (pages, rest) {
            (0, _) => self.emit(add, &[to_number, from_number, rest]),
            (1..=0xfff, 0) => self.emit(add_pages, &[to_number, from_number, pages]),
            (1..=0xfff, _) => {
                self.emit(add_pages, &[to_number, from_number, pages]);
                self.emit(add, &[to_number, to_number, rest]);
            }
            _ => {
                self.number(PASSING, bytes as u64);
                self.emit(ADD, &[to_number, from_number, PASSING.0.into()]);
            }
        }
    }

    /// One access to memory, by the first of several ways that can express the offset. Where none can, an address nearby is
    /// computed, and kept for the next access.
    pub(super) fn access(&mut self, ways: &Ways, registers: &[i64], at: Address<General>) {
        self.access_by(at, |base, offset| encoded(ways, registers, base, offset));
    }

    /// The same by any instruction of a base and an offset, if it can express it.
    pub(super) fn access_by(&mut self, at: Address<General>, encode: impl Fn(General, i64) -> Option<u32>) {
        let same = self.far.iter().position(|far| far.is_some_and(|(base, _)| base == at.base));
        let near = same.and_then(|k| Some((FAR[k], at.offset - self.far[k]?.1)));
        let word = encode(at.base, at.offset).or_else(|| near.and_then(|(base, beyond)| encode(base, beyond)));
        if word.is_some() {
            return self.words.extend(word);
        }
        let k = same.or_else(|| self.far.iter().position(Option::is_none)).unwrap_or(0);
        self.sum(FAR[k], at.base, at.offset);
        self.far[k] = Some((at.base, at.offset));
        match encode(FAR[k], 0) {
            Some(word) => self.words.push(word),
            None => self.refuse(Unsupported::Assembler(format!("no access at {}", at.offset))),
        }
    }

    /// The bytes, with all jumps in place.
    pub(super) fn bytes(mut self, main_loop: Label, fault_exit: Label) -> Result<MachineCode, Unsupported> {
        for Jump { opcode, at, register, to } in std::mem::take(&mut self.jumps) {
            let distance = 4 * (self.offset(to)? as i64 - at as i64);
            let operands: Vec<i64> = register.map(|register| register.0.into()).into_iter().chain([distance]).collect();
            match opcode.encode(&operands) {
                Some(word) => self.words[at] = word,
                None => self.refuse(Unsupported::Assembler(format!("{} is too far: {distance}", opcode.text))),
            }
        }
        let (main_loop, fault_exit) = (4 * self.offset(main_loop)?, 4 * self.offset(fault_exit)?);
        let bytes = self.words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.fault.map_or(Ok(MachineCode { bytes, main_loop, fault_exit }), Err)
    }

    fn offset(&self, label: Label) -> Result<usize, Unsupported> {
        self.labels[label.0].ok_or_else(|| Unsupported::Assembler("a jump leads nowhere".into()))
    }
}
