//! Where the host had the CPUs of a guest, and what that did to kernels.

use crate::across::host_states::HostStates;
use crate::experiments::bandwidth::rows::BandwidthRow;
use crate::section::{Section, Table};
use crate::wording::{apart, gbps};
use membound_core::units::{percent, significant};

/// Kernels that are shown.
const EFFECTS: usize = 12;

/// Empty where CPUs were as far apart throughout.
pub fn section(states: Option<&HostStates>, rows: &[BandwidthRow]) -> Section {
    let Some(states) = states else { return Section::default() };
    let [close_ns, far_ns] = states.hand_over_ns.map(significant);
    let shown: Vec<_> = states.effects.iter().take(EFFECTS).map(|effect| (effect, &rows[effect.row])).collect();
    let table = Table::new("kernels with CPUs close together, and what far apart gives")
        .left("kernel", shown.iter().map(|(_, row)| row.kernel().to_string()))
        .left("stores", shown.iter().map(|(_, row)| row.store().to_string()))
        .left("level", shown.iter().map(|(_, row)| row.level.clone()))
        .right("threads", shown.iter().map(|(_, row)| row.threads().to_string()))
        .right("visits\nclose", shown.iter().map(|(effect, _)| effect.visits[0].to_string()))
        .right("visits\nfar", shown.iter().map(|(effect, _)| effect.visits[1].to_string()))
        .right("close\nGB/s", shown.iter().map(|(effect, _)| gbps(effect.payload_bps[0].value())))
        .right("far\nGB/s", shown.iter().map(|(effect, _)| gbps(effect.payload_bps[1].value())))
        .right("far,\ntimes", shown.iter().map(|(effect, _)| significant(effect.factor[0])));
    Section {
        id: "host",
        title: "Where the host had the CPUs".into(),
        about: format!(
            "In {} of {} visits of several threads the host ran their CPUs close together (one hands a line to the other in \
             {close_ns} ns, as within one last-level cache), in the others far apart ({far_ns} ns). Figures of several threads \
             are of CPUs {}, as they mostly were, but for cases that met too few such visits.",
            percent(states.close_share()),
            states.visits.iter().sum::<usize>(),
            apart(states.usual)
        ),
        tables: (!shown.is_empty()).then_some(table).into_iter().collect(),
        ..Section::default()
    }
}
