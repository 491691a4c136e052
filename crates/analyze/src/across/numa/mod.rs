//! Memory from everywhere: kernels and chases on nodes, as one matrix.

pub mod nodes;
pub mod rows;
pub mod sections;

use crate::across::numa::rows::Numa;
use crate::answer::Answer;
use crate::experiments::bandwidth::rows::BandwidthRow;
use crate::section::Section;
use crate::visits::Visits;

/// The matrix and what follows from it; `None` where the record has none.
pub(crate) fn numa(visits: &Visits<'_>, on_nodes: Vec<BandwidthRow>) -> Option<Numa> {
    let mut numa = rows::matrix(visits, on_nodes)?;
    numa.kinds = nodes::measured(&visits.header().machine, &numa);
    Some(numa)
}

impl Answer for Option<Numa> {
    fn sentences(&self) -> Vec<String> {
        self.as_ref().map(sections::sentences).unwrap_or_default()
    }

    fn sections(&self) -> Vec<Section> {
        self.iter().map(sections::section).collect()
    }
}
