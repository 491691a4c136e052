//! Mixes of reads and writes that load the memory, as machine code.
//!
//! ```text
//! for each repetition: 12 lines, each loaded, every k-th then stored    (k = 3, 2, 1: 75:25, 67:33, 50:50 on the bus)
//! sfence, if stores went around the caches
//! ```
//! A line is loaded before it is stored, so a store needs no further read: what the program reads and writes is what
//! crosses the bus. `nt` stores whole lines around the caches and loads nothing. Accesses have 128 bits, which every
//! x86-64 processor has; memory is slower than that.

use crate::units::words;

words! {
    /// How the bus is loaded: bytes read to bytes written.
    Mix, "mix" {
        /// Loads alone.
        Read = "100:0",
        /// Every third line is stored too.
        ThreeToOne = "75:25",
        /// Every second line is stored too.
        TwoToOne = "67:33",
        /// Every line is stored too.
        OneToOne = "50:50",
        /// Non-temporal stores alone.
        Nt = "nt",
    }
}

/// Bytes of a line.
const LINE: u64 = 64;
/// Lines of one repetition: a whole number of each mix's rhythms.
pub const LINES: u64 = 12;
/// Bytes that one repetition walks over.
pub const STRIDE: u64 = LINES * LINE;

impl Mix {
    /// Whether a line of a repetition is stored.
    pub fn stores(self, line: u64) -> bool {
        match self {
            Mix::Read => false,
            Mix::ThreeToOne => line.is_multiple_of(3),
            Mix::TwoToOne => line.is_multiple_of(2),
            Mix::OneToOne | Mix::Nt => true,
        }
    }

    /// Bytes loaded and stored by one repetition.
    pub fn bytes(self) -> [u64; 2] {
        let stored = (0..LINES).filter(|line| self.stores(*line)).count() as u64 * LINE;
        [if self == Mix::Nt { 0 } else { STRIDE }, stored]
    }
}

#[cfg(target_arch = "x86_64")]
mod code {
    use iced_x86::code_asm::*;

    use super::{LINE, LINES, Mix, STRIDE};
    use crate::kernel::Unsupported;
    use crate::kernel::code::{Call, MachineCode};
    use crate::kernel::probe::build;
    use crate::kernel::x86_64::{epilogue, finish, prologue};

    impl Mix {
        /// The code that walks from its [`Call`]'s first pointer on; what it stores is the call's scalar.
        pub fn assemble(self) -> Result<MachineCode, Unsupported> {
            build(|asm| {
                let (mut again, mut exit) = (asm.create_label(), asm.create_label());
                prologue(asm)?;
                asm.mov(rbx, qword_ptr(r15 + Call::POINTERS))?;
                asm.movsd_2(xmm4, qword_ptr(r15 + Call::SCALAR))?;
                asm.unpcklpd(xmm4, xmm4)?;
                asm.set_label(&mut again)?;
                for line in 0..LINES {
                    for (part, register) in [xmm0, xmm1, xmm2, xmm3].into_iter().enumerate() {
                        let at = rbx + (line * LINE) as i32 + 16 * part as i32;
                        match self {
                            Mix::Nt => asm.movntps(xmmword_ptr(at), xmm4)?,
                            _ => asm.movaps(register, xmmword_ptr(at))?,
                        }
                    }
                    for part in (0..4).filter(|_| self != Mix::Nt && self.stores(line)) {
                        asm.movaps(xmmword_ptr(rbx + (line * LINE) as i32 + 16 * part), xmm4)?;
                    }
                }
                asm.add(rbx, STRIDE as i32)?;
                asm.dec(r14)?;
                asm.jnz(again)?;
                if self == Mix::Nt {
                    asm.sfence()?;
                }
                epilogue(asm, &mut exit, false)?;
                finish(asm, again, exit)
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixes_are_what_they_are_called() {
        for mix in Mix::ALL {
            let [loaded, stored] = mix.bytes();
            let share = 100.0 * loaded as f64 / (loaded + stored) as f64;
            let name = mix.word().split_once(':').map_or(0.0, |(read, _)| read.parse().unwrap());
            assert_eq!(share.round(), name, "{mix}");
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn code_moves_the_bytes_it_claims() {
        for mix in Mix::ALL {
            let listing = crate::kernel::listing(&mix.assemble().unwrap());
            let count = |what: &str| listing.lines().filter(|line| line.contains(what)).count() as u64;
            let stored = count("movaps [rbx") + count("movntps [rbx");
            let loaded = count("movaps xmm");
            assert_eq!([16 * loaded, 16 * stored], mix.bytes(), "{mix}:\n{listing}");
        }
    }
}
