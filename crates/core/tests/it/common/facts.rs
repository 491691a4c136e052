//! What holds for the facts of every machine.

use std::sync::LazyLock;

use crate::common::schema::Validator;
use membound_core::machine::Machine;
use membound_core::machine::cpuset::CpuSet;

static VALIDATOR: LazyLock<Validator> =
    LazyLock::new(|| Validator::of(&schemars::schema_for!(Machine).to_value()).unwrap());

/// JSON follows the schema and says all there is.
pub fn check_json(machine: &Machine) {
    let value = serde_json::to_value(machine).unwrap();
    assert_eq!(VALIDATOR.fault(&value), None);
    assert_eq!(&serde_json::from_value::<Machine>(value).unwrap(), machine);
}

/// The order names each usable CPU once, and no second thread of a core before all first ones.
pub fn check_order(machine: &Machine) {
    let usable = machine.usable_cpus();
    let order = machine.topology_order(&usable);
    assert_eq!(order.iter().copied().collect::<CpuSet>(), usable);
    assert_eq!(order.len(), usable.len());
    let mut cores: Vec<&CpuSet> = Vec::new();
    let first: Vec<bool> = order
        .iter()
        .map(|id| {
            let core = &machine.cpu(*id).unwrap().core_cpus;
            let new = !cores.contains(&core);
            cores.push(core);
            new
        })
        .collect();
    assert!(first.is_sorted_by(|a, b| a >= b), "{order:?}");
}
