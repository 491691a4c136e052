//! Code that runs without subnormal numbers: MXCSR's bits FTZ and DAZ are set before it and what MXCSR held is restored
//! after it, be that by its last instruction or from a fault.

use iced_x86::IcedError;
use iced_x86::code_asm::*;
use membound_core::kernel::Unsupported;

use crate::code::MachineCode;

/// Flush to zero (bit 15) and denormals are zero (bit 6): Intel SDM volume 1, section 10.2.3. Every processor with 64 bits has
/// both.
const FTZ_DAZ: u32 = 1 << 15 | 1 << 6;
/// Main loops stay where they were in a line.
const LINE: usize = membound_core::units::LINE as usize;

/// `code`, called with both bits set.
pub(super) fn flushing(code: MachineCode) -> Result<MachineCode, Unsupported> {
    let around = around(0).and_then(|bare| around(LINE - bare.len() % LINE));
    let around = around.map_err(|fault| Unsupported::Assembler(fault.to_string()))?;
    let [main_loop, fault_exit] = [code.main_loop, code.fault_exit].map(|offset| offset + around.len());
    Ok(MachineCode { bytes: [around, code.bytes].concat(), main_loop, fault_exit })
}

/// What calls the code right behind it, and so many bytes of padding between them.
fn around(padding: usize) -> Result<Vec<u8>, IcedError> {
    let mut asm = CodeAssembler::new(64)?;
    let mut code = asm.create_label();
    // The call finds the stack as any call must: 16 bytes and a return address beyond a multiple of 16.
    asm.sub(rsp, 24)?;
    asm.stmxcsr(dword_ptr(rsp))?;
    asm.mov(eax, dword_ptr(rsp))?;
    asm.or(eax, FTZ_DAZ as i32)?;
    asm.mov(dword_ptr(rsp + 4), eax)?;
    asm.ldmxcsr(dword_ptr(rsp + 4))?;
    asm.call(code)?;
    asm.ldmxcsr(dword_ptr(rsp))?;
    asm.add(rsp, 24)?;
    asm.ret()?;
    if padding > 0 {
        asm.nops_with_size(padding)?;
    }
    asm.set_label(&mut code)?;
    asm.zero_bytes()?;
    asm.assemble(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_control_word_is_set_before_and_restored_after() {
        let inner = crate::asm::pair().unwrap();
        let (offsets, bytes) = ([inner.main_loop, inner.fault_exit], inner.bytes.clone());
        let code = flushing(inner).unwrap();
        let before = code.bytes.len() - bytes.len();
        assert!(code.bytes.ends_with(&bytes) && before.is_multiple_of(LINE), "{before}");
        assert_eq!([code.main_loop, code.fault_exit], offsets.map(|offset| offset + before));
        let listing = crate::asm::listing(&code);
        let order = ["stmxcsr", "or eax, 8040h", "ldmxcsr [rsp+4]", "call", "ldmxcsr [rsp]", "ret", "push rbx"];
        let mut rest = listing.as_str();
        for what in order {
            let at = rest.find(what);
            assert!(at.is_some(), "{what} is missing or misplaced:\n{listing}");
            rest = &rest[at.unwrap_or(0) + what.len()..];
        }
    }
}
