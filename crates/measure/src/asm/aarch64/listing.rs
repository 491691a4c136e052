//! Machine code as text.

use crate::asm::aarch64::opcodes::text;
use crate::code::MachineCode;

/// The instructions of `code`, decoded from its bytes, one a line: offset, word, text. The main loop is marked. A word
/// that is not generated here stands as it is.
pub fn listing(code: &MachineCode) -> String {
    let mut lines = String::new();
    for (k, bytes) in code.bytes.as_chunks().0.iter().enumerate() {
        let (at, word) = (4 * k, u32::from_le_bytes(*bytes));
        if at == code.main_loop {
            lines.push_str("; main loop\n");
        }
        let text = text(word, at).unwrap_or_else(|| format!(".word {word:#010x}"));
        lines.push_str(&format!("{at:5x}  {word:08x}  {text}\n"));
    }
    lines
}
