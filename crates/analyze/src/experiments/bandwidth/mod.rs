//! Kernels over streams: levels, store kinds, scaling over threads, STREAM.

pub mod answer;
pub mod charts;
pub mod levels;
pub mod rows;
pub mod sections;
pub mod stores;
pub mod stream;

use crate::answer::Answer;
use crate::experiments::bandwidth::stream::StreamTable;
use crate::section::Section;

impl Answer for Vec<StreamTable> {
    fn sentences(&self) -> Vec<String> {
        stream::sentence(self).into_iter().collect()
    }

    fn sections(&self) -> Vec<Section> {
        if self.is_empty() { Vec::new() } else { vec![stream::section(self)] }
    }
}
