//! The instructions of A64 that are generated, each as its fixed bits and its text. From the text follow where operands
//! go, so that encoding, range checks and listing have one source; a test has an independent assembler read every line.
//!
//! In a text, `{5}` is a register's number in five bits from bit 5 on, `{10:12*8}` an unsigned number of 12 bits from
//! bit 10 on in units of 8, `{15:7s*16}` a signed one, and `{5:19b}` a distance in the code, in words.
//!
//! Source: Arm Architecture Reference Manual for A-profile (DDI 0487), chapters C6 (base), C7 (SIMD and
//! floating-point) and C8 (SVE).

/// One instruction: its bits without operands, and its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Opcode {
    pub bits: u32,
    pub text: &'static str,
}

macro_rules! opcodes {
    ($($name:ident = $bits:literal $text:literal;)*) => {
        $(pub(super) const $name: Opcode = Opcode { bits: $bits, text: $text };)*
        /// All of them.
        pub(super) const ALL: &[Opcode] = &[$($name),*];
    };
}

opcodes! {
    // The stack. It comes first, as its number is that of a register elsewhere.
    SUB_STACK = 0xd100_03ff "sub sp, sp, #{10:12}";
    ADD_STACK = 0x9100_03ff "add sp, sp, #{10:12}";
    STP_X_STACK = 0xa900_03e0 "stp x{0}, x{10}, [sp, #{15:7s*8}]";
    LDP_X_STACK = 0xa940_03e0 "ldp x{0}, x{10}, [sp, #{15:7s*8}]";
    STP_D_STACK = 0x6d00_03e0 "stp d{0}, d{10}, [sp, #{15:7s*8}]";
    LDP_D_STACK = 0x6d40_03e0 "ldp d{0}, d{10}, [sp, #{15:7s*8}]";
    // General registers.
    ADD_IMMEDIATE = 0x9100_0000 "add x{0}, x{5}, #{10:12}";
    ADD_PAGES = 0x9140_0000 "add x{0}, x{5}, #{10:12}, lsl #12";
    SUB_IMMEDIATE = 0xd100_0000 "sub x{0}, x{5}, #{10:12}";
    SUB_PAGES = 0xd140_0000 "sub x{0}, x{5}, #{10:12}, lsl #12";
    SUBS_IMMEDIATE = 0xf100_0000 "subs x{0}, x{5}, #{10:12}";
    ADD = 0x8b00_0000 "add x{0}, x{5}, x{16}";
    CMP = 0xeb00_001f "cmp x{5}, x{16}";
    MOV = 0xaa00_03e0 "mov x{0}, x{16}";
    LSL_2 = 0xd37e_f400 "lsl x{0}, x{5}, #2";
    LSL_3 = 0xd37d_f000 "lsl x{0}, x{5}, #3";
    MOVZ = 0xd280_0000 "movz x{0}, #{5:16}";
    MOVZ_16 = 0xd2a0_0000 "movz x{0}, #{5:16}, lsl #16";
    MOVZ_32 = 0xd2c0_0000 "movz x{0}, #{5:16}, lsl #32";
    MOVZ_48 = 0xd2e0_0000 "movz x{0}, #{5:16}, lsl #48";
    MOVK_16 = 0xf2a0_0000 "movk x{0}, #{5:16}, lsl #16";
    MOVK_32 = 0xf2c0_0000 "movk x{0}, #{5:16}, lsl #32";
    MOVK_48 = 0xf2e0_0000 "movk x{0}, #{5:16}, lsl #48";
    LDR_X = 0xf940_0000 "ldr x{0}, [x{5}, #{10:12*8}]";
    STR_X = 0xf900_0000 "str x{0}, [x{5}, #{10:12*8}]";
    LDUR_X = 0xf840_0000 "ldur x{0}, [x{5}, #{12:9s}]";
    STUR_X = 0xf800_0000 "stur x{0}, [x{5}, #{12:9s}]";
    LDR_W = 0xb940_0000 "ldr w{0}, [x{5}, #{10:12*4}]";
    LDUR_W = 0xb840_0000 "ldur w{0}, [x{5}, #{12:9s}]";
    // Jumps.
    B = 0x1400_0000 "b {0:26b}";
    B_EQ = 0x5400_0000 "b.eq {5:19b}";
    B_NE = 0x5400_0001 "b.ne {5:19b}";
    CBZ = 0xb400_0000 "cbz x{0}, {5:19b}";
    CBZ_W = 0x3400_0000 "cbz w{0}, {5:19b}";
    RET = 0xd65f_03c0 "ret";
    NOP = 0xd503_201f "nop";
    // Atomics, caches and barriers.
    CASAL = 0xc8e0_fc00 "casal x{16}, x{0}, [x{5}]";
    LDAXR = 0xc85f_fc00 "ldaxr x{0}, [x{5}]";
    STLXR = 0xc800_fc00 "stlxr w{16}, x{0}, [x{5}]";
    DC_ZVA = 0xd50b_7420 "dc zva, x{0}";
    DC_CIVAC = 0xd50b_7e20 "dc civac, x{0}";
    DSB = 0xd503_3f9f "dsb sy";
    DSB_STORES = 0xd503_3e9f "dsb st";
    // Memory copied and set: prologue, main part and epilogue (FEAT_MOPS).
    CPYFP = 0x1900_0400 "cpyfp [x{0}]!, [x{16}]!, x{5}!";
    CPYFM = 0x1940_0400 "cpyfm [x{0}]!, [x{16}]!, x{5}!";
    CPYFE = 0x1980_0400 "cpyfe [x{0}]!, [x{16}]!, x{5}!";
    SETP = 0x19c0_0400 "setp [x{0}]!, x{5}!, x{16}";
    SETM = 0x19c0_4400 "setm [x{0}]!, x{5}!, x{16}";
    SETE = 0x19c0_8400 "sete [x{0}]!, x{5}!, x{16}";
    // Vector registers and memory.
    LDR_S = 0xbd40_0000 "ldr s{0}, [x{5}, #{10:12*4}]";
    LDR_D = 0xfd40_0000 "ldr d{0}, [x{5}, #{10:12*8}]";
    LDR_Q = 0x3dc0_0000 "ldr q{0}, [x{5}, #{10:12*16}]";
    STR_S = 0xbd00_0000 "str s{0}, [x{5}, #{10:12*4}]";
    STR_D = 0xfd00_0000 "str d{0}, [x{5}, #{10:12*8}]";
    STR_Q = 0x3d80_0000 "str q{0}, [x{5}, #{10:12*16}]";
    LDUR_S = 0xbc40_0000 "ldur s{0}, [x{5}, #{12:9s}]";
    LDUR_D = 0xfc40_0000 "ldur d{0}, [x{5}, #{12:9s}]";
    LDUR_Q = 0x3cc0_0000 "ldur q{0}, [x{5}, #{12:9s}]";
    STUR_S = 0xbc00_0000 "stur s{0}, [x{5}, #{12:9s}]";
    STUR_D = 0xfc00_0000 "stur d{0}, [x{5}, #{12:9s}]";
    STUR_Q = 0x3c80_0000 "stur q{0}, [x{5}, #{12:9s}]";
    LDP_Q = 0xad40_0000 "ldp q{0}, q{10}, [x{5}, #{15:7s*16}]";
    STP_Q = 0xad00_0000 "stp q{0}, q{10}, [x{5}, #{15:7s*16}]";
    LDNP_Q = 0xac40_0000 "ldnp q{0}, q{10}, [x{5}, #{15:7s*16}]";
    STNP_Q = 0xac00_0000 "stnp q{0}, q{10}, [x{5}, #{15:7s*16}]";
    STNP_D = 0x6c00_0000 "stnp d{0}, d{10}, [x{5}, #{15:7s*8}]";
    LDR_S_INDEXED = 0xbc60_7800 "ldr s{0}, [x{5}, x{16}, lsl #2]";
    LDR_D_INDEXED = 0xfc60_7800 "ldr d{0}, [x{5}, x{16}, lsl #3]";
    // From register to register.
    MOV_V = 0x4ea0_1c00 "orr v{0}.16b, v{5}.16b, v{16}.16b";
    MOVI_ZERO = 0x6f00_e400 "movi v{0}.2d, #0000000000000000";
    DUP_2D = 0x4e08_0400 "dup v{0}.2d, v{5}.d[0]";
    DUP_4S = 0x4e04_0400 "dup v{0}.4s, v{5}.s[0]";
    DUP_2D_X = 0x4e08_0c00 "dup v{0}.2d, x{5}";
    DUP_4S_W = 0x4e04_0c00 "dup v{0}.4s, w{5}";
    DUP_UPPER = 0x5e18_0400 "mov d{0}, v{5}.d[1]";
    FCVT_S_D = 0x1e62_4000 "fcvt s{0}, d{5}";
    BIT = 0x6ea0_1c00 "bit v{0}.16b, v{5}.16b, v{16}.16b";
    BIF = 0x6ee0_1c00 "bif v{0}.16b, v{5}.16b, v{16}.16b";
    // Arithmetic: scalar, then vectors.
    FADD_S = 0x1e20_2800 "fadd s{0}, s{5}, s{16}";
    FADD_D = 0x1e60_2800 "fadd d{0}, d{5}, d{16}";
    FSUB_S = 0x1e20_3800 "fsub s{0}, s{5}, s{16}";
    FSUB_D = 0x1e60_3800 "fsub d{0}, d{5}, d{16}";
    FMUL_S = 0x1e20_0800 "fmul s{0}, s{5}, s{16}";
    FMUL_D = 0x1e60_0800 "fmul d{0}, d{5}, d{16}";
    FDIV_S = 0x1e20_1800 "fdiv s{0}, s{5}, s{16}";
    FDIV_D = 0x1e60_1800 "fdiv d{0}, d{5}, d{16}";
    FMADD_S = 0x1f00_0000 "fmadd s{0}, s{5}, s{16}, s{10}";
    FMADD_D = 0x1f40_0000 "fmadd d{0}, d{5}, d{16}, d{10}";
    FNEG_S = 0x1e21_4000 "fneg s{0}, s{5}";
    FNEG_D = 0x1e61_4000 "fneg d{0}, d{5}";
    FABS_S = 0x1e20_c000 "fabs s{0}, s{5}";
    FABS_D = 0x1e60_c000 "fabs d{0}, d{5}";
    FSQRT_S = 0x1e21_c000 "fsqrt s{0}, s{5}";
    FSQRT_D = 0x1e61_c000 "fsqrt d{0}, d{5}";
    FCMGT_S = 0x7ea0_e400 "fcmgt s{0}, s{5}, s{16}";
    FCMGT_D = 0x7ee0_e400 "fcmgt d{0}, d{5}, d{16}";
    FADD_4S = 0x4e20_d400 "fadd v{0}.4s, v{5}.4s, v{16}.4s";
    FADD_2D = 0x4e60_d400 "fadd v{0}.2d, v{5}.2d, v{16}.2d";
    FSUB_4S = 0x4ea0_d400 "fsub v{0}.4s, v{5}.4s, v{16}.4s";
    FSUB_2D = 0x4ee0_d400 "fsub v{0}.2d, v{5}.2d, v{16}.2d";
    FMUL_4S = 0x6e20_dc00 "fmul v{0}.4s, v{5}.4s, v{16}.4s";
    FMUL_2D = 0x6e60_dc00 "fmul v{0}.2d, v{5}.2d, v{16}.2d";
    FDIV_4S = 0x6e20_fc00 "fdiv v{0}.4s, v{5}.4s, v{16}.4s";
    FDIV_2D = 0x6e60_fc00 "fdiv v{0}.2d, v{5}.2d, v{16}.2d";
    FMLA_4S = 0x4e20_cc00 "fmla v{0}.4s, v{5}.4s, v{16}.4s";
    FMLA_2D = 0x4e60_cc00 "fmla v{0}.2d, v{5}.2d, v{16}.2d";
    FNEG_4S = 0x6ea0_f800 "fneg v{0}.4s, v{5}.4s";
    FNEG_2D = 0x6ee0_f800 "fneg v{0}.2d, v{5}.2d";
    FABS_4S = 0x4ea0_f800 "fabs v{0}.4s, v{5}.4s";
    FABS_2D = 0x4ee0_f800 "fabs v{0}.2d, v{5}.2d";
    FSQRT_4S = 0x6ea1_f800 "fsqrt v{0}.4s, v{5}.4s";
    FSQRT_2D = 0x6ee1_f800 "fsqrt v{0}.2d, v{5}.2d";
    FCMGT_4S = 0x6ea0_e400 "fcmgt v{0}.4s, v{5}.4s, v{16}.4s";
    FCMGT_2D = 0x6ee0_e400 "fcmgt v{0}.2d, v{5}.2d, v{16}.2d";
    // SVE: offsets are in whole registers. What is governed by a predicate keeps other elements (m) or clears them (z).
    PTRUE_256 = 0x2518_e140 "ptrue p{0:3}.b, vl32";
    PTRUE_512 = 0x2518_e160 "ptrue p{0:3}.b, vl64";
    LD1D = 0xa5e0_a000 "ld1d z{0}.d, p{10:3}/z, [x{5}, #{16:4s}, mul vl]";
    LD1W = 0xa540_a000 "ld1w z{0}.s, p{10:3}/z, [x{5}, #{16:4s}, mul vl]";
    LDNT1D = 0xa580_e000 "ldnt1d z{0}.d, p{10:3}/z, [x{5}, #{16:4s}, mul vl]";
    LDNT1W = 0xa500_e000 "ldnt1w z{0}.s, p{10:3}/z, [x{5}, #{16:4s}, mul vl]";
    ST1D = 0xe5e0_e000 "st1d z{0}.d, p{10:3}, [x{5}, #{16:4s}, mul vl]";
    ST1W = 0xe540_e000 "st1w z{0}.s, p{10:3}, [x{5}, #{16:4s}, mul vl]";
    STNT1D = 0xe590_e000 "stnt1d z{0}.d, p{10:3}, [x{5}, #{16:4s}, mul vl]";
    STNT1W = 0xe510_e000 "stnt1w z{0}.s, p{10:3}, [x{5}, #{16:4s}, mul vl]";
    LD1D_GATHER = 0xc5e0_c000 "ld1d z{0}.d, p{10:3}/z, [x{5}, z{16}.d, lsl #3]";
    LD1W_GATHER = 0x8520_4000 "ld1w z{0}.s, p{10:3}/z, [x{5}, z{16}.s, uxtw #2]";
    MOV_Z = 0x0460_3000 "orr z{0}.d, z{5}.d, z{16}.d";
    DUP_Z_X = 0x05e0_3800 "dup z{0}.d, x{5}";
    DUP_Z_W = 0x05a0_3800 "dup z{0}.s, w{5}";
    DUP_Z_D = 0x0528_2000 "mov z{0}.d, z{5}.d[0]";
    DUP_Z_S = 0x0524_2000 "mov z{0}.s, z{5}.s[0]";
    FADD_ZD = 0x65c0_0000 "fadd z{0}.d, z{5}.d, z{16}.d";
    FADD_ZS = 0x6580_0000 "fadd z{0}.s, z{5}.s, z{16}.s";
    FSUB_ZD = 0x65c0_0400 "fsub z{0}.d, z{5}.d, z{16}.d";
    FSUB_ZS = 0x6580_0400 "fsub z{0}.s, z{5}.s, z{16}.s";
    FMUL_ZD = 0x65c0_0800 "fmul z{0}.d, z{5}.d, z{16}.d";
    FMUL_ZS = 0x6580_0800 "fmul z{0}.s, z{5}.s, z{16}.s";
    FDIV_ZD = 0x65cd_8000 "fdiv z{0}.d, p{10:3}/m, z{0}.d, z{5}.d";
    FDIV_ZS = 0x658d_8000 "fdiv z{0}.s, p{10:3}/m, z{0}.s, z{5}.s";
    FMLA_ZD = 0x65e0_0000 "fmla z{0}.d, p{10:3}/m, z{5}.d, z{16}.d";
    FMLA_ZS = 0x65a0_0000 "fmla z{0}.s, p{10:3}/m, z{5}.s, z{16}.s";
    FSQRT_ZD = 0x65cd_a000 "fsqrt z{0}.d, p{10:3}/m, z{5}.d";
    FSQRT_ZS = 0x658d_a000 "fsqrt z{0}.s, p{10:3}/m, z{5}.s";
    FNEG_ZD = 0x04dd_a000 "fneg z{0}.d, p{10:3}/m, z{5}.d";
    FNEG_ZS = 0x049d_a000 "fneg z{0}.s, p{10:3}/m, z{5}.s";
    FABS_ZD = 0x04dc_a000 "fabs z{0}.d, p{10:3}/m, z{5}.d";
    FABS_ZS = 0x049c_a000 "fabs z{0}.s, p{10:3}/m, z{5}.s";
    FCMGT_ZD = 0x65c0_4010 "fcmgt p{0:4}.d, p{10:3}/z, z{5}.d, z{16}.d";
    FCMGT_ZS = 0x6580_4010 "fcmgt p{0:4}.s, p{10:3}/z, z{5}.s, z{16}.s";
    SEL_ZD = 0x05e0_c000 "sel z{0}.d, p{10:4}, z{5}.d, z{16}.d";
    SEL_ZS = 0x05a0_c000 "sel z{0}.s, p{10:4}, z{5}.s, z{16}.s";
}

/// An operand's place in an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Field {
    at: u32,
    bits: u32,
    scale: i64,
    is_signed: bool,
    /// A distance in the code.
    is_jump: bool,
}

impl Field {
    /// What stands between the braces.
    fn parse(text: &str) -> Self {
        let number = |text: &str| text.parse().unwrap_or(0);
        let Some((at, rest)) = text.split_once(':') else {
            return Field { at: number(text), bits: 5, scale: 1, is_signed: false, is_jump: false };
        };
        let (bits, scale) = rest.split_once('*').unwrap_or((rest, "1"));
        let is_jump = bits.ends_with('b');
        let is_signed = is_jump || bits.ends_with('s');
        let scale = if is_jump { 4 } else { i64::from(number(scale)) };
        Field { at: number(at), bits: number(bits.trim_end_matches(['s', 'b'])), scale, is_signed, is_jump }
    }

    fn mask(self) -> u32 {
        ((1u64 << self.bits) - 1) as u32
    }

    /// The field's bits in place, if it can hold the value.
    fn encode(self, value: i64) -> Option<u32> {
        let units = value / self.scale;
        let (least, most) = match self.is_signed {
            true => (-(1i64 << (self.bits - 1)), (1i64 << (self.bits - 1)) - 1),
            false => (0, i64::from(self.mask())),
        };
        let fits = value % self.scale == 0 && (least..=most).contains(&units);
        fits.then_some((units as u32 & self.mask()) << self.at)
    }

    fn decode(self, word: u32) -> i64 {
        let units = word >> self.at & self.mask();
        let sign = 1u32 << (self.bits - 1);
        let below = if self.is_signed && units & sign != 0 { 1i64 << self.bits } else { 0 };
        (i64::from(units) - below) * self.scale
    }
}

/// The text in pieces: what stands there, and the operand after it.
fn pieces(text: &'static str) -> impl Iterator<Item = (&'static str, Option<Field>)> {
    text.split('}').map(|piece| match piece.split_once('{') {
        Some((before, field)) => (before, Some(Field::parse(field))),
        None => (piece, None),
    })
}

impl Opcode {
    fn fields(self) -> impl Iterator<Item = Field> {
        pieces(self.text).filter_map(|(_, field)| field)
    }

    /// The instruction with these operands, in the order of its text. `None` if one does not fit.
    pub fn encode(self, operands: &[i64]) -> Option<u32> {
        debug_assert_eq!(self.fields().count(), operands.len(), "{}", self.text);
        self.fields().zip(operands).try_fold(self.bits, |word, (field, &value)| Some(word | field.encode(value)?))
    }

    /// The text of `word` at this offset of the code, if it is this instruction.
    fn decode(self, word: u32, at: usize) -> Option<String> {
        // Most instructions are told apart by the ones that all of theirs have, before their text is looked at.
        if self.bits & !word != 0 {
            return None;
        }
        let operands = self.fields().fold(0, |mask, field| mask | field.mask() << field.at);
        (word & !operands == self.bits)
            .then(|| pieces(self.text).map(|(before, field)| format!("{before}{}", operand(field, word, at))).collect())
    }
}

fn operand(field: Option<Field>, word: u32, at: usize) -> String {
    match field {
        None => String::new(),
        Some(field) if field.is_jump => format!("{:x}h", at as i64 + field.decode(word)),
        Some(field) => field.decode(word).to_string(),
    }
}

#[cfg(test)]
impl Opcode {
    /// The instruction with operands from these bits. Registers are never number 31, which goes by other names, and differ
    /// from each other, as pairs must.
    pub fn with_operands(self, pattern: u32) -> u32 {
        self.fields().fold(self.bits, |word, field| {
            let value = pattern >> field.at & field.mask();
            word | if field.bits == 5 { (value + field.at) % 31 } else { value } << field.at
        })
    }
}

/// The text of `word` at this offset of the code, if it is an instruction that is generated here.
pub(super) fn text(word: u32, at: usize) -> Option<String> {
    ALL.iter().find_map(|opcode| opcode.decode(word, at))
}
