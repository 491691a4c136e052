//! x
use crate::machine::Machine;
/// x
pub fn text(machine: &Machine) -> String {
    machine.summary()
}
