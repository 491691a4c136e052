//! Machine code as text.

use iced_x86::{Decoder, DecoderOptions, Formatter, IntelFormatter};

use crate::code::MachineCode;

/// The instructions of `code`, decoded from its bytes, one a line: offset, bytes, text. The main loop is marked.
pub fn listing(code: &MachineCode) -> String {
    let mut formatter = IntelFormatter::new();
    formatter.options_mut().set_space_after_operand_separator(true);
    formatter.options_mut().set_branch_leading_zeros(false);
    let mut text = String::new();
    for instruction in &mut Decoder::new(64, &code.bytes, DecoderOptions::NONE) {
        let (start, end) = (instruction.ip() as usize, instruction.next_ip() as usize);
        if start == code.main_loop {
            text.push_str("; main loop\n");
        }
        let mut line = String::new();
        formatter.format(&instruction, &mut line);
        let bytes: String = code.bytes[start..end].iter().map(|b| format!("{b:02x}")).collect();
        text.push_str(&format!("{start:5x}  {bytes:<24}{line}\n"));
    }
    text
}
