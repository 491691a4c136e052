//! What generators of machine code need of an instruction set: all that a new one has to supply.
//!
//! A generator says what is loaded, computed and stored, in which order, unrolled how and in which loops. It names
//! general registers by what they hold and vector registers by number. Instructions are appended; what can't be
//! encoded is remembered and told by [`InstructionSet::finish`].

use membound_core::kernel::flops::Flops;
use membound_core::kernel::formula::{Function, Operation};
use membound_core::kernel::isa::Isa;
use membound_core::kernel::{Element, LoadKind, StoreKind, Unsupported, Width};
use membound_core::units::LINE;

use crate::code::{Call, MachineCode};

/// A place in memory: bytes beyond a register.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Address<R> {
    pub base: R,
    pub offset: i64,
}

/// What a vector instruction works on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub width: Width,
    pub element: Element,
}

/// An operand that an arithmetic instruction can take last.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Operand<R> {
    Register(usize),
    /// Only where [`InstructionSet::reads_memory`].
    Memory(Address<R>),
}

/// What a kernel stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// One array, element for element.
    Copy,
    /// The same number everywhere.
    Number,
    /// The same number everywhere, and all of its bits are zero.
    Zeros,
    /// Anything else.
    Computed,
}

/// An instruction that writes a whole line of memory at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineStore {
    /// Copies 64 bytes as one direct store, around the caches: x86's movdir64b.
    Movdir64b,
    /// Fills 64 bytes with zeros: clzero of AMD's processors.
    Clzero,
    /// Fills a block of lines, or of a part of one, with zeros: Arm's dc zva.
    DcZva,
}

impl LineStore {
    /// All of them, of all instruction sets.
    pub const ALL: [LineStore; 3] = [LineStore::Movdir64b, LineStore::Clzero, LineStore::DcZva];

    /// Whether memory is copied, not filled with zeros.
    pub fn copies(self) -> bool {
        self == LineStore::Movdir64b
    }

    /// Whether later stores may become visible before it, as with non-temporal stores.
    pub(crate) fn is_weakly_ordered(self) -> bool {
        self != LineStore::DcZva
    }

    /// Bytes that it writes.
    pub(crate) fn bytes(self, isa: Isa) -> u64 {
        if self == LineStore::DcZva { isa.zva_bytes.into() } else { LINE }
    }
}

/// What an instruction set, or a processor, may lack.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ability {
    Width(Width),
    /// A kind of store other than regular, to go with this kind of load, in a kernel that stores this.
    Store {
        store: StoreKind,
        width: Width,
        load: LoadKind,
        content: Content,
    },
    /// Non-temporal loads.
    LoadNt(Width),
    Gather(Width),
    MultiplyAdd,
    Line(LineStore),
}

/// One instruction set. Its value is code in the making.
pub(crate) trait InstructionSet: Sized {
    /// A general register.
    type Register: Copy + 'static;
    /// A place in the code. Jumps may name it before it is placed.
    type Label: Copy;

    /// What every processor has.
    const BASELINE: Isa;
    /// Holds the address of the [`Call`].
    const CALL: Self::Register;
    /// Holds the repetitions that are left, from the prologue on.
    const REPETITIONS: Self::Register;
    /// Hold addresses; any others that are free there, too.
    const POINTERS: &'static [Self::Register];
    /// Hold the positions of a chase, in place of all but the call, the repetitions and [`Self::TRIPS`].
    const CHAINS: &'static [Self::Register];
    /// Trips of a loop that are left.
    const TRIPS: Self::Register;
    /// Rows that are left; free where there are none.
    const ROWS: Self::Register;
    /// Bytes from the first row.
    const ROW: Self::Register;
    /// How many vector registers there are.
    const VECTORS: usize;
    /// Vector registers that a gather takes from its target on.
    const GATHER: usize;
    /// Why a loop is refused that needs more registers than [`Self::VECTORS`].
    const TOO_MANY_VECTORS: &'static str;
    /// Whether [`Self::add_product`] is the only fused operation on vectors: [`Self::multiply_add`] then takes several
    /// instructions.
    const ACCUMULATES: bool;

    /// Chains of arithmetic that there are registers for.
    fn chains_of_flops(_width: Width, _isa: Isa) -> u64 {
        Flops::CHAINS
    }

    /// Why this is not there, if it is not.
    fn check(ability: Ability, isa: Isa) -> Result<(), Unsupported>;
    /// Empty code.
    fn new(isa: Isa) -> Self;
    /// Saves what the caller needs, and takes the call and its repetitions.
    fn prologue(&mut self);
    /// A fault inside is continued here, with the call's register intact; then back to the caller.
    fn epilogue(&mut self) -> Self::Label;
    /// The bytes, or what could not be encoded.
    fn finish(self, main_loop: Self::Label, fault_exit: Self::Label) -> Result<MachineCode, Unsupported>;
    /// The end of code: its epilogue, and the bytes.
    fn end(mut self, main_loop: Self::Label) -> Result<MachineCode, Unsupported> {
        let fault_exit = self.epilogue();
        self.finish(main_loop, fault_exit)
    }
    /// Instructions of so many bytes together that do nothing.
    fn pad(&mut self, bytes: usize);

    fn label(&mut self) -> Self::Label;
    fn place(&mut self, label: Self::Label);
    /// A label placed here.
    fn here(&mut self) -> Self::Label {
        let label = self.label();
        self.place(label);
        label
    }
    fn jump(&mut self, to: Self::Label);
    fn jump_if_zero(&mut self, register: Self::Register, to: Self::Label);
    fn jump_if_word_is_zero(&mut self, at: Address<Self::Register>, to: Self::Label);
    /// One less, and back `to` there unless that was the last.
    fn count_down(&mut self, register: Self::Register, to: Self::Label);

    /// Begins a loop of as many trips as this word of the call says, which may be none. Returns the labels of a trip and of what
    /// follows the last one, for [`Self::end_trips`].
    fn begin_trips(&mut self, count: i32) -> [Self::Label; 2] {
        let done = self.label();
        self.load_word(Self::TRIPS, Self::of_call(count));
        self.jump_if_zero(Self::TRIPS, done);
        [self.here(), done]
    }
    /// Ends it. Returns the label of a trip.
    fn end_trips(&mut self, [trip, done]: [Self::Label; 2]) -> Self::Label {
        self.count_down(Self::TRIPS, trip);
        self.place(done);
        trip
    }

    fn set(&mut self, to: Self::Register, value: u32);
    fn copy(&mut self, to: Self::Register, from: Self::Register);
    fn add(&mut self, to: Self::Register, from: Self::Register);
    fn add_word(&mut self, to: Self::Register, from: Address<Self::Register>);
    fn advance(&mut self, register: Self::Register, bytes: i32);
    fn load_word(&mut self, to: Self::Register, from: Address<Self::Register>);
    fn store_word(&mut self, to: Address<Self::Register>, from: Self::Register);
    /// A word of the call, so many bytes from its start.
    fn of_call(offset: i32) -> Address<Self::Register> {
        Address { base: Self::CALL, offset: i64::from(offset) }
    }
    /// The word of the call that holds its pointer of this number.
    fn pointer_of_call(number: usize) -> Address<Self::Register> {
        Self::of_call(Call::POINTERS + 8 * number as i32)
    }
    /// Takes the call's first pointers.
    fn load_pointers(&mut self, count: usize) {
        for (number, register) in Self::POINTERS[..count].iter().enumerate() {
            self.load_word(*register, Self::pointer_of_call(number));
        }
    }
    /// At most so many attempts to change the word at `line` from `mine` to `theirs`, atomically; then on to `passed`,
    /// or past the end. The label is the first attempt's.
    fn attempt(&mut self, words: [Self::Register; 3], most: u32, passed: Self::Label) -> Self::Label;
    /// Drops a line from all caches, writing it back.
    fn flush(&mut self, line: Address<Self::Register>);
    /// All earlier loads, stores and flushes are done before any later one.
    fn fence(&mut self);
    /// Stores that went around the caches have reached memory.
    fn fence_stores(&mut self);

    /// Whether products are added in one instruction, rounded once.
    fn fuses(&self) -> bool;
    /// Whether arithmetic takes its last operand from memory, whatever its alignment.
    fn reads_memory(&self) -> bool;
    /// Vector registers that stores of this kind keep for themselves.
    fn kept_for_stores(store: StoreKind) -> usize;
    /// Fills these registers as [`Self::store`] will need them.
    fn prepare_stores(&mut self, element: Element, kept: [usize; 2]);
    /// Bits of the elements of a constant that a function takes beside its operand, if it does.
    fn constant_of(function: Function, element: Element) -> Option<u64>;

    /// Fills a register with elements of these bits.
    fn fill(&mut self, shape: Shape, to: usize, bits: u64);
    /// Fills a register with the double in memory, as elements.
    fn fill_from(&mut self, shape: Shape, to: usize, from: Address<Self::Register>);
    fn clear(&mut self, element: Element, to: usize);
    fn copy_vector(&mut self, shape: Shape, to: usize, from: usize);
    fn load(&mut self, load: LoadKind, shape: Shape, to: usize, from: Address<Self::Register>);
    fn store(&mut self, store: StoreKind, shape: Shape, to: Address<Self::Register>, from: usize);
    /// Loads the elements of a table whose numbers stand at `places`. Those are of an element's size and not negative.
    fn gather(&mut self, shape: Shape, to: usize, table: Self::Register, places: Address<Self::Register>);
    /// `to = left op right`
    fn binary(&mut self, op: Operation, shape: Shape, to: usize, left: usize, right: Operand<Self::Register>);
    /// `to = function(from)`, with its [`Self::constant_of`].
    fn unary(&mut self, function: Function, shape: Shape, to: usize, from: usize, constant: Option<usize>);
    /// `sum += x * y`, fused.
    fn add_product(&mut self, shape: Shape, sum: usize, x: usize, y: Operand<Self::Register>);
    /// `register = register * factor + addend`, fused.
    fn multiply_add(&mut self, shape: Shape, register: usize, factor: usize, addend: Operand<Self::Register>);
    /// Copies the call's tail of elements from the second pointer to the first, or fills that with a register's, by the
    /// instructions that processors have for strings of them.
    fn string(&mut self, element: Element, value: Option<usize>);
    /// The same byte by byte: what it fills with is the low byte of the third pointer's register.
    fn byte_string(&mut self, fills: bool);
    /// Fills the block that a pointer points to with zeros by one instruction, and moves the pointer behind it. Never asked
    /// for where [`Self::check`] refuses [`StoreKind::Zero`].
    fn zero_block(&mut self, _pointer: Self::Register) {}
    /// Writes the line that `to` points to by this instruction, and moves `to` behind it; what is copied stands at `from`.
    /// Never asked for where [`Self::check`] refuses [`Ability::Line`].
    fn write_line(&mut self, by: LineStore, to: Self::Register, from: Self::Register);

    /// Loads so many bytes (4 to 64) to a register.
    fn load_bytes(&mut self, bytes: u64, to: usize, from: Address<Self::Register>);
    /// Clears what is beyond so many bytes of a register, where a load of no more leaves it.
    fn clear_beyond(&mut self, _bytes: u64, _register: usize) {}
    fn store_bytes(&mut self, bytes: u64, to: Address<Self::Register>, from: usize);
    /// Loads 16 aligned bytes.
    fn load_aligned(&mut self, to: usize, from: Address<Self::Register>);
    /// Stores 16 aligned bytes, around the caches or not.
    fn store_aligned(&mut self, is_nt: bool, to: Address<Self::Register>, from: usize);
    /// Adds two aligned doubles to a register's.
    fn add_aligned(&mut self, to: usize, from: Address<Self::Register>);

    /// The code of a sum in registers of 80 bits; its results are stored as doubles after each operation, or at the end.
    fn x87(_streams: usize, _is_stored: bool) -> Result<MachineCode, Unsupported> {
        Err(Unsupported::NotOnThisProcessor("registers of 80 bits (x87), which x86 alone has"))
    }
    /// The same code, with subnormal numbers flushed to zero for as long as it runs.
    fn flushing(_code: MachineCode) -> Result<MachineCode, Unsupported> {
        Err(Unsupported::NoSuchInstruction("membound flushes subnormal numbers to zero (FTZ, DAZ) on x86 alone"))
    }
}

/// Main loops start on a cache line: a first try finds how far the main loop is from a line boundary, a second one pads it there.
/// The padding lies before everything that is repeated: it costs nothing in a pass. A jump over it may become a longer one by it, and
/// move the loop once more.
pub(crate) fn on_a_line(
    generate: impl Fn(usize) -> Result<MachineCode, Unsupported>,
) -> Result<MachineCode, Unsupported> {
    const LINE: usize = membound_core::units::LINE as usize;
    const TRIES: usize = 3;
    let mut padding = 0;
    for _ in 0..TRIES {
        let code = generate(padding)?;
        match code.main_loop % LINE {
            0 => return Ok(code),
            beyond => padding += LINE - beyond,
        }
    }
    generate(padding)
}
